"""Triangles, one-hot vectors and other choices by place: comparisons of indices, and gathers and scatters of rows."""

from __future__ import annotations

from math import prod

import numpy as np

from opbuild.graph.extents import is_open
from opbuild.graph.passes.composite.rewrite import (
    KeptError,
    Rewrite,
    counted,
    has_input,
    integers,
    known_integers,
    number,
    reshaped,
    scalar,
    transposed,
)
from opbuild.graph.passes.rewriter import Rewriter
from opbuild.graph.tables import diagonal
from opbuild.graph.types import TABLE, Node
from opbuild.graph.undecided import quotient


def _triangle(to: Rewriter, node: Node) -> None:
    """Trilu: an element stays where its column is not below (above) its row by more than k."""
    x, dtype = node.inputs[0], to.types[node.inputs[0]].dtype
    rows, columns = to.types[x].shape[-2:]
    down, across = _places(to, node, rows, 2), counted(to, node, 0, columns)
    if has_input(node, 1):
        down = to.add(node, "Add", (down, reshaped(to, node, node.inputs[1], (1, 1))))
    comparison = "GreaterOrEqual" if node.attrs.get("upper", 1) else "LessOrEqual"
    kept = to.add(node, comparison, (across, down))
    to.add(node, "Where", (kept, x, scalar(to, node, 0, dtype)), node.outputs[0])


def _eye(to: Rewriter, node: Node) -> None:
    """EyeLike: only the input's shape counts."""
    type_ = to.types[node.outputs[0]]
    (rows, columns), above = type_.shape, int(node.attrs.get("k", 0))
    if is_open(type_.shape):
        attrs = {"table": "diagonal", "arguments": (rows, columns, above)}
        to.nodes.append(node.with_(op_type=TABLE, domain="opbuild", inputs=(), attrs=attrs, proto=None))
    else:
        to.constants[node.outputs[0]] = diagonal(rows, columns, above, type_.dtype)


def _one_hot(to: Rewriter, node: Node) -> None:
    """OneHot: indices, negative ones from the end, beside all places along a new axis."""
    indices, _, values = node.inputs
    shape = to.types[node.outputs[0]].shape
    axis = int(node.attrs.get("axis", -1)) % len(shape)
    depth = shape[axis]
    if to.types[indices].dtype != "int64":
        indices = to.add(node, "Cast", (indices,), to="int64")
    column = reshaped(to, node, indices, (*shape[:axis], 1, *shape[axis + 1 :]))
    behind = to.add(node, "Add", (column, number(to, node, depth)))
    is_negative = to.add(node, "Less", (column, integers(to, node, 0)))
    place = to.add(node, "Where", (is_negative, behind, column))
    chosen = to.add(node, "Equal", (place, _places(to, node, depth, len(shape) - axis)))
    off, on = (to.add(node, "Gather", (values, integers(to, node, index)), axis=0) for index in (0, 1))
    to.add(node, "Where", (chosen, on, off), node.outputs[0])


def _hardmax(to: Rewriter, node: Node) -> None:
    """Hardmax: 1 at the first of the greatest elements."""
    type_ = to.types[node.inputs[0]]
    axis = int(node.attrs.get("axis", -1)) % len(type_.shape)
    if not type_.size:
        raise KeptError
    greatest = to.add(node, "ArgMax", (node.inputs[0],), axis=axis, keepdims=1)
    chosen = to.add(node, "Equal", (greatest, _places(to, node, type_.shape[axis], len(type_.shape) - axis)))
    to.add(node, "Cast", (chosen,), node.outputs[0], to=type_.dtype)


def _places(to: Rewriter, node: Node, count: int, rank: int) -> str:
    """Return the numbers 0, 1, ... along the first of ``rank`` dimensions."""
    return reshaped(to, node, counted(to, node, 0, count), (count, *(1,) * (rank - 1)))


