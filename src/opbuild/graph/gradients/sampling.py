"""Gradients of sampling of images, and of normalisation by neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from math import prod

import numpy as np

from opbuild.graph.gradients.registry import FORMULAS, Backward, Parts, Term, gradient, is_empty
from opbuild.graph.graph_builder import GraphBuilder, Value
from opbuild.graph.tables import axes_of, is_plain, neighbours, way_of
from opbuild.graph.types import Array
from opbuild.platform.records import NamedTuple

CUBIC = -0.75
"""The coefficient of GridSample's cubic interpolation."""


class Tap(NamedTuple):
    """A neighbour of each place along one axis.

    Attributes:
        place: Its position, int64.
        weight: How much it counts.
        slope: How the weight grows with the place; None where it does not.
    """

    place: Term
    weight: Term
    slope: Term | None = None


@gradient("GridSample")
def grid_sample(of: Backward) -> Parts:
    """Differentiate an image read at a grid's places: by the image, and by the places."""
    x, grid, dy = of.input(0), of.input(1), of.gradient()
    if is_empty(x, grid):
        return tuple(of.zeros(each) for each in (x, grid))
    (images, channels), size, places = x.shape[:2], x.shape[2:], prod(grid.shape[1:-1])
    rank = len(size)
    points = of.reshape(of.cast(grid, x.dtype), (images, places, rank))
    taps, scales = [], []
    for number, extent in enumerate(size):
        last = rank - 1 - number  # the innermost dimension comes first
        along = of.reshape(of.part(points, 2, last, last + 1), (images, places))
        own, scale = _grid_taps(of, Term(of, along), extent)
        taps.append(own)
        scales.append(scale)
    rows = of.transpose(of.reshape(dy, (images, channels, places)), (0, 2, 1))
    starts = of.constant(np.arange(images)[:, None] * prod(size), "int64")
    found = _rows_of_image(of, x)
    updates, indices, slopes = [], [], [of.filled(0.0, x.dtype, (images, places))] * rank
    for chosen in product(*taps):
        index = _flat_index(of, [tap.place for tap in chosen], size, starts)
        weights = [tap.weight for tap in chosen]
        if of.wants(0):
            updates.append(_weighted(of, rows, reduce(Term.__mul__, weights)))
            indices.append(index)
        if of.wants(1):
            seen = of.sum(of("Mul", rows, of("Gather", found, index, axis=0, unchecked=1)), (2,))
            for axis, tap in enumerate(chosen):
                if tap.slope is not None:
                    factors = [*weights[:axis], tap.slope, *weights[axis + 1 :]]
                    slopes[axis] = of("Add", slopes[axis], (Term(of, seen) * reduce(Term.__mul__, factors)).value)
    image = _image_of_rows(of, updates, indices, x.shape) if of.wants(0) else None
    if not of.wants(1):
        return (image,)
    scaled = [of("Mul", slope, scale) for slope, scale in zip(slopes, scales, strict=True)][::-1]
    joined = of("Concat", *(of.reshape(each, (images, places, 1)) for each in scaled), axis=2)
    return image, of.cast(of.reshape(joined, grid.shape), grid.dtype)


def _grid_taps(of: Backward, point: Term, extent: int) -> tuple[list[Tap], Value]:
    """Return the neighbours of points from -1 to 1 along an axis, and how a pixel's place grows with a point."""
    aligned, padding = of.flag("align_corners"), of.node.text("padding_mode", "zeros")
    mode = of.node.text("mode", "linear").removeprefix("bi")
    factor = (extent - 1) / 2 if aligned else extent / 2
    place = (point + 1.0) * factor if aligned else (point + 1.0) * factor - 0.5
    one, scale = Term(of, of.filled(1.0, place.value.dtype, place.value.shape)), point.operand(factor)
    if padding != "zeros" and mode != "cubic":  # nothing flows into places that are moved, as torch has it
        seen = place if padding == "border" else _mirrored(of, place, extent)
        below = FORMULAS.where(FORMULAS.less(seen, float(extent - 1)), one * factor, 0.0)
        scale = FORMULAS.where(FORMULAS.greater(seen, 0.0), below, 0.0).value
        if padding == "border" or mode == "nearest":
            place = FORMULAS.clip(seen, 0.0, float(extent - 1))
    if mode == "nearest":
        return [_tap_inside(of, FORMULAS.round(place), one, None, extent)], scale
    low = FORMULAS.floor(place)
    part = place - low
    if mode == "linear":
        parts = [(low, 1.0 - part, -one), (low + 1.0, part, one)]
    elif mode == "cubic":
        parts = [(low + float(step), *_cubic(part - float(step))) for step in (-1, 0, 1, 2)]
    else:
        of.refuse(f"its mode is {mode}")
    return [_tap_inside(of, *each, extent) for each in parts], scale


