"""Endpoint: an input or an output of a network, as its user sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from opbuild.graph.types import TensorType
from opbuild.kernel.opdesc import FREE


class Endpoint(NamedTuple):
    """An input or output of a network.

    The shape of an output is None where its number of dimensions may differ from call to call, or the model does not
    say it and nobody can infer it; then its element type may be ``object``.

    Attributes:
        name: Its name in the model.
        type: Element type and row-major shape together, as graphs have them.
    """

    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        """The row-major shape; an extent that may differ from call to call is -1."""
        return self.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return np.dtype(self.type.dtype or object)

    def __repr__(self) -> str:
        return f"Endpoint(name={self.name!r}, shape={self.shape}, dtype={self.dtype.name!r})"

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.name}{shape_text(self.shape)}"


def shape_text(shape: Sequence[int] | None) -> str:
    """Return a shape as messages show it: ``any`` is an extent that is open, ``...`` an open number of them."""
    if shape is None:
        return "[...]"
    return "[" + ", ".join("any" if extent == FREE else str(extent) for extent in shape) + "]"


def common(types: Sequence[TensorType]) -> TensorType:
    """Return what several types of one value have in common: -1 is an extent in which they differ.

    If they differ in their numbers of dimensions, as what Squeeze returns may, the shape is None: see ``Endpoint``.
    """
    first = types[0]
    if any(len(each.shape) != len(first.shape) for each in types):
        return TensorType(first.dtype, cast("tuple[int, ...]", None))
    columns = zip(*(each.shape for each in types), strict=True)
    return TensorType(first.dtype, tuple(column[0] if len({*column}) == 1 else FREE for column in columns))