def _reverse_sequence(to: Rewriter, node: Node) -> None:
    """ReverseSequence: rows are gathered from the other end of the part that counts."""
    x, lengths = node.inputs
    shape, batch = to.types[x].shape, int(node.attrs.get("batch_axis", 1))
    order = (batch, 1 - batch, *range(2, len(shape)))
    count, steps = shape[batch], shape[1 - batch]
    if not prod(shape):
        raise KeptError
    places = counted(to, node, 0, steps)
    column = reshaped(to, node, lengths, (count, 1))
    last = to.add(node, "Sub", (column, integers(to, node, 1)))
    from_the_end = to.add(node, "Sub", (last, places))
    counts = to.add(node, "Less", (places, column))
    chosen = to.add(node, "Where", (counts, from_the_end, places))
    rows = x if batch == 0 else transposed(to, node, x, order)
    index = reshaped(to, node, chosen, (count, steps, 1))
    if batch == 0:
        to.add(node, "GatherND", (rows, index), node.outputs[0], batch_dims=1)
    else:
        transposed(to, node, to.add(node, "GatherND", (rows, index), batch_dims=1), order, node.outputs[0])


def _tensor_scatter(to: Rewriter, node: Node) -> None:
    """TensorScatter: rows behind ``axis`` are written one after the other from a place of their own in each batch.

    All axes before are one with it, so that a place beyond the end must be made one that no row has.
    """
    cache, update = node.inputs[:2]
    shape, short = to.types[cache].shape, to.types[update].shape
    axis = int(node.attrs.get("axis", -2)) % len(shape)
    outer, extent, row = shape[:axis], shape[axis], prod(shape[axis + 1 :])
    if not axis or not prod(shape) or not prod(short):
        raise KeptError
    steps = counted(to, node, 0, short[axis])
    first = reshaped(to, node, node.inputs[2], (-1, 1)) if has_input(node, 2) else integers(to, node, [[0]])
    place = to.add(node, "Add", (first, steps))
    beyond = number(to, node, prod(outer) * extent)
    if node.text("mode", "linear") == "circular":
        place = to.add(node, "Mod", (place, number(to, node, extent)))
    else:
        place = to.add(node, "Where", (to.add(node, "Less", (place, number(to, node, extent))), place, beyond))
    batches = to.types[place].shape[0]
    place = reshaped(to, node, place, (batches, *(1,) * (axis - 1), short[axis]))
    starts = to.add(node, "Mul", (counted(to, node, 0, prod(outer)), number(to, node, extent)))
    starts = reshaped(to, node, starts, (*outer, 1))
    index = reshaped(to, node, to.add(node, "Add", (place, starts)), (-1, 1))
    whole = reshaped(to, node, cache, (prod(outer) * extent, row))
    rows = reshaped(to, node, update, (prod(outer) * short[axis], row))
    reshaped(to, node, to.add(node, "ScatterND", (whole, index, rows)), shape, node.outputs[0])


def _center_crop_pad(to: Rewriter, node: Node) -> None:
    """CenterCropPad: a Pad, negative on the axes that shrink; a Slice if none surely grows."""
    x, target = node.inputs[0], to.types[node.outputs[0]].shape
    more = [want - have for have, want in zip(to.types[x].shape, target, strict=True)]
    before = [quotient(each, 2) for each in more]
    after = [each - front for each, front in zip(more, before, strict=True)]
    if not is_open(more) and max(more, default=0) <= 0:
        starts, ends = [-front for front in before], [want - front for want, front in zip(target, before, strict=True)]
        to.add(node, "Slice", (x, integers(to, node, starts), integers(to, node, ends)), node.outputs[0])
        return
    to.add(node, "Pad", (x, integers(to, node, [*before, *after])), node.outputs[0], mode="constant")


def _dropout(to: Rewriter, node: Node) -> None:
    """Dropout at inference, with its mask: everything stays."""
    if not any(node.outputs[1:]):
        raise KeptError
    if has_input(node, 2) and any(known_integers(to, node, 2) or ()):
        raise KeptError
    to.add(node, "Identity", (node.inputs[0],), node.outputs[0])
    to.constants[node.outputs[1]] = np.broadcast_to(np.True_, to.types[node.outputs[1]].shape)


REWRITES: dict[str, Rewrite] = {
    "CenterCropPad": _center_crop_pad,
    "Dropout": _dropout,
    "EyeLike": _eye,
    "Hardmax": _hardmax,
    "OneHot": _one_hot,
    "ReverseSequence": _reverse_sequence,
    "TensorScatter": _tensor_scatter,
    "Trilu": _triangle,
}