def _cubic(offset: Term) -> tuple[Term, Term]:
    """Return the weight of a neighbour at a signed distance, and its slope: Keys' cubic convolution."""
    d, a = FORMULAS.abs(offset), CUBIC
    near = ((a + 2) * d - (a + 3)) * FORMULAS.square(d) + 1.0
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    near_slope = (3 * (a + 2) * d - 2 * (a + 3)) * d
    far_slope = (3 * a * d - 10 * a) * d + 8 * a
    is_near = FORMULAS.less_equal(d, 1.0)
    return FORMULAS.where(is_near, near, far), FORMULAS.where(is_near, near_slope, far_slope) * FORMULAS.sign(offset)


def _tap_inside(of: Backward, place: Term, weight: Term, slope: Term | None, extent: int) -> Tap:
    """Return a neighbour inside the image; one outside counts nothing, or is that of the border or its mirror."""
    padding = of.node.text("padding_mode", "zeros")
    if padding == "reflection":
        place = _mirrored(of, place, extent)
    elif padding == "zeros":
        weight = _masked_inside(place, 0.0, extent - 1, weight)
        slope = None if slope is None else _masked_inside(place, 0.0, extent - 1, slope)
    return Tap(_position(place, extent), weight, slope)


def _masked_inside(place: Term, low: float, high: float, value: Term) -> Term:
    """Return a value, 0 where a place is outside."""
    kept = FORMULAS.where(FORMULAS.less(place, low), 0.0, value)
    return FORMULAS.where(FORMULAS.greater(place, float(high)), 0.0, kept)


def _mirrored(of: Backward, place: Term, extent: int) -> Term:
    """Return places mirrored at the outermost pixels' centres, or at their outer edges where corners do not align."""
    low, span = (0.0, max(extent - 1, 1)) if of.flag("align_corners") else (-0.5, extent)
    along = FORMULAS.abs(place - low)
    turns = FORMULAS.floor(along / float(span))
    rest = along - turns * float(span)
    is_odd = FORMULAS.greater(turns - FORMULAS.floor(turns / 2.0) * 2.0, 0.0)
    return FORMULAS.where(is_odd, float(span) - rest, rest) + low


def _position(place: Term, extent: int) -> Term:
    return Term(place.of, place.of.cast(FORMULAS.clip(place, 0.0, float(extent - 1)).value, "int64"))


# -- rows -------------------------------------------------------------------------------------------------------------


def _rows_of_image(of: GraphBuilder, x: Value) -> Value:
    """Return the pixels of ``(N, C, ...)`` as rows of all channels, ``(N * ..., C)``."""
    images, channels, pixels = *x.shape[:2], prod(x.shape[2:])
    rows = of.transpose(of.reshape(x, (images, channels, pixels)), (0, 2, 1))
    return of.reshape(rows, (images * pixels, channels))


def _flat_index(of: GraphBuilder, places: Sequence[Term], size: Sequence[int], starts: Value) -> Value:
    """Return the rows of pixels: their places along each axis, behind where their image begins."""
    index = reduce(lambda index, axis: index * axis[1] + axis[0], zip(places[1:], size[1:], strict=True), places[0])
    return of("Add", index.value, starts)


