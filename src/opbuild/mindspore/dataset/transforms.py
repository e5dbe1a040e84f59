"""``dataset.transforms``: functions of one value for ``map``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.dtype import to_type

__getattr__ = names.getter(__name__)

__all__ = ["Compose", "OneHot", "TypeCast"]


class TypeCast:
    """The value in another element type."""

    def __init__(self, output_type: Any) -> None:
        self._name = to_type(output_type).name

    def __call__(self, value: Any) -> Array:
        """Return the value."""
        return np.asarray(value).astype(self._name)


class OneHot:
    """A class, or several, as vectors of zeros with a 1 at the class."""

    def __init__(self, num_classes: int, smoothing_rate: float = 0.0) -> None:
        self._classes, self._rate = num_classes, smoothing_rate

    def __call__(self, value: Any) -> Array:
        """Return the vectors; ``smoothing_rate`` of the 1 is spread over all classes."""
        labels = np.asarray(value)
        if ((labels < 0) | (labels >= self._classes)).any():
            raise ArgumentValueError(f"OneHot of {labels} with {self._classes} classes", "classes are numbered from 0")
        chosen = np.eye(self._classes, dtype=np.float32 if self._rate else labels.dtype)[labels]
        return np.asarray(chosen * (1 - self._rate) + self._rate / self._classes if self._rate else chosen)


class Compose:
    """Functions one after the other."""

    def __init__(self, transforms: Sequence[Callable[..., Any]]) -> None:
        self._transforms = list(transforms)

    def __call__(self, *values: Any) -> Any:
        """Return the result of the last one."""
        for transform in self._transforms:
            given = transform(*values)
            values = given if isinstance(given, tuple) else (given,)
        return values if len(values) > 1 else values[0]
