"""Resampling in numpy: Resize by tables, GridSample by neighbours; ImageDecoder, by Pillow."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.dtypes import NARROW_FLOATS
from opbuild.errors import UnsupportedOperatorError
from opbuild.graph.indices import out_of_range, outside
from opbuild.graph.shape_rules import ShapeCall
from opbuild.graph.shape_rules_movement import resize
from opbuild.graph.tables import axes_of, cubic, neighbours, pixel_places, way_of
from opbuild.graph.types import Array, Node, TensorType

_CUBIC = -0.75
"""The coefficient of GridSample's cubic interpolation."""


@implements("Resize")
def _resize(node: Node, inputs: Any) -> Sequence[Array]:
    x, _, scales, sizes = (*inputs, None, None, None)[:4]
    types = [None if each is None else TensorType(str(each.dtype), each.shape) for each in inputs]
    (kind,) = resize(ShapeCall(node, types, inputs))
    factors, extents = (
        None if each is None or not each.size else [float(item) for item in each.reshape(-1)]
        for each in (scales, sizes)
    )
    found = x.astype(np.float32) if x.dtype.name in NARROW_FLOATS else x
    for axis in axes_of(node, x.shape, kind.shape, factors, extents):
        places, weights = neighbours(way_of(node), axis)
        taps = [np.take(found, places[:, tap], axis.index) for tap in range(places.shape[1])]
        if len(taps) == 1:
            found = taps[0]
            continue
        column = (-1, *(1 for _ in x.shape[axis.index + 1 :]))
        rounded = weights.astype(np.promote_types(found.dtype, np.float32))
        terms = [each * rounded[:, tap].reshape(column) for tap, each in enumerate(taps)]
        found = np.sum(terms, 0)
    return (_rounded(found, x.dtype),)


def _rounded(values: Array, kind: np.dtype[Any]) -> Array:
    """Return values in a type; integers are rounded, and stay in range."""
    if np.issubdtype(kind, np.integer) and np.issubdtype(values.dtype, np.floating):
        limits = np.iinfo(kind)
        values = np.clip(np.rint(values), limits.min, limits.max)
    return values.astype(kind, copy=False)


@implements("GridSample")
def _grid_sample(node: Node, inputs: Any) -> Sequence[Array]:
    x, grid = inputs
    wide = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
    aligned, padding = bool(node.attrs.get("align_corners", 0)), str(node.attrs.get("padding_mode", "zeros"))
    mode, size = str(node.attrs.get("mode", "linear")), x.shape[2:]
    taps = []
    for number, extent in enumerate(size):
        place = grid[..., len(size) - 1 - number].astype(wide.dtype)  # the innermost dimension comes first
        place = (place + 1) / 2 * (extent - 1) if aligned else ((place + 1) * extent - 1) / 2
        if padding == "border" and mode != "cubic":
            place = np.clip(place, 0, extent - 1)
        if padding == "reflection" and mode == "nearest":
            place = _mirrored(place, extent, aligned)
        taps.append([_places_inside(*tap, extent, aligned, padding) for tap in _neighbours(place, mode)])
    flat = wide.reshape(*x.shape[:2], prod(size))
    count = prod(grid.shape[1:-1])
    found = np.zeros((*x.shape[:2], count), wide.dtype)
    for chosen in product(*taps):
        index: Any = 0
        weight: Any = 1
        for (place, factor), extent in zip(chosen, size, strict=True):
            index, weight = index * extent + place, weight * factor
        found += np.take_along_axis(flat, index.reshape(len(x), 1, count), 2) * weight.reshape(len(x), 1, count)
    return (_rounded(found.reshape(*x.shape[:2], *grid.shape[1:-1]), x.dtype),)


def _neighbours(place: Array, mode: str) -> list[tuple[Array, Array]]:
    """Return the integer positions that count for each place, and how much."""
    if mode == "nearest":
        return [(np.rint(place), np.ones_like(place))]
    low = np.floor(place)
    part = place - low
    if mode == "linear":
        return [(low, 1 - part), (low + 1, part)]
    if mode != "cubic":
        raise ValueError(f"mode is {mode!r}, not linear, nearest or cubic")
    return [(low + step, cubic(np.abs(part - step), _CUBIC)) for step in (-1, 0, 1, 2)]


