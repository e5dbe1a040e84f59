"""Shape rules of operators that move elements without computing: reshaping, slicing, joining, padding."""

from __future__ import annotations

from math import prod

import numpy as np

from opbuild.graph.extents import SymbolicExtent
from opbuild.graph.shape_rules import RULES, Shape, ShapeCall, Types, broadcast, like_first, rule, same_dtype
from opbuild.graph.symbolic_numbers import greater, lesser, real, scaled, truncated
from opbuild.graph.tables import aspect_ratio
from opbuild.graph.types import TensorType
from opbuild.text.plural import counted


@rule("Reshape")
def reshape(call: ShapeCall) -> Types:
    """A new shape with 0 (keep) and -1 (the rest)."""
    x, wanted = call.type(0), list(call.ints(1))
    if not call.attr("allowzero", 0):
        for index, extent in enumerate(wanted):
            if extent == 0:
                if index >= len(x.shape):
                    call.fail(f"shape {wanted} keeps dimension {index}, which the input does not have")
                wanted[index] = x.shape[index]
    return (TensorType(x.dtype, _fill(call, x.size, wanted)),)


def _fill(call: ShapeCall, size: int, wanted: list[int]) -> Shape:
    known = prod(extent for extent in wanted if extent != -1)
    if wanted.count(-1) > 1 or any(extent < -1 for extent in wanted):
        call.fail(f"shape {wanted} is not valid", "use at most one -1")
    if -1 in wanted:
        if not known or size % known:
            call.fail(f"{counted(size, 'element')} cannot be reshaped to {wanted}")
        wanted[wanted.index(-1)] = size // known
    if prod(wanted) != size:
        call.fail(f"{counted(size, 'element')} cannot be reshaped to {wanted}")
    return tuple(wanted)


@rule("Flatten")
def flatten(call: ShapeCall) -> Types:
    """A matrix: dimensions before ``axis`` by the others."""
    x, axis = call.type(0), int(call.attr("axis", 1))
    rank = len(x.shape)
    if not -rank <= axis <= rank:
        call.fail(f"axis {axis} is outside a value of rank {rank}")
    axis = axis + rank if axis < 0 else axis
    return (TensorType(x.dtype, (prod(x.shape[:axis]), prod(x.shape[axis:]))),)


@rule("Squeeze")
def squeeze(call: ShapeCall) -> Types:
    """Without the dimensions of extent 1 that the second input names, or without any."""
    x = call.shape(0)
    if call.has(1):
        axes = call.axes(call.ints(1), len(x))
        if any(x[axis] != 1 for axis in axes):
            call.fail(f"axes {list(axes)} have a dimension other than 1")
    else:
        axes = tuple(index for index, extent in enumerate(x) if extent == 1)
    return (TensorType(call.dtype(0), tuple(extent for index, extent in enumerate(x) if index not in axes)),)


@rule("Unsqueeze")
def unsqueeze(call: ShapeCall) -> Types:
    """With dimensions of extent 1 where the second input says."""
    x, given = call.shape(0), call.ints(1)
    axes = call.axes(given, len(x) + len(given))
    rest = iter(x)
    return (TensorType(call.dtype(0), tuple(1 if i in axes else next(rest) for i in range(len(x) + len(given)))),)


@rule("Transpose")
def transpose(call: ShapeCall) -> Types:
    """Dimensions in another order; reversed if none is given."""
    x = call.shape(0)
    order = tuple(call.attr("perm", ()) or range(len(x) - 1, -1, -1))
    if sorted(order) != list(range(len(x))):
        call.fail(f"perm {list(order)} is not an order of {counted(len(x), 'dimension')}")
    return (TensorType(call.dtype(0), tuple(x[axis] for axis in order)),)


@rule("Concat")
def concat(call: ShapeCall) -> Types:
    """Inputs joined along one axis."""
    dtype = same_dtype(call)
    shapes = [item.shape for item in call.types if item is not None]
    axis = call.axis(int(call.attr("axis", 0)), len(shapes[0]))
    for shape in shapes:
        if len(shape) != len(shapes[0]) or any(
            a != b for i, (a, b) in enumerate(zip(shape, shapes[0], strict=True)) if i != axis
        ):
            call.fail(f"shapes {list(shapes[0])} and {list(shape)} differ outside axis {axis}")
    first = shapes[0]
    return (TensorType(dtype, (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])),)


