"""Gradients of movements of elements, which move back, and of gathers by indices and scatters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from opbuild.graph.gradients.registry import RULES, Backward, Parts, gradient, is_empty, summed_to
from opbuild.graph.graph_builder import GraphBuilder, Value
from opbuild.graph.shape_rules_movement import slice_ranges
from opbuild.graph.types import Array


@gradient("Transpose")
def transpose(of: Backward) -> Parts:
    """Take the order back."""
    rank = len(of.input(0).shape)
    order = of.listed("perm", tuple(reversed(range(rank))))
    return (of.transpose(of.gradient(), [order.index(axis) for axis in range(rank)]),)


@gradient("Concat")
def concat(of: Backward) -> Parts:
    """Cut the gradient into the parts that were joined."""
    axis = of.axis(0, len(of.output().shape))
    found: list[Value | None] = []
    start = 0
    for index, wants in enumerate(of.wanted):
        extent = of.input(index).shape[axis]
        found.append(of.part(of.gradient(), axis, start, start + extent) if wants else None)
        start += extent
    return found


@gradient("Split")
def split(of: Backward) -> Parts:
    """Join the parts again."""
    parts = [of.gradient(index) for index in range(len(of.outputs))]
    axis = of.axis(0, len(of.input(0).shape))
    return (of("Concat", *parts, axis=axis) if len(parts) > 1 else parts[0],)


@gradient("Slice")
def cut_out(of: Backward) -> Parts:
    """Put the piece where it was, zeros around it and between its elements."""
    x, part = of.input(0), of.gradient()
    if is_empty(part):
        return (of.zeros(x),)
    rank = len(x.shape)
    before, after, gaps, turned = [0] * rank, [0] * rank, [1] * rank, []
    for axis, start, step, _ in slice_ranges(of.shapes()):
        last = start + (part.shape[axis] - 1) * step
        if step < 0:
            turned.append(axis)
        before[axis], gaps[axis] = min(start, last), abs(step)
        after[axis] = x.shape[axis] - max(start, last) - 1
    if turned:
        axes = [of.ints(*(number,) * len(turned)) for number in (-1, -(2**31), -1)]
        part = of("Slice", part, axes[0], axes[1], of.ints(*turned), axes[2])
    part = spaced(of, part, gaps)
    return (of("Pad", part, of.ints(*before, *after)) if any((*before, *after)) else part,)


def spaced(of: GraphBuilder, x: Value, gaps: Sequence[int]) -> Value:
    """Return a tensor with zeros between its elements, as many as each axis's step leaves out."""
    for axis, gap in enumerate(gaps):
        count = x.shape[axis]
        if gap == 1 or count == 1:
            continue
        shape = (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :])
        amounts = (*(0,) * (len(shape) + axis + 1), gap - 1, *(0,) * (len(shape) - axis - 2))
        wide = of("Pad", of.reshape(x, shape), of.ints(*amounts))
        flat = of.reshape(wide, (*x.shape[:axis], count * gap, *x.shape[axis + 1 :]))
        x = of.part(flat, axis, 0, (count - 1) * gap + 1)
    return x


@gradient("Pad")
def pad(of: Backward) -> Parts:
    """Cut the padding off, and add it to the elements that it repeats, or to the number that it is."""
    x, dy = of.input(0), of.gradient()
    rank, amounts = len(x.shape), [int(each) for each in of.known_input(1).reshape(-1)]
    axes = [int(each) % rank for each in of.known_input(3).reshape(-1)] if of.optional(3) is not None else range(rank)
    before, after = [0] * rank, [0] * rank
    for place, axis in enumerate(axes):
        before[axis], after[axis] = amounts[place], amounts[len(axes) + place]
    mode = of.node.text("mode", "constant")
    number = _of_number(of, [*before, *after]) if mode == "constant" and of.wants(2) else None
    for axis in range(rank):
        start, end = max(before[axis], 0), dy.shape[axis] - max(after[axis], 0)
        dy = of.part(dy, axis, start, end) if mode == "constant" else _folded(of, dy, axis, start, end, mode)
    if min((*before, *after), default=0) < 0:  # what was cut off got nothing
        dy = of("Pad", dy, of.ints(*(max(-each, 0) for each in (*before, *after))))
    return dy, None, number


