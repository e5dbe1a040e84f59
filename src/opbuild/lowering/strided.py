"""Plain values seen with other dimensions: broadcast, merged, cut down to the few dimensions that a kernel has."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.operands import Plain
from opbuild.program import View

Strides = tuple[int, ...]


def seen_as(value: Plain, shape: Sequence[int], strides: Sequence[int]) -> Plain:
    """Return the same memory from the same first element with other dimensions."""
    return Plain(value.storage, tuple(shape), tuple(strides), value.offset)


def broadcast(value: Plain, shape: Sequence[int]) -> Plain:
    """Return a value repeated to ``shape`` by strides of 0, as numpy broadcasts."""
    missing = len(shape) - len(value.shape)
    own = (1,) * missing + value.shape
    strides = (0,) * missing + value.strides
    return seen_as(value, shape, [0 if e == 1 else s for e, s in zip(own, strides, strict=True)])


def merge(shape: Sequence[int], operands: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], list[Strides]]:
    """Merge neighbouring dimensions that are one in every operand; drop those of extent 1.

    Args:
        shape: Extents, outermost first.
        operands: Strides of each operand, for these dimensions.

    Returns:
        The merged extents and each operand's strides.
    """
    extents: list[int] = []
    rows: list[list[int]] = []
    for extent, strides in zip(shape, zip(*operands, strict=True), strict=True):
        if extent == 1:
            continue
        if extents and all(outer == inner * extent for outer, inner in zip(rows[-1], strides, strict=True)):
            extents[-1] *= extent
            rows[-1] = list(strides)
        else:
            extents.append(extent)
            rows.append(list(strides))
    return tuple(extents), [tuple(row[index] for row in rows) for index in range(len(operands))]


def padded(extents: Sequence[int], strides: Sequence[int], rank: int) -> tuple[tuple[int, ...], Strides]:
    """Return extents and strides with dimensions of extent 1 added outside, up to ``rank``."""
    missing = rank - len(extents)
    return (1,) * missing + tuple(extents), (0,) * missing + tuple(strides)


def with_inner_stride(value: Plain, stride: int) -> Plain:
    """Return a value whose innermost stride is ``stride`` if its extent is 1, where the stride has no meaning."""
    if value.shape[-1] != 1:
        return value
    return seen_as(value, value.shape, (*value.strides[:-1], stride))


def made(desc: OpDesc) -> Callable[[tuple[View, ...]], tuple[OpDesc, tuple[View, ...]]]:
    """Return the maker of a call whose descriptor is decided and whose views stay as they are."""
    return lambda views: (desc, views)
