"""Gradients of movements of elements: they move back."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from opbuild.graph.gradients.broadcasting import is_empty, summed_to
from opbuild.graph.gradients.registry import RULES, Backward, gradient
from opbuild.graph.graph_builder import GraphBuilder, Value
from opbuild.graph.types import Array

Parts = Sequence[Value | None]


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
        return (of.filled(0.0, x.dtype, x.shape),)
    rank = len(x.shape)
    before, after, gaps, turned = [0] * rank, [0] * rank, [1] * rank, []
    for axis, start, step in _cuts(of):
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


def _cuts(of: Backward) -> list[tuple[int, int, int]]:
    """Return axis, first position and step of each axis that is cut."""
    rank, starts = len(of.input(0).shape), [int(each) for each in of.known_input(1).reshape(-1)]
    axes = of.known_input(3).reshape(-1) if of.optional(3) is not None else range(len(starts))
    steps = of.known_input(4).reshape(-1) if of.optional(4) is not None else [1] * len(starts)
    found = []
    for axis, start, step in zip(axes, starts, steps, strict=True):
        extent = of.input(0).shape[int(axis) % rank]
        first = start + extent if start < 0 else start
        most = extent - 1 if step < 0 else extent
        found.append((int(axis) % rank, min(max(first, 0), most), int(step)))
    return found


def spaced(of: GraphBuilder, x: Value, gaps: Sequence[int]) -> Value:
    """Return a tensor with zeros between its elements, as many as each axis's step leaves out."""
    for axis, gap in enumerate(gaps):
        count = x.shape[axis]
        if gap == 1 or count == 1:
            continue
        shape = (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :])
        wide = of(
            "Pad",
            of.reshape(x, shape),
            of.ints(*(0,) * (len(shape) + axis + 1), gap - 1, *(0,) * (len(shape) - axis - 2)),
        )
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
    inside = of("Pad", of.filled(0.0, x.dtype, x.shape), of.ints(*amounts), of.constant(1.0, x.dtype))
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