def _of_number(of: Backward, amounts: Sequence[int]) -> Value:
    """Return the sum over the padding."""
    x, number = of.input(0), of.input(2)
    inside = of("Pad", of.zeros(x), of.ints(*amounts), of.constant(1.0, x.dtype))
    return of.reshape(of.sum(of("Mul", of.gradient(), inside), range(len(x.shape))), number.shape)


def _folded(of: GraphBuilder, x: Value, axis: int, start: int, end: int, mode: str) -> Value:
    """Return the elements from ``start`` to ``end``, with those outside added where they repeat one of them.

    The padding is taken in pieces that repeat neighbours in one order, as numpy pads: the gradient of each lies where
    what it repeats does.
    """
    extent, whole = end - start, x.shape[axis]
    if not prod(x.shape) or (start, end) == (0, whole):
        return x
    source = np.pad(np.arange(extent), (start, whole - end), mode=mode)  # type: ignore[call-overload]  # a name
    found = of.part(x, axis, start, end)
    for first, last in _pieces(source, start, end):
        if source[first] == source[last - 1]:
            part = of.sum(of.part(x, axis, first, last), (axis,), keepdims=True)
        elif source[first] < source[last - 1]:
            part = of.part(x, axis, first, last)
        else:
            beyond = of.ints(first - 1 - whole if first == 0 else first - 1)
            part = of("Slice", x, of.ints(last - 1), beyond, of.ints(axis), of.ints(-1))
        low = int(min(source[first], source[last - 1]))
        amounts = [0] * (2 * len(x.shape))
        amounts[axis], amounts[axis + len(x.shape)] = low, extent - low - part.shape[axis]
        found = of("Add", found, of("Pad", part, of.ints(*amounts)) if any(amounts) else part)
    return found


def _pieces(source: Array, start: int, end: int) -> list[tuple[int, int]]:
    """Return the pieces of the padding in which sources go up by 1, go down by 1, or are the same."""
    found = []
    for low, high in ((0, start), (end, len(source))):
        first = low
        while first < high:
            step = source[first + 1] - source[first] if first + 1 < high else 0
            last = first + 1
            while abs(step) <= 1 and last < high and source[last] - source[last - 1] == step:
                last += 1
            found.append((first, last))
            first = last
    return found


@gradient("Tile")
def tile(of: Backward) -> Parts:
    """Sum over the repetitions."""
    x, repeats = of.input(0), [int(each) for each in of.known_input(1).reshape(-1)]
    shape = [part for pair in zip(repeats, x.shape, strict=True) for part in pair]
    folded = of.reshape(of.gradient(), shape)
    kept = [part for extent in x.shape for part in (1, extent)]
    return (of.reshape(summed_to(of, folded, kept), x.shape),)


