"""Operators on images: grids of places, and windows put back where they came from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from opbuild.graph.graph_builder import Value
from opbuild.graph.passes.composite import REWRITES
from opbuild.graph.passes.rewriter import KeptError, PassBuilder
from opbuild.graph.shape_rules import ShapeCall
from opbuild.graph.shape_rules_window import transposed_range
from opbuild.graph.tables import pixel_places
from opbuild.graph.types import Array, Node


@REWRITES.register("AffineGrid")
def _affine_grid(of: PassBuilder) -> None:
    """AffineGrid: the places of all pixels, a constant, times each matrix."""
    theta, dtype = of.input(0), of.input(0).dtype
    of.known_integers(1)
    batch, *extents, rank = of.types[of.outputs[0]].shape
    aligned = bool(of.attr("align_corners", 0))
    if dtype not in ("float32", "float64"):
        raise KeptError
    lines = [pixel_places(extent, aligned) for extent in extents]
    points = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(extents)], -1)  # the innermost comes first
    places = of.constant(points.reshape(prod(extents), rank + 1).astype(dtype))
    found = of("MatMul", places, of.transpose(theta, (0, 2, 1)))
    of.reshape(found, (batch, *extents, rank), of.outputs[0])


@REWRITES.register("Col2Im")
def _col2im(of: PassBuilder) -> None:
    """Col2Im: each pixel is the sum of the elements that the windows over it have for it, gathered by a table."""
    columns = of.input(0)
    image, block = of.known_integers(1), of.known_integers(2)
    type_ = of.types[columns]
    if image is None or block is None or not type_.size or not prod(image):
        raise KeptError
    rank = len(image)
    strides, dilations, pads = _sliding(of.node, rank)
    counts = [
        (image[i] + pads[i] + pads[rank + i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in range(rank)
    ]
    if prod(counts) != type_.shape[2]:
        raise KeptError
    flat = of.reshape(columns, (type_.shape[0], type_.shape[1] // prod(block), prod(block) * prod(counts)))
    _sum_windows(of, flat, _sources(of.node, image, block, counts, pads), image, of.outputs[0])


@REWRITES.register("ConvTranspose")
def _conv_transpose(of: PassBuilder) -> None:
    """ConvTranspose of float64, which has no kernel: a product for each window, put back as in Col2Im."""
    x, weights = (of.types[name] for name in of.inputs[:2])
    if x.dtype != "float64" or not x.size or not weights.size:
        raise KeptError
    (batch, channels, *extents), (_, outputs, *block) = x.shape, weights.shape
    groups = int(of.attr("group", 1))
    start, image = transposed_range(ShapeCall(of.node, [x, weights], [None, None]))
    table = _sources(of.node, image, block, extents, start)
    rows = of.reshape(of.input(1), (groups, channels // groups, outputs * prod(block)))
    data = of.reshape(of.input(0), (batch, groups, channels // groups, prod(extents)))
    found = of("MatMul", of.transpose(rows, (0, 2, 1)), data)
    parts = of.reshape(found, (batch, groups * outputs, prod(block) * prod(extents)))
    total = _sum_windows(of, parts, table, image, "" if of.has(2) else of.outputs[0])
    if of.has(2):
        bias = of.reshape(of.input(2), (groups * outputs, *(1 for _ in image)))
        of("Add", total, bias, output=of.outputs[0])


def _sum_windows(of: PassBuilder, parts: str, table: Array, image: Sequence[int], output: str = "") -> Value:
    """Append the sum of the windows' elements for each pixel; ``parts`` is ``(batch, channels, taps * windows)``."""
    batch, channels, _ = of.types[parts].shape
    # One more element, a zero, for the pixels that fewer windows reach.
    padded = of("Pad", parts, of.ints(0, 0, 0, 0, 0, 1), mode="constant")
    found = of("Gather", padded, of.integers(table), axis=2)
    return of.reshape(of.sum(found, [2]), (batch, channels, *image), output)


def _sliding(node: Node, rank: int) -> list[tuple[int, ...]]:
    """Return strides, dilations and pads."""
    defaults = {"strides": (1,) * rank, "dilations": (1,) * rank, "pads": (0,) * 2 * rank}
    return [tuple(node.attrs.get(name) or default) for name, default in defaults.items()]


