"""Triangles, one-hot vectors and other choices by place: comparisons of indices, and gathers and scatters of rows."""

from __future__ import annotations

from math import prod

import numpy as np

from opbuild.graph.extents import is_open
from opbuild.graph.graph_builder import Value
from opbuild.graph.passes.composite import REWRITES
from opbuild.graph.passes.rewriter import KeptError, PassBuilder
from opbuild.graph.symbolic_numbers import quotient
from opbuild.graph.types import TABLE


@REWRITES.register("Trilu")
def _triangle(of: PassBuilder) -> None:
    """Trilu: an element stays where its column is not below (above) its row by more than k."""
    x, dtype = of.input(0), of.input(0).dtype
    rows, columns = of.types[x].shape[-2:]
    down, across = _places(of, rows, 2), of.counted(0, columns)
    if of.has(1):
        down = of("Add", down, of.reshape(of.input(1), (1, 1)))
    kept = of("GreaterOrEqual" if of.attr("upper", 1) else "LessOrEqual", across, down)
    of("Where", kept, x, of.constant(0, dtype), output=of.outputs[0])


@REWRITES.register("EyeLike")
def _eye(of: PassBuilder) -> None:
    """EyeLike: only the input's shape counts."""
    type_ = of.types[of.outputs[0]]
    (rows, columns), above = type_.shape, int(of.attr("k", 0))
    if is_open(type_.shape):
        attrs = {"table": "diagonal", "arguments": (rows, columns, above)}
        of.scope.nodes.append(of.node.with_(op_type=TABLE, domain="opbuild", inputs=(), attrs=attrs, proto=None))
    else:
        of.constants[of.outputs[0]] = np.eye(rows, columns, above, np.dtype(type_.dtype))


@REWRITES.register("OneHot")
def _one_hot(of: PassBuilder) -> None:
    """OneHot: indices, negative ones from the end, beside all places along a new axis."""
    indices, _, values = of.inputs
    shape = of.types[of.outputs[0]].shape
    axis = int(of.attr("axis", -1)) % len(shape)
    depth = shape[axis]
    if of.types[indices].dtype != "int64":
        indices = of("Cast", indices, to="int64")
    column = of.reshape(indices, (*shape[:axis], 1, *shape[axis + 1 :]))
    behind = of("Add", column, of.number(depth))
    place = of("Where", of("Less", column, of.constant(0, "int64")), behind, column)
    chosen = of("Equal", place, _places(of, depth, len(shape) - axis))
    off, on = (of("Gather", values, of.integers(index), axis=0) for index in (0, 1))
    of("Where", chosen, on, off, output=of.outputs[0])


@REWRITES.register("Hardmax")
def _hardmax(of: PassBuilder) -> None:
    """Hardmax: 1 at the first of the greatest elements."""
    type_ = of.input(0).type
    axis = int(of.attr("axis", -1)) % len(type_.shape)
    if not type_.size:
        raise KeptError
    greatest = of("ArgMax", of.input(0), axis=axis, keepdims=1)
    chosen = of("Equal", greatest, _places(of, type_.shape[axis], len(type_.shape) - axis))
    of("Cast", chosen, output=of.outputs[0], to=type_.dtype)


def _places(of: PassBuilder, count: int, rank: int) -> Value:
    """Return the numbers 0, 1, ... along the first of ``rank`` dimensions."""
    return of.reshape(of.counted(0, count), (count, *(1,) * (rank - 1)))


@REWRITES.register("ReverseSequence")
def _reverse_sequence(of: PassBuilder) -> None:
    """ReverseSequence: rows are gathered from the other end of the part that counts."""
    x, lengths = of.inputs
    shape, batch = of.types[x].shape, int(of.attr("batch_axis", 1))
    order = (batch, 1 - batch, *range(2, len(shape)))
    count, steps = shape[batch], shape[1 - batch]
    if not prod(shape):
        raise KeptError
    places = of.counted(0, steps)
    column = of.reshape(lengths, (count, 1))
    from_the_end = of("Sub", of("Sub", column, of.constant(1, "int64")), places)
    chosen = of("Where", of("Less", places, column), from_the_end, places)
    rows = x if batch == 0 else of.transpose(x, order)
    index = of.reshape(chosen, (count, steps, 1))
    found = of("GatherND", rows, index, output="" if batch else of.outputs[0], batch_dims=1)
    if batch:
        of.transpose(found, order, of.outputs[0])


@REWRITES.register("TensorScatter")
def _tensor_scatter(of: PassBuilder) -> None:
    """TensorScatter: rows behind ``axis`` are written one after the other from a place of their own in each batch.

    All axes before are one with it, so that a place beyond the end must be made one that no row has.
    """
    cache, update = of.inputs[:2]
    shape, short = of.types[cache].shape, of.types[update].shape
    axis = int(of.attr("axis", -2)) % len(shape)
    outer, extent, row = shape[:axis], shape[axis], prod(shape[axis + 1 :])
    if not axis or not prod(shape) or not prod(short):
        raise KeptError
    steps = of.counted(0, short[axis])
    first = of.reshape(of.input(2), (-1, 1)) if of.has(2) else of.integers([[0]])
    place = of("Add", first, steps)
    beyond = of.number(prod(outer) * extent)
    if of.node.text("mode", "linear") == "circular":
        place = of("Mod", place, of.number(extent))
    else:
        place = of("Where", of("Less", place, of.number(extent)), place, beyond)
    batches = of.types[place].shape[0]
    place = of.reshape(place, (batches, *(1,) * (axis - 1), short[axis]))
    starts = of("Mul", of.counted(0, prod(outer)), of.number(extent))
    starts = of.reshape(starts, (*outer, 1))
    index = of.reshape(of("Add", place, starts), (-1, 1))
    whole = of.reshape(cache, (prod(outer) * extent, row))
    rows = of.reshape(update, (prod(outer) * short[axis], row))
    of.reshape(of("ScatterND", whole, index, rows), shape, of.outputs[0])


@REWRITES.register("CenterCropPad")
def _center_crop_pad(of: PassBuilder) -> None:
    """CenterCropPad: a Pad, negative on the axes that shrink; a Slice if none surely grows."""
    x, target = of.input(0), of.types[of.outputs[0]].shape
    more = [want - have for have, want in zip(x.shape, target, strict=True)]
    before = [quotient(each, 2) for each in more]
    after = [each - front for each, front in zip(more, before, strict=True)]
    if not is_open(more) and max(more, default=0) <= 0:
        starts, ends = [-front for front in before], [want - front for want, front in zip(target, before, strict=True)]
        of("Slice", x, of.integers(starts), of.integers(ends), output=of.outputs[0])
        return
    of("Pad", x, of.integers([*before, *after]), output=of.outputs[0], mode="constant")


@REWRITES.register("Dropout")
def _dropout(of: PassBuilder) -> None:
    """Dropout at inference, with its mask: everything stays."""
    if not any(of.outputs[1:]) or any(of.known_integers(2) or ()):
        raise KeptError
    of("Identity", of.input(0), output=of.outputs[0])
    of.constants[of.outputs[1]] = np.broadcast_to(np.True_, of.types[of.outputs[1]].shape)
