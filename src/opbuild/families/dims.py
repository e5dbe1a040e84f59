"""Dimensions of operands, and vectors along them."""

from __future__ import annotations

from opbuild.dtypes import itemsize
from opbuild.graph.extents import is_step
from opbuild.kernel.opdesc import FREE, Dim

VECTOR = 16
"""Elements that a kernel takes at once along a dimension whose elements are adjacent."""


def vector_width(extent: int, itemsize: int) -> int:
    """Return the number of elements that a loop over ``extent`` takes at once: at most all, 1 for short rows.

    64 bytes on every machine: on AVX2 two registers take 1.0 to 0.7 of the time of one, up to where memory limits.
    """
    return next((width for width in (64 // itemsize, 16 // itemsize) if 1 < width <= extent), 1)


def inner_dim(stride: int, width: int) -> Dim:
    """Return an operand's innermost dimension: stride 0 and 1 are constants of the code."""
    return Dim(stride=stride if is_step(stride) else FREE, min=width if width > 1 else 0)


def free_dims(rank: int, inner_stride: int = FREE, inner_min: int = 0, inner_max: int = FREE) -> tuple[Dim, ...]:
    """Return dimensions, innermost first, of which only the innermost one has a stride or limits."""
    return (Dim(stride=inner_stride, min=inner_min, max=inner_max), *(Dim(),) * (rank - 1))


def storage_type(dtype: str) -> str:
    """Return the type as which elements are moved: only their size matters, so that kernels are few."""
    return f"uint{8 * itemsize(dtype)}"