def _weighted(of: GraphBuilder, rows: Value, weight: Term) -> Value:
    return of("Mul", rows, of.reshape(weight.value, (*weight.value.shape, 1)))


def _image_of_rows(of: GraphBuilder, updates: Sequence[Value], indices: Sequence[Value], shape: Sequence[int]) -> Value:
    """Return an image of ``(N, C, ...)`` that is the sum of rows at some indices."""
    images, channels, pixels = shape[0], shape[1], prod(shape[2:])
    rows = [of.reshape(each, (prod(each.shape[:-1]), channels)) for each in updates]
    places = [of.reshape(each, (prod(each.shape), 1)) for each in indices]
    joined = [of("Concat", *each, axis=0) if len(each) > 1 else each[0] for each in (rows, places)]
    zeros = of.filled(0.0, rows[0].dtype, (images * pixels, channels))
    found = of("ScatterND", zeros, joined[1], joined[0], reduction="add", unchecked=1)
    return of.reshape(of.transpose(of.reshape(found, (images, pixels, channels)), (0, 2, 1)), shape)


# -- regions ----------------------------------------------------------------------------------------------------------


@gradient("RoiAlign")
def regions(of: Backward) -> Parts:
    """Differentiate bins of regions by the image; into the regions' corners nothing flows, as in torchvision."""
    x, rois, dy = of.input(0), of.input(1), of.gradient()
    if not of.wants(0):
        return ()
    samples = int(of.node.attrs.get("sampling_ratio", 0))
    if samples < 1:
        of.refuse("how many samples a bin has is known only at run time")
    if is_empty(x, dy):
        return (of.zeros(x),)
    (count, channels, *bins), size = dy.shape, x.shape[2:]
    taps = [_region_taps(of, rois, axis, size[1 - axis], bins[1 - axis], samples) for axis in (1, 0)]
    grid = (count, bins[0], samples, bins[1], samples)
    image = of.reshape(of.in_range(of.cast(of.input(2), "int64"), x.shape[0]), (count, 1, 1))
    starts = of("Mul", image, of.constant(prod(size), "int64"))
    shapes = [(count, bins[0] * samples, 1), (count, 1, bins[1] * samples)]
    indices, weights = [], []
    for chosen in product(*taps):
        pairs = list(zip(chosen, shapes, strict=True))
        places = [tap.place.reshape(shape) for tap, shape in pairs]
        factors = [tap.weight.reshape(shape) for tap, shape in pairs]
        indices.append(_flat_index(of, places, size, starts))
        weights.append((factors[0] * factors[1]).reshape(grid))
    rows = of.reshape(of.transpose(dy, (0, 2, 3, 1)), (count, bins[0], 1, bins[1], 1, channels))
    if of.node.text("mode", "avg") == "avg":
        shared = of("Div", rows, of.constant(samples**2, x.dtype))
        updates = [_weighted(of, shared, weight) for weight in weights]
    else:
        updates = _greatest(of, rows, indices, weights, (*grid, channels))
    return (_image_of_rows(of, [of.expand(each, (*grid, channels)) for each in updates], indices, x.shape),)