@gradient("DepthToSpace")
def to_space(of: Backward) -> Parts:
    """Move blocks of positions back into channels."""
    x, size = of.input(0), int(of.node.attrs["blocksize"])
    images, channels, height, width = x.shape
    folded = of.reshape(of.gradient(), (images, channels // size**2, height, size, width, size))
    order = (0, 3, 5, 1, 2, 4) if of.node.text("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return (of.reshape(of.transpose(folded, order), x.shape),)


RULES.register_all(
    {
        "Reshape Flatten Squeeze Unsqueeze": lambda of: (of.reshape(of.gradient(), of.input(0).shape),),
        "BitCast": lambda of: (of.gradient(),) if of.output().dtype == of.input(0).dtype else (),
        "SpaceToDepth": lambda of: (
            of("DepthToSpace", of.gradient(), blocksize=int(of.node.attrs["blocksize"]), mode="DCR"),
        ),
    }
)


def index_sum(of: GraphBuilder, dy: Value, indices: Value, shape: Sequence[int], axis: int) -> Value:
    """Return the gradient of the data of ``shape`` that ``Gather`` took slices of ``axis`` from, which counts from 0.

    In ``dy`` the axis is replaced by those of the indices, of which negative ones count from the end.
    """
    if is_empty(dy):
        return of.filled(0.0, dy.dtype, shape)
    before, after, count = prod(shape[:axis]), prod(shape[axis + 1 :]), prod(indices.shape)
    parts = of.transpose(of.reshape(dy, (before, count, after)), (1, 0, 2))
    parts = of.reshape(parts, (count, before * after))
    places = of.reshape(of.cast(indices, "int64"), (count, 1))
    zeros = of.filled(0.0, dy.dtype, (shape[axis], before * after))
    found = of("ScatterND", zeros, places, parts, reduction="add")
    found = of.transpose(of.reshape(found, (shape[axis], before, after)), (1, 0, 2))
    return of.reshape(found, shape)


def elements_sum(of: GraphBuilder, dy: Value, indices: Value, shape: Sequence[int], axis: int) -> Value:
    """Return the gradient of the data that ``GatherElements`` took elements of ``shape`` from along ``axis``."""
    zeros = of.filled(0.0, dy.dtype, shape)
    if is_empty(dy):
        return zeros
    return of("ScatterElements", zeros, of.cast(indices, "int64"), dy, axis=axis, reduction="add")


def embedding_weight(of: GraphBuilder, dy: Value, indices: Value, rows: int, padding_idx: int | None = None) -> Value:
    """Return the gradient of an embedding's table, (rows, width); the row ``padding_idx`` gets none."""
    width = dy.shape[-1]
    if padding_idx is not None and padding_idx >= 0:
        kept = of("Equal", indices, of.constant(padding_idx, indices.dtype))
        kept = of.reshape(kept, (*indices.shape, 1))
        dy = of("Where", kept, of.constant(0.0, dy.dtype), dy)
    return index_sum(of, dy, indices, (rows, width), 0)


def _gather_rule(back: Callable[..., Value]) -> Callable[[Backward], Parts]:
    """Return the rule that adds each part to where it was taken from along an axis."""

    def rule(of: Backward) -> Parts:
        shape = of.input(0).shape
        return (back(of, of.gradient(), of.input(1), shape, of.axis(0, len(shape))),)

    return rule


RULES.register_all({"Gather": _gather_rule(index_sum), "GatherElements": _gather_rule(elements_sum)})


@gradient("GatherND")
def gather_vectors(of: Backward) -> Parts:
    """Add each slice's part to where its vector of indices points."""
    x, places, dy = of.input(0), of.input(1), of.gradient()
    zeros = of.zeros(x)
    if is_empty(dy):
        return (zeros,)
    batches = places.shape[: int(of.node.attrs.get("batch_dims", 0))]
    for axis, extent in reversed(list(enumerate(batches))):  # their places are those of the indices
        own = np.arange(extent).reshape(*(extent if each == axis else 1 for each in range(len(places.shape))))
        places = of("Concat", of.expand(of.constant(own, "int64"), (*places.shape[:-1], 1)), places, axis=-1)
    return (of("ScatterND", zeros, places, dy, reduction="add"),)


@gradient("TopK")
def greatest_elements(of: Backward) -> Parts:
    """Add each element's part to where it stood."""
    shape = of.input(0).shape
    places = of.outputs[1]
    if places is None:
        places = of.several("TopK", 2, of.input(0), of.input(1), **of.node.attrs)[1]
    return (elements_sum(of, of.gradient(), places, shape, of.axis(-1, len(shape))),)


@gradient("ScatterElements", "ScatterND")
def scatter(of: Backward) -> Parts:
    """Take back the updates written, added, multiplied or compared; elements written over get nothing."""
    x, places, updates, dy = of.input(0), of.input(1), of.input(2), of.gradient()
    if is_empty(updates):
        return dy, None, of.filled(0.0, x.dtype, updates.shape)
    how = of.node.text("reduction", "none")
    if how == "add":
        return dy, None, _gathered(of, dy)
    if how == "mul":
        return _of_product(of)
    if how in ("max", "min"):
        own, other = (of("Equal", *each) for each in ((x, of.output()), (updates, _gathered(of, of.output()))))
        own, other = (of.cast(each, x.dtype) for each in (own, other))
        share = of("Div", dy, of("Max", _scattered(of, own, other, "add"), of.constant(1.0, x.dtype)))
        return of("Mul", own, share), None, of("Mul", other, _gathered(of, share))
    data = _scattered(of, dy, of.filled(0.0, x.dtype, updates.shape)) if of.wants(0) else None
    back = _gathered(of, dy)
    if of.wants(2) and not _is_distinct(of, of.axis(0, len(x.shape))):
        back = of("Where", _is_last(of, places, updates), back, of.constant(0.0, x.dtype))
    return data, None, back


def _scattered(of: Backward, data: Value, updates: Value, how: str = "none") -> Value:
    """Return other data with other updates at the same places."""
    attrs: dict[str, Any] = {"axis": of.axis(0, len(data.shape))} if of.node.op_type == "ScatterElements" else {}
    return of(of.node.op_type, data, of.input(1), updates, reduction=how, **attrs)


def _gathered(of: Backward, data: Value) -> Value:
    """Return the elements of the data at the places of the updates."""
    if of.node.op_type == "ScatterElements":
        return of("GatherElements", data, of.input(1), axis=of.axis(0, len(data.shape)))
    return of("GatherND", data, of.input(1))


def _is_last(of: Backward, places: Value, updates: Value) -> Value:
    """Return a mask of the updates that nothing was written over: their numbers are written and read again."""
    shape = updates.shape
    if of.node.op_type == "ScatterND":  # a row has one number
        rows = len(places.shape) - 1
        shape = (*shape[:rows], *(1 for _ in shape[rows:]))
    numbers = np.arange(prod(shape)).reshape(shape)
    own = of.expand(of.constant(numbers, "int64"), updates.shape)
    return of("Equal", _gathered(of, _scattered(of, of.filled(0, "int64", of.input(0).shape), own)), own)


def _of_product(of: Backward) -> Parts:
    """Return the gradients of data that is multiplied by updates: each factor gets the product of the others.

    Of factors that are 0 one alone gets something: it is left out of a product of its own.
    """
    x, updates, dy = of.input(0), of.input(2), of.gradient()
    zero, one = (of.constant(each, x.dtype) for each in (0.0, 1.0))
    no_x, no_update = of("Equal", x, zero), of("Equal", updates, zero)
    factor = of("Where", no_x, one, x)
    data = of("Div", of("Mul", dy, _scattered(of, factor, updates, "mul")), factor)
    counts = _scattered(of, of.zeros(x), of.cast(no_update, x.dtype), "add")
    alone = of("And", no_update, of("Equal", _gathered(of, counts), one))
    rest = of("Mul", dy, _scattered(of, x, of("Where", alone, one, updates), "mul"))
    shared = of("Div", _gathered(of, of("Mul", dy, of.output())), of("Where", no_update, one, updates))
    return data, None, of("Where", alone, _gathered(of, rest), shared)


def _is_distinct(of: Backward, axis: int) -> bool:
    """Return whether indices are known, and no two the same."""
    known, shape = of.known(of.input(1)), of.input(0).shape
    if known is None:
        return False
    if of.node.op_type == "ScatterElements":
        rows = (known % shape[axis]).swapaxes(axis, -1).reshape(-1, known.shape[axis])
        return all(len(set(row)) == len(row) for row in rows.tolist())
    rows = (known % shape[: known.shape[-1]]).reshape(-1, known.shape[-1])
    return len(np.unique(rows, axis=0)) == len(rows)