def _places_inside(place: Array, weight: Array, extent: int, aligned: bool, padding: str) -> tuple[Array, Array]:
    """Return positions inside the input; those outside count nothing, or are those of the border or its mirror."""
    if padding == "reflection":
        place = _mirrored(place, extent, aligned)
    elif padding == "zeros":
        weight = np.where((place < 0) | (place > extent - 1), 0, weight).astype(weight.dtype)
    return np.clip(np.nan_to_num(place), 0, extent - 1).astype(np.int64), weight


def _mirrored(place: Array, extent: int, aligned: bool) -> Array:
    """Return places mirrored at the outermost pixels' centres, or at their outer edges where corners do not align."""
    low, span = (0.0, max(extent - 1, 1)) if aligned else (-0.5, extent)
    along = np.abs(place - place.dtype.type(low))
    turns = np.floor(along / place.dtype.type(span))
    rest = along - turns * place.dtype.type(span)
    found = np.where(turns % 2 == 1, place.dtype.type(span) - rest, rest) + place.dtype.type(low)
    return np.asarray(found, place.dtype)


@implements("AffineGrid")
def _affine_grid(node: Node, inputs: Any) -> Sequence[Array]:
    theta, size = inputs
    extents = [int(extent) for extent in size[2:]]
    aligned = bool(node.attrs.get("align_corners", 0))
    lines = [pixel_places(extent, aligned) for extent in extents]
    axes = np.meshgrid(*lines, indexing="ij")[::-1]  # the innermost dimension comes first
    points = np.stack([*axes, np.ones(extents)], -1)
    found = np.einsum("nij,...j->n...i", theta.astype(np.float64), points)
    return (found.astype(theta.dtype),)


@implements("MaxRoiPool")
def _max_roi_pool(node: Node, inputs: Any) -> Sequence[Array]:
    x, regions = inputs
    outer = outside(regions[:, 0].astype(np.int64), x.shape[:1], negative=False)
    if outer:
        raise out_of_range(node.name, outer)
    rows, columns = (int(extent) for extent in node.attrs["pooled_shape"])
    scaled = np.floor(regions[:, 1:].astype(np.float64) * float(node.attrs.get("spatial_scale", 1.0)) + 0.5)
    found = np.zeros((len(regions), x.shape[1], rows, columns), x.dtype)
    for number, (left, top, right, bottom) in enumerate(scaled.astype(np.int64).tolist()):
        image = x[int(regions[number, 0])]
        for row, down in enumerate(_bins(top, bottom, rows, x.shape[2])):
            for column, across in enumerate(_bins(left, right, columns, x.shape[3])):
                part = image[:, down, across]
                if part.size:
                    found[number, :, row, column] = part.max((1, 2))
    return (found,)


def _bins(first: int, last: int, count: int, extent: int) -> list[slice]:
    """Return the positions of each of the bins into which a region divides; they may share one."""
    width = max(last - first + 1, 1) / count
    edges = [(int(np.floor(index * width)), int(np.ceil((index + 1) * width))) for index in range(count)]
    return [slice(min(max(low + first, 0), extent), min(max(high + first, 0), extent)) for low, high in edges]


_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


@implements("ImageDecoder")
def _decode(node: Node, inputs: Any) -> Sequence[Array]:
    """Return the pixels of an image file, ``[height, width, channels]``."""
    try:
        from PIL import Image
    except ImportError as error:
        raise UnsupportedOperatorError(
            f"ImageDecoder node {node.name!r} needs the Pillow package, which is not installed",
            "install it (pip install pillow), or decode images before the network",
        ) from error
    pixel_format = node.text("pixel_format", "RGB")
    try:
        with Image.open(io.BytesIO(inputs[0].tobytes())) as image:
            pixels = np.asarray(image.convert(_MODES[pixel_format]), np.uint8)
    except OSError as error:
        raise ValueError(f"it is not given the contents of an image file: {error}") from error
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    return (np.ascontiguousarray(pixels[..., ::-1]) if pixel_format == "BGR" else pixels,)