@rule("Split")
def split(call: ShapeCall) -> Types:
    """Pieces along one axis, of the given extents or equal ones."""
    x, count = call.shape(0), len(call.node.outputs)
    axis = call.axis(int(call.attr("axis", 0)), len(x))
    if call.has(1):
        sizes = call.ints(1)
    else:
        if int(call.attr("num_outputs", count)) != count:
            call.fail(f"num_outputs is {call.attr('num_outputs', count)}, and it has {counted(count, 'output')}")
        piece = -(-x[axis] // count)
        sizes = tuple(max(min(piece, x[axis] - index * piece), 0) for index in range(count))
    if sum(sizes) != x[axis] or len(sizes) != len(call.node.outputs) or min(sizes, default=0) < 0:
        call.fail(f"pieces of {list(sizes)} do not make up {x[axis]} in {counted(len(call.node.outputs), 'output')}")
    return tuple(TensorType(call.dtype(0), (*x[:axis], size, *x[axis + 1 :])) for size in sizes)


def slice_ranges(call: ShapeCall) -> list[tuple[int, int, int, int]]:
    """Return ``(axis, start, step, count)`` of each sliced axis of a Slice node, bounds clamped."""
    x = call.shape(0)
    starts, ends = call.ints(1), call.ints(2)
    given = call.ints(3) if call.has(3) else tuple(range(len(starts)))
    steps = call.ints(4) if call.has(4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(given) == len(steps):
        call.fail("starts, ends, axes and steps differ in length")
    found = []
    for axis, start, end, step in zip(call.axes(given, len(x)), starts, ends, steps, strict=True):
        if step == 0:
            call.fail("a step is 0")
        first, count = sliced(x[axis], start, end, step)
        found.append((axis, first, step, count))
    return found


def sliced(extent: int, start: int, end: int, step: int) -> tuple[int, int]:
    """Return the first position that a Slice takes of one axis, and how many it takes.

    The bounds are clamped as the operator's text says: with a negative step a start before the first element is the
    first, where Python's slices would be empty.
    """
    start, end = (bound + extent if bound < 0 else bound for bound in (start, end))
    least, most = (0, extent) if step > 0 else (-1, extent - 1)
    # Of a table of known length, bounds that are inside it at hand leave the number of elements what it is.
    lower, upper = (lesser, greater) if isinstance(extent, SymbolicExtent) else (min, max)
    first, last = lower(upper(start, 0), most), lower(upper(end, least), most)
    return first, upper(0, -((first - last) // step))


@rule("Slice")
def slice_(call: ShapeCall) -> Types:
    """Every step-th element between bounds, on some axes."""
    shape = list(call.shape(0))
    for axis, _, _, count in slice_ranges(call):
        shape[axis] = count
    return (TensorType(call.dtype(0), tuple(shape)),)


@rule("Pad")
def pad(call: ShapeCall) -> Types:
    """More elements (or fewer, for negative pads) before and after, on some axes."""
    x, pads = list(call.shape(0)), call.ints(1)
    axes = call.axes(call.ints(3), len(x)) if call.has(3) else tuple(range(len(x)))
    if len(pads) != 2 * len(axes):
        call.fail(f"{len(pads)} pads for {counted(len(axes), 'axis', 'axes')}; two for each are needed")
    for index, axis in enumerate(axes):
        x[axis] += pads[index] + pads[len(axes) + index]
    if any(extent < 0 for extent in x):
        call.fail(f"pads {list(pads)} remove more than there is")
    return (TensorType(call.dtype(0), tuple(x)),)


@rule("CenterCropPad")
def center_crop_pad(call: ShapeCall) -> Types:
    """The extents that the second input lists, on some axes."""
    x, wanted = list(call.shape(0)), call.ints(1)
    axes = call.axes(tuple(call.attr("axes", ())) or range(len(x)), len(x))
    if len(wanted) != len(axes):
        call.fail(f"{counted(len(wanted), 'extent')} for {counted(len(axes), 'axis', 'axes')}")
    if any(extent < 0 for extent in wanted):
        call.fail(f"the dimensions {list(wanted)} are not all positive")
    for axis, extent in zip(axes, wanted, strict=True):
        x[axis] = extent
    return (TensorType(call.dtype(0), tuple(x)),)


@rule("Gather")
def gather(call: ShapeCall) -> Types:
    """Slices along one axis, by index."""
    x = call.rank(0, least=1)
    axis = call.axis(int(call.attr("axis", 0)), len(x))
    return (TensorType(call.dtype(0), (*x[:axis], *call.shape(1), *x[axis + 1 :])),)


@rule("GatherElements")
def gather_elements(call: ShapeCall) -> Types:
    """One element for each index."""
    return (TensorType(call.dtype(0), indices_of_elements(call)),)


def indices_of_elements(call: ShapeCall) -> Shape:
    """Return the shape of the second input, which names elements of the first by their places but for one axis."""
    indices = call.shape(1)
    x = call.rank(0, len(indices))
    axis = call.axis(int(call.attr("axis", 0)), len(x))
    for place, (extent, most) in enumerate(zip(indices, x, strict=True)):
        if place != axis and extent > most:
            call.fail(f"there are {extent} indices in dimension {place}, which has {counted(most, 'element')}")
    return indices


@rule("GatherND")
def gather_nd(call: ShapeCall) -> Types:
    """Slices by index vectors."""
    x, indices, batch = call.rank(0, least=1), call.rank(1, least=1), int(call.attr("batch_dims", 0))
    if batch + indices[-1] > len(x) or x[:batch] != indices[:batch]:
        call.fail("the index vectors do not fit the data")
    return (TensorType(call.dtype(0), (*indices[:-1], *x[batch + indices[-1] :])),)


@rule("ScatterElements")
def scatter_elements(call: ShapeCall) -> Types:
    """The first input's type; each index has one update."""
    call.expect(2, indices_of_elements(call))
    return (call.type(0),)


@rule("ScatterND")
def scatter_nd(call: ShapeCall) -> Types:
    """The first input's type; each index vector has a slice of updates."""
    x, indices = call.rank(0, least=1), call.rank(1, least=1)
    if indices[-1] > len(x):
        call.fail("the index vectors do not fit the data")
    call.expect(2, (*indices[:-1], *x[indices[-1] :]))
    return (call.type(0),)


@rule("TensorScatter")
def tensor_scatter(call: ShapeCall) -> Types:
    """The first input's type; the update is as large, or shorter along the axis, and each batch has a place."""
    cache = call.rank(0, least=1)
    update, axis = call.rank(1, len(cache)), call.axis(int(call.attr("axis", -2)), len(cache))
    if update[axis] > cache[axis]:
        call.fail(f"the update has {counted(update[axis], 'element')} in dimension {axis}, the cache {cache[axis]}")
    call.expect(1, (*cache[:axis], update[axis], *cache[axis + 1 :]))
    call.expect(2, cache[:1])
    return (call.type(0),)


@rule("ReverseSequence")
def reverse_sequence(call: ShapeCall) -> Types:
    """The first input's type."""
    call.rank(0, least=2)
    batch, time = (int(call.attr(name, default)) for name, default in (("batch_axis", 1), ("time_axis", 0)))
    if sorted((batch, time)) != [0, 1]:
        call.fail(f"batch_axis {batch} and time_axis {time} are not 0 and 1")
    return (call.type(0),)


@rule("Tile")
def tile(call: ShapeCall) -> Types:
    """Each dimension repeated."""
    x, repeats = call.shape(0), call.ints(1)
    if len(repeats) != len(x):
        call.fail(f"{len(repeats)} repeats for a value of rank {len(x)}")
    return (TensorType(call.dtype(0), tuple(a * b for a, b in zip(x, repeats, strict=True))),)


@rule("DepthToSpace")
def depth_to_space(call: ShapeCall) -> Types:
    """Channels moved into space."""
    n, c, h, w = call.rank(0, 4)
    block = int(call.attr("blocksize", 1))
    if block < 1 or c % (block * block):
        call.fail(f"{c} channels do not divide by the block size {block} squared")
    return (TensorType(call.dtype(0), (n, c // (block * block), h * block, w * block)),)


@rule("SpaceToDepth")
def space_to_depth(call: ShapeCall) -> Types:
    """Space moved into channels."""
    n, c, h, w = call.rank(0, 4)
    block = int(call.attr("blocksize", 1))
    if block < 1 or h % block or w % block:
        call.fail(f"{h} by {w} does not divide by the block size {block}")
    return (TensorType(call.dtype(0), (n, c * block * block, h // block, w // block)),)


@rule("Resize")
def resize(call: ShapeCall) -> Types:
    """Extents from the scales or from the sizes, on some axes."""
    x = call.shape(0)
    axes = call.axes(tuple(call.attr("axes", ())) or range(len(x)), len(x))
    shape = list(x)
    by_scales, by_sizes = (call.has(place) and call.type(place).size > 0 for place in (2, 3))
    if by_scales and by_sizes:
        call.fail("it has both scales and sizes, of which one is to be given")
    if not by_scales and not call.has(3):
        call.fail("it has neither scales nor sizes")
    given = call.value(2).reshape(-1).tolist() if by_scales else call.ints(3)
    if len(given) != len(axes):
        call.fail(f"{counted(len(given), 'scale' if by_scales else 'extent')} for {counted(len(axes), 'axis', 'axes')}")
    new = [scaled(x[axis], scale) for axis, scale in zip(axes, given, strict=True)] if by_scales else list(given)
    policy = call.attr("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch" and call.has(3):
        ratio = aspect_ratio(policy, [(extent, x[axis]) for axis, extent in zip(axes, new, strict=True)])
        wholes = (real("multiply", real("float64", x[axis]), ratio) for axis in axes)
        new = [truncated(real("add", whole, np.float64(0.5))) for whole in wholes]
    for axis, extent in zip(axes, new, strict=True):
        shape[axis] = extent
    return (TensorType(call.dtype(0), tuple(shape)),)


RULES.register_all(
    {
        "CumSum CumProd": like_first,
        "Expand": lambda call: (TensorType(call.dtype(0), broadcast(call, (call.shape(0), call.ints(1)))),),
    }
)
RULES.register_all({"InRange": like_first}, domain="opbuild")
