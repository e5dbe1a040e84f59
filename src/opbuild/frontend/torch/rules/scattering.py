"""Operators that put elements at indices of a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opbuild.frontend.torch.promotion import category
from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.writing import StepBuilder, Value
from opbuild.graph.extents import is_open

_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


@rule("scatter.src", "scatter.value")
def scatter(of: StepBuilder, x: Value, axis: int, indices: Value, source: Any) -> Value:
    """Elements by the place of each index, along a dimension."""
    return _scattered(of, x, axis, indices, source, "none")


@rule("scatter_add.default")
def scatter_add(of: StepBuilder, x: Value, axis: int, indices: Value, source: Value) -> Value:
    """Elements added at the place of each index, along a dimension."""
    return _scattered(of, x, axis, indices, source, "add")


@rule("scatter_reduce.two")
def scatter_reduce(
    of: StepBuilder, x: Value, axis: int, indices: Value, source: Value, reduce: str, include_self: bool = True
) -> Value:
    """Elements joined with those at the place of each index, along a dimension."""
    if reduce not in _REDUCTIONS or not include_self:
        of.refuse("means, or without what was there")
    return _scattered(of, x, axis, indices, source, _REDUCTIONS[reduce])


def _scattered(of: StepBuilder, x: Value, axis: int, indices: Value, source: Any, reduction: str) -> Value:
    if not x.shape or not indices.shape:
        of.refuse("of tensors without dimensions")
    if reduction != "none" and category(x.dtype) == 0:
        of.refuse("of truth values")
    if isinstance(source, Value):
        if is_open((*source.shape, *indices.shape)):
            of.refuse("sizes that are open")
        if source.shape != indices.shape:
            rank = len(indices.shape)
            source = of("Slice", source, of.ints(*(0,) * rank), of.ints(*indices.shape))
    else:
        source = of("Expand", of.operand(source, x.dtype), of.ints(*indices.shape))
    axis = of.axis(axis, len(x.shape))
    indices = of.in_range(indices, x.shape[axis])
    return of("ScatterElements", x, indices, source, axis=axis, reduction=reduction)


@rule("index_put.default", "_unsafe_index_put.default")
def index_put(
    of: StepBuilder, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    """Elements at the places that indices of the first dimensions name."""
    given = [each for each in indices if each is not None]
    if len(given) == 1 and given[0].dtype == "bool":
        return _masked(of, x, indices, given[0], values, accumulate)
    if any(each.dtype == "bool" for each in given) or given != list(indices)[: len(given)]:
        of.refuse("truth values, or dimensions that are not the first ones")
    if is_open((*x.shape, *values.shape, *(extent for each in given for extent in each.shape))):
        of.refuse("sizes that are open")
    places = stacked(of, given)
    updates = (*places.shape[:-1], *x.shape[len(given) :])
    values = values if values.shape == updates else of("Expand", values, of.ints(*updates))
    return of("ScatterND", x, places, values, reduction="add" if accumulate else "none")


def stacked(of: StepBuilder, indices: Sequence[Value]) -> Value:
    """Return indices of several dimensions as rows of one tensor."""
    rank = max(len(each.shape) for each in indices)
    padded = [(1,) * (rank - len(each.shape)) + each.shape for each in indices]
    shape = tuple(max(extents, key=lambda extent: extent != 1) for extents in zip(*padded, strict=True))
    rows = list[Value]()
    for each in indices:
        wide = of.cast(each, "int64")
        wide = wide if wide.shape == shape else of("Expand", wide, of.ints(*shape))
        rows.append(of.reshape(wide, (*shape, 1)))
    return rows[0] if len(rows) == 1 else of("Concat", *rows, axis=rank)


def _masked(
    of: StepBuilder, x: Value, indices: Sequence[Value | None], mask: Value, values: Value, accumulate: bool
) -> Value:
    """Return ``x`` with one value wherever a mask of its first dimensions is."""
    if accumulate or indices[0] is None or values.type.size != 1:
        of.refuse("several values for truth values")
    mask = of.reshape(mask, mask.shape + (1,) * (len(x.shape) - len(mask.shape)))
    return of("Where", mask, of.reshape(values, ()), x)


@rule("slice_scatter.default")
def slice_scatter(
    of: StepBuilder, x: Value, source: Value, axis: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Value:
    """A part of a dimension replaced."""
    axis = of.axis(axis, len(x.shape))
    extent = x.shape[axis]
    if is_open([extent, start or 0, end or 0, step]) or step != 1:
        of.refuse("sizes that are open, or steps")
    begin, stop, _ = slice(start, end).indices(extent)
    parts = [_part(of, x, axis, 0, begin), of.cast(source, x.dtype), _part(of, x, axis, max(begin, stop), extent)]
    kept = [each for each in parts if each is not None]
    return kept[0] if len(kept) == 1 else of("Concat", *kept, axis=axis)


def _part(of: StepBuilder, x: Value, axis: int, begin: int, end: int) -> Value | None:
    return None if begin >= end else of("Slice", x, of.ints(begin), of.ints(end), of.ints(axis), of.ints(1))


@rule("copy.default")
def copy(of: StepBuilder, x: Value, source: Value, non_blocking: bool = False) -> Value:
    """What is written over a tensor."""
    source = of.cast(source, x.dtype)
    return source if source.shape == x.shape else of("Expand", source, of.ints(*x.shape))