def _region_taps(of: Backward, rois: Value, axis: int, extent: int, bins: int, samples: int) -> list[Tap]:
    """Return the two neighbours of each sample along an axis ``(regions, bins * samples)``."""
    half = of.node.text("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    scale = of.number("spatial_scale", 1.0)
    start, end = (Term(of, of.part(rois, 1, at, at + 1)) * scale for at in (axis, axis + 2))
    if half:
        start, end = start - 0.5, end - 0.5
    length = end - start if half else FORMULAS.max(end - start, 1.0)
    each = np.arange(bins * samples)
    within = of.constant((each // samples + (each % samples + 0.5) / samples)[None], rois.dtype)
    place = start + length * (1 / bins) * Term(of, within)
    limited = FORMULAS.clip(place, 0.0, float(extent - 1))
    low = FORMULAS.floor(limited)
    part = limited - low
    near, far = _position(low, extent), _masked_inside(place, -1.0, extent, 1.0 - part)
    return [Tap(near, far), Tap(_position(low + 1.0, extent), _masked_inside(place, -1.0, extent, part))]


def _greatest(
    of: Backward, rows: Value, indices: Sequence[Value], weights: Sequence[Term], shape: Sequence[int]
) -> list[Value]:
    """Return each pixel's part where a bin is the greatest of all pixels times their weights; equal ones share."""
    x = of.input(0)
    image = _rows_of_image(of, x)
    seen = [of.reshape(of("Gather", image, index, axis=0, unchecked=1), shape) for index in indices]
    products = [_weighted(of, value, weight) for value, weight in zip(seen, weights, strict=True)]
    # Computed again: weights that were computed elsewhere may be rounded otherwise.
    greatest = of("ReduceMax", of("Max", *products), of.ints(2, 4), keepdims=1)
    hits = [of.cast(of("Equal", each, greatest), x.dtype) for each in products]
    share = of("Div", rows, of.sum(of("Sum", *hits), (2, 4), keepdims=True))
    return [_weighted(of, of("Mul", hit, share), weight) for hit, weight in zip(hits, weights, strict=True)]


@gradient("Resize", "Upsample")
def resampled(of: Backward) -> Parts:
    """Give each element its shares of the results it counted in, axis by axis: a product with the turned weights."""
    x, found = of.input(0), of.gradient()
    if not is_plain(of.node):
        of.refuse("it takes regions of its data")
    if is_empty(found):
        return (of.zeros(x),)
    place = 1 if of.node.op_type == "Upsample" else 2
    scales, sizes = (_numbers(of, place), _numbers(of, place + 1))
    for axis in axes_of(of.node, x.shape, found.shape, scales, sizes):
        places, weights = neighbours(way_of(of.node), axis)
        table = np.zeros((axis.wanted, axis.extent))
        np.add.at(table, (np.arange(axis.wanted)[:, None], places), weights)
        found = _axis_product(of, found, table, axis.index)
    return (found,)


@gradient("LRN")
def local_response(of: Backward) -> Parts:
    """Differentiate ``x / s ** beta``, where ``s`` has the mean of the squares of the neighbouring channels."""
    x, dy = of.input(0), of.gradient()
    if is_empty(x):
        return (dy,)
    size, alpha = int(of.node.attrs["size"]), of.number("alpha", 1e-4)
    beta, bias = of.number("beta", 0.75), of.number("bias", 1.0)
    distance = np.arange(x.shape[1])[:, None] - np.arange(x.shape[1])
    table = ((distance <= size // 2) & (-distance <= (size - 1) // 2)).astype(np.float32)

    def scaled(value: Value, by: float) -> Value:
        return of("Mul", value, of.constant(by, x.dtype))

    squares = _axis_product(of, of("Mul", x, x), table, 1)
    base = of("Add", scaled(squares, alpha / size), of.constant(bias, x.dtype))
    own = of("Mul", dy, of("Pow", base, of.constant(-beta, x.dtype)))
    shares = _axis_product(of, of("Div", of("Mul", own, x), base), table.T, 1)
    return (of("Sub", own, scaled(of("Mul", x, shares), 2 * alpha * beta / size)),)


def _numbers(of: Backward, index: int) -> list[float] | None:
    """Return an input of numbers; None if it is absent or empty."""
    if of.optional(index) is None:
        return None
    return [float(each) for each in of.known_input(index).reshape(-1)] or None


def _axis_product(of: GraphBuilder, value: Value, table: Array, axis: int) -> Value:
    """Return the products of an axis with a table ``(extent before, extent behind)``."""
    last = len(value.shape) - 1
    order = [*(each for each in range(last + 1) if each != axis), axis]
    turned = of.transpose(value, order)
    found = of("MatMul", turned, of.constant(np.ascontiguousarray(table), value.dtype))
    return of.transpose(found, [int(each) for each in np.argsort(order)])
