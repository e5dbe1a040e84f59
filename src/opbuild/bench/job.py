"""The data that every runtime in a comparison is given, and the results that it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy.typing as npt

from opbuild.platform.records import dataclass

Array = npt.NDArray[Any]
Call = Callable[[], "list[Array]"]


@dataclass(frozen=True)
class BenchJob:
    """The task of a runtime in a comparison.

    Attributes:
        model: The path of an ONNX model.
        data: Its inputs by name; their shapes are the ones to build for.
        threads: Threads that run the network.
        cache: A folder for what the runtime keeps for its next start.
        level: The level whose code opbuild runs; empty: this machine's.
    """

    model: str
    data: Mapping[str, Array]
    threads: int
    cache: str
    level: str = ""