def _sources(
    node: Node, image: Sequence[int], block: Sequence[int], counts: Sequence[int], pads: Sequence[int]
) -> Array:
    """Return the places of each pixel's parts in ``(taps, windows)``, ``(parts, pixels)``; the end for none."""
    rank, windows = len(image), prod(counts)
    strides, dilations, _ = _sliding(node, rank)
    pixels = np.meshgrid(*(np.arange(extent) for extent in image), indexing="ij")
    found = []
    for number, tap in enumerate(product(*map(range, block))):
        place, inside = np.zeros(image, np.int64), np.ones(image, bool)
        for i in range(rank):
            start = pixels[i] + pads[i] - tap[i] * dilations[i]
            position = start // strides[i]
            inside &= (start % strides[i] == 0) & (position >= 0) & (position < counts[i])
            place = place * counts[i] + position
        found.append(np.where(inside, number * windows + place, prod(block) * windows).reshape(-1))
    table = np.sort(np.stack(found), 0)
    used = int((table < prod(block) * windows).sum(0).max(initial=0))
    return table[: max(used, 1)]


@REWRITES.register("MaxUnpool")
def _max_unpool(of: PassBuilder) -> None:
    """MaxUnpool: zeros, and each element where its index says."""
    x, indices = of.inputs[:2]
    shape, result = of.types[x].shape, of.types[of.outputs[0]].shape
    kernel = tuple(of.node.attrs["kernel_shape"])
    rank = len(kernel)
    strides, _, pads = _sliding(of.node, rank)
    spatial = ((shape[2 + i] - 1) * strides[i] - pads[i] - pads[rank + i] + kernel[i] for i in range(rank))
    whole = (*shape[:2], *spatial)
    if of.has(2):
        of.known_integers(2)
    if not of.types[x].size or any(have > want for have, want in zip(whole, result, strict=True)):
        raise KeptError
    empty = of.constant(np.broadcast_to(np.zeros((), of.types[x].dtype), (prod(whole),)))
    flat = [of.reshape(name, (prod(shape),)) for name in (indices, x)]
    scattered = of("ScatterElements", empty, *flat, axis=0)
    shaped = of.reshape(scattered, whole, of.outputs[0] if whole == result else "")
    if whole != result:
        beyond = [0] * len(whole) + [want - have for have, want in zip(whole, result, strict=True)]
        of("Pad", shaped, of.integers(beyond), output=of.outputs[0], mode="constant")


@REWRITES.register("DeformConv")
def _deformed(of: PassBuilder) -> None:
    """DeformConv: the input at the taps' places, moved by the offsets, times the weights."""
    x, weights, offset = of.inputs[:3]
    (images, channels, *size), result = of.types[x].shape, of.types[of.outputs[0]].shape
    outputs, inputs, *kernel = of.types[weights].shape
    if len(size) != 2 or of.types[x].dtype != "float32" or not all(of.types[n].size for n in of.inputs if n):
        raise KeptError
    group, parts = int(of.attr("group", 1)), int(of.attr("offset_group", 1))
    taps, places = prod(kernel), prod(result[2:])
    bases = [_tap_places(of.node, kernel, result[2:], axis) for axis in (0, 1)]
    moved = of.reshape(offset, (images * parts, taps, 2, *result[2:]))
    columns = []
    for axis in (1, 0):  # a grid has the innermost dimension first
        shift = of.reshape(of("Gather", moved, of.integers(axis), axis=2), (-1, taps, places))
        place = of("Add", shift, of.constant(bases[axis]))
        # To the range from -1 to 1 between the outermost pixels' edges.
        twice = of.constant(np.array(2 / size[axis], np.float32))
        edge = of.constant(np.array(1 / size[axis] - 1, np.float32))
        scaled = of("Add", of("Mul", place, twice), edge)
        columns.append(of.reshape(scaled, (images * parts, taps, places, 1)))
    grid = of("Concat", *tuple(columns), axis=3)
    split = of.reshape(x, (images * parts, channels // parts, *size))
    sampled = of("GridSample", split, grid, mode="linear", padding_mode="zeros", align_corners=0)
    if of.has(4):
        sampled = of("Mul", sampled, of.reshape(of.input(4), (images * parts, 1, taps, places)))
    rows = of.reshape(sampled, (images, group, inputs * taps, places))
    matrix = of.reshape(weights, (group, outputs // group, inputs * taps))
    found = of.reshape(of("MatMul", matrix, rows), result, "" if of.has(3) else of.outputs[0])
    if of.has(3):
        of("Add", found, of.reshape(of.input(3), (outputs, 1, 1)), output=of.outputs[0])


def _tap_places(node: Node, kernel: Sequence[int], out: Sequence[int], axis: int) -> Array:
    """Return the places of each tap of each output along an axis, without offsets: ``(1, taps, outputs)``."""
    strides, dilations, pads = _sliding(node, 2)
    taps, positions = np.arange(kernel[axis]) * dilations[axis], np.arange(out[axis]) * strides[axis] - pads[axis]
    line = taps[:, None] + positions
    whole = line[:, None, :, None] if axis == 0 else line[None, :, None, :]
    return np.broadcast_to(whole, (*kernel, *out)).reshape(1, prod(kernel), prod(out)).astype(np.float32)
