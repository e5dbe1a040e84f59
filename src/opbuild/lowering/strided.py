"""Plain values seen otherwise without moving an element: reshaped, transposed, cut, broadcast, their axes merged.

Elementwise kernels and copies may visit elements in any order, so their dimensions are dropped, sorted and merged
until what is left depends on the shapes as little as possible: fewer ranks are fewer kernels, and one long row is the
fastest loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

from opbuild.graph.extents import always_equal, divides, is_at_least, is_one, same_shape, typical_value
from opbuild.kernel.opdesc import FREE
from opbuild.lowering.operands import Plain, dense_strides
from opbuild.platform.records import dataclass
from opbuild.program import View

Strides = tuple[int, ...]

SHORT_ROW = 15
"""Elements of rows that do not fill a vector: with rows side by side a softmax takes 0.05 to 0.2 of its time, ArgMax
0.1 to 0.2, sums 0.1 to 0.4."""


def viewed_as(value: Plain, shape: Sequence[int], strides: Sequence[int]) -> Plain:
    """Return the same memory from the same first element with other dimensions."""
    return Plain(value.storage, tuple(shape), tuple(strides), value.offset)


def reshaped(value: Plain, shape: Sequence[int]) -> Plain | None:
    """Return the elements in another shape, or None if their memory does not allow it without a copy."""
    shape = tuple(shape)
    if value.dense:
        return dense_as(value, shape)
    strides = _restrided(value.shape, value.strides, shape)
    return None if strides is None else viewed_as(value, shape, strides)


def _restrided(shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> Strides | None:
    """Return the strides of as many elements in another shape, as numpy finds them; None if there surely are none."""
    if same_shape(shape, wanted):
        return tuple(strides)
    own = [(extent, stride) for extent, stride in zip(shape, strides, strict=True) if not is_one(extent)]
    found: list[int] = []
    while own and len(found) < len(wanted):
        counts = _common_extents([extent for extent, _ in own], wanted[len(found) :])
        if counts is None:
            return None
        taken, last = counts[0], len(found) + counts[1]
        group, own = own[:taken], own[taken:]
        if not all(always_equal(outer, inner * size) for (_, outer), (size, inner) in pairwise(group)):
            return None
        steps, step = list[int](), group[-1][1]
        for size in reversed(wanted[len(found) : last]):
            steps.append(step)
            step *= size
        found += reversed(steps)
    return (*found, *[found[-1] if found else 1] * (len(wanted) - len(found)))


def _common_extents(own: Sequence[int], wanted: Sequence[int]) -> tuple[int, int] | None:
    """Return the numbers of extents at the beginning of both that are surely as many elements; None if none are."""
    extent, taken, count, last = own[0], 1, wanted[0], 1
    while not always_equal(count, extent):
        if divides(count, extent) or (typical_value(count) < typical_value(extent) and not divides(extent, count)):
            if last == len(wanted):
                return None
            count, last = count * wanted[last], last + 1
        else:
            if taken == len(own):
                return None
            extent, taken = extent * own[taken], taken + 1
    return taken, last


def dense_as(value: Plain, shape: Sequence[int]) -> Plain:
    """Return a dense value in another shape."""
    return viewed_as(value, shape, dense_strides(tuple(shape)))


def is_short(row: int) -> Any:
    """Return 1 where rows are so short that kernels take many of them side by side, rather than one in vectors."""
    return is_at_least(row, 2) * (1 - is_at_least(row, SHORT_ROW + 1))


def transposed(value: Plain, order: Sequence[int]) -> Plain:
    """Return the value with its dimensions in another order."""
    return viewed_as(value, [value.shape[axis] for axis in order], [value.strides[axis] for axis in order])


def narrowed(value: Plain, axis: int, start: int, count: int, step: int = 1) -> Plain:
    """Return ``count`` elements of one axis from ``start`` on; a negative step goes backwards."""
    shape, strides = list(value.shape), list(value.strides)
    offset = value.offset + (start * strides[axis] if count else 0)
    shape[axis], strides[axis] = count, strides[axis] * step
    return Plain(value.storage, tuple(shape), tuple(strides), offset)


def without(value: Plain, axis: int) -> Plain:
    """Return the value without an axis, at its first element."""
    shape, strides = value.shape, value.strides
    return viewed_as(value, shape[:axis] + shape[axis + 1 :], strides[:axis] + strides[axis + 1 :])


def broadcast(value: Plain, shape: Sequence[int]) -> Plain:
    """Return a value repeated to ``shape`` by strides of 0, as numpy broadcasts."""
    missing = len(shape) - len(value.shape)
    own = (1,) * missing + value.shape
    strides = (0,) * missing + value.strides
    steps = (s if _is_whole(e, to) else 0 for e, to, s in zip(own, shape, strides, strict=True))
    return viewed_as(value, shape, tuple(steps))


def _is_whole(own: int, extent: int) -> bool:
    """Return whether an extent is that of a value, not one element that is repeated."""
    return not is_one(own) and (always_equal(own, extent) or own == extent)


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
        if is_one(extent):
            continue
        if extents and all(always_equal(outer, inner * extent) for outer, inner in zip(rows[-1], strides, strict=True)):
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


def constant_step(stride: int) -> int:
    """Return stride 1 as a constant of the code; others are read when it runs."""
    return 1 if is_one(stride) else FREE


def with_inner_stride(value: Plain, stride: int) -> Plain:
    """Return a value whose innermost stride is ``stride`` if its extent is 1, where the stride has no meaning."""
    if not is_one(value.shape[-1]):
        return value
    return viewed_as(value, value.shape, (*value.strides[:-1], stride))


Dims = tuple[tuple[int, int], ...]

RANKS = (1, 2, 4, 6)
"""Ranks that kernels are compiled for; dimensions of one element fill up to the next."""


@dataclass(frozen=True)
class Loops:
    """Dimensions shared by all operands, innermost first.

    Attributes:
        extents: Number of elements.
        strides: For each operand its strides.
    """

    extents: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.extents)

    def views(self, originals: Sequence[View]) -> tuple[View, ...]:
        """Return the operands' views with these dimensions."""
        return tuple(
            View(view.buffer, view.offset, tuple(zip(self.extents, steps, strict=True)))
            for view, steps in zip(originals, self.strides, strict=True)
        )

    def moved(self, dimension: int, to: int) -> Loops:
        """Return the loops with one dimension moved."""
        order = [index for index in range(len(self.extents)) if index != dimension]
        order.insert(to, dimension)
        return Loops(
            tuple(self.extents[index] for index in order),
            tuple(tuple(steps[index] for index in order) for steps in self.strides),
        )

    def filled(self, ranks: Sequence[int] = RANKS, at: int = 1) -> Loops:
        """Return the loops with dimensions of one element inserted at ``at``, to a number that is in ``ranks``."""
        missing = next((rank for rank in ranks if rank >= len(self.extents)), len(self.extents)) - len(self.extents)
        return Loops(
            (*self.extents[:at], *(1,) * missing, *self.extents[at:]),
            tuple((*steps[:at], *(0,) * missing, *steps[at:]) for steps in self.strides),
        )


def collapse(views: Sequence[View]) -> Loops:
    """Return the loops of operands of equal extents.

    Args:
        views: The operands; the last one is the output, whose memory decides the order.
    """
    dims = [view.dims for view in views]
    order = sorted(range(len(dims[-1])), key=lambda index: abs(typical_value(dims[-1][index][1])))[::-1]
    extents, strides = merge([dims[-1][index][0] for index in order], [[own[i][1] for i in order] for own in dims])
    if not extents:
        extents, strides = (1,), [(1,)] * len(views)
    return Loops(extents[::-1], tuple(steps[::-1] for steps in strides))


def merged_rows(plain: Dims, blocked: Dims) -> tuple[Dims, Dims]:
    """Return the dims of a plain and of a blocked image, rows merged into one where no halo lies between them."""
    (width, step), (height, row), channels = plain
    lane, (_, blocked_step), (_, blocked_row), block = blocked
    is_long = always_equal(row, width * step) and always_equal(blocked_row, width * blocked_step)
    if is_long and not is_one(height):
        long = width * height
        return ((long, step), (1, long * step), channels), (lane, (long, blocked_step), (1, long * blocked_step), block)
    return plain, blocked
