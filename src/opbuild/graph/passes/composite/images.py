"""Operators on images: grids of places, and windows put back where they came from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from opbuild.graph.passes.composite.rewrite import (
    KeptError,
    Rewrite,
    has_input,
    integers,
    known_integers,
    reshaped,
    transposed,
)
from opbuild.graph.passes.rewriter import Rewriter
from opbuild.graph.shape_rules import Call
from opbuild.graph.shape_rules_window import transposed_range
from opbuild.graph.types import Array, Node


def _affine_grid(to: Rewriter, node: Node) -> None:
    """AffineGrid: the places of all pixels, a constant, times each matrix."""
    theta, dtype = node.inputs[0], to.types[node.inputs[0]].dtype
    known_integers(to, node, 1)
    batch, *extents, rank = to.types[node.outputs[0]].shape
    aligned = bool(node.attrs.get("align_corners", 0))
    if dtype not in ("float32", "float64"):
        raise KeptError
    lines = [_between(extent, aligned) for extent in extents]
    points = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(extents)], -1)  # the innermost comes first
    places = to.constant(f"{node.name}/places", points.reshape(prod(extents), rank + 1).astype(dtype))
    found = to.add(node, "MatMul", (places, transposed(to, node, theta, (0, 2, 1))))
    reshaped(to, node, found, (batch, *extents, rank), node.outputs[0])


def _between(extent: int, aligned: bool) -> Array:
    """Return the places of ``extent`` pixels between -1 and 1: of their centres, or with the outermost at the ends."""
    if aligned:
        return np.linspace(-1.0, 1.0, extent) if extent > 1 else np.zeros(extent)
    return (2 * np.arange(extent) + 1) / extent - 1


def _col2im(to: Rewriter, node: Node) -> None:
    """Col2Im: each pixel is the sum of what the windows over it have for it, gathered by a table."""
    columns = node.inputs[0]
    image, block = known_integers(to, node, 1), known_integers(to, node, 2)
    type_ = to.types[columns]
    if image is None or block is None or not type_.size or not prod(image):
        raise KeptError
    rank = len(image)
    strides, dilations = _steps(node, rank)
    pads = tuple(node.attrs.get("pads") or (0,) * 2 * rank)
    counts = [
        (image[i] + pads[i] + pads[rank + i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in range(rank)
    ]
    if prod(counts) != type_.shape[2]:
        raise KeptError
    flat = reshaped(to, node, columns, (type_.shape[0], type_.shape[1] // prod(block), prod(block) * prod(counts)))
    _put_back(to, node, flat, _sources(node, image, block, counts, pads), image, node.outputs[0])


def _conv_transpose(to: Rewriter, node: Node) -> None:
    """ConvTranspose of float64, which has no kernel: a product for each window, put back as in Col2Im."""
    x, weights = (to.types[name] for name in node.inputs[:2])
    if x.dtype != "float64" or not x.size or not weights.size:
        raise KeptError
    (batch, channels, *extents), (_, outputs, *block) = x.shape, weights.shape
    groups = int(node.attrs.get("group", 1))
    start, image = transposed_range(Call(node, [x, weights], [None, None]))
    table = _sources(node, image, block, extents, start)
    rows = reshaped(to, node, node.inputs[1], (groups, channels // groups, outputs * prod(block)))
    data = reshaped(to, node, node.inputs[0], (batch, groups, channels // groups, prod(extents)))
    found = to.add(node, "MatMul", (transposed(to, node, rows, (0, 2, 1)), data))
    parts = reshaped(to, node, found, (batch, groups * outputs, prod(block) * prod(extents)))
    has_bias = has_input(node, 2)
    total = _put_back(to, node, parts, table, image, "" if has_bias else node.outputs[0])
    if has_bias:
        bias = reshaped(to, node, node.inputs[2], (groups * outputs, *(1 for _ in image)))
        to.add(node, "Add", (total, bias), node.outputs[0])


def _put_back(to: Rewriter, node: Node, parts: str, table: Array, image: Sequence[int], output: str = "") -> str:
    """Append the sum of what windows have for each pixel; ``parts`` is ``(batch, channels, taps * windows)``."""
    batch, channels, _ = to.types[parts].shape
    # One more element, a zero, for the pixels that fewer windows reach.
    padded = to.add(node, "Pad", (parts, integers(to, node, (0, 0, 0, 0, 0, 1))), mode="constant")
    found = to.add(node, "Gather", (padded, integers(to, node, table)), axis=2)
    total = to.add(node, "ReduceSum", (found, integers(to, node, (2,))), keepdims=0)
    return reshaped(to, node, total, (batch, channels, *image), output)


def _steps(node: Node, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return strides and dilations."""
    strides, dilations = (tuple(node.attrs.get(name) or (1,) * rank) for name in ("strides", "dilations"))
    return strides, dilations


def _sources(
    node: Node, image: Sequence[int], block: Sequence[int], counts: Sequence[int], pads: Sequence[int]
) -> Array:
    """Return where each pixel's parts lie in ``(taps, windows)``, ``(parts, pixels)``; one beyond the last for none."""
    rank, windows = len(image), prod(counts)
    strides, dilations = _steps(node, rank)
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


def _max_unpool(to: Rewriter, node: Node) -> None:
    """MaxUnpool: zeros, and each element where its index says."""
    x, indices = node.inputs[:2]
    shape, result = to.types[x].shape, to.types[node.outputs[0]].shape
    kernel = tuple(node.attrs["kernel_shape"])
    rank = len(kernel)
    strides, pads = tuple(node.attrs.get("strides") or (1,) * rank), tuple(node.attrs.get("pads") or (0,) * 2 * rank)
    whole = (
        *shape[:2],
        *((shape[2 + i] - 1) * strides[i] - pads[i] - pads[rank + i] + kernel[i] for i in range(rank)),
    )
    if has_input(node, 2):
        known_integers(to, node, 2)
    if not to.types[x].size or any(have > want for have, want in zip(whole, result, strict=True)):
        raise KeptError
    empty = to.constant(f"{node.name}/zeros", np.broadcast_to(np.zeros((), to.types[x].dtype), (prod(whole),)))
    flat = [reshaped(to, node, name, (prod(shape),)) for name in (indices, x)]
    scattered = to.add(node, "ScatterElements", (empty, *flat), axis=0)
    if whole == result:
        reshaped(to, node, scattered, result, node.outputs[0])
        return
    beyond = [0] * len(whole) + [want - have for have, want in zip(whole, result, strict=True)]
    shaped = reshaped(to, node, scattered, whole)
    to.add(node, "Pad", (shaped, integers(to, node, beyond)), node.outputs[0], mode="constant")


def _deformed(to: Rewriter, node: Node) -> None:
    """DeformConv: the input at the taps' places, moved by the offsets, times the weights."""
    x, weights, offset = node.inputs[:3]
    (images, channels, *size), result = to.types[x].shape, to.types[node.outputs[0]].shape
    outputs, inputs, *kernel = to.types[weights].shape
    if len(size) != 2 or to.types[x].dtype != "float32" or not all(to.types[n].size for n in node.inputs if n):
        raise KeptError
    group, parts = int(node.attrs.get("group", 1)), int(node.attrs.get("offset_group", 1))
    taps, places = prod(kernel), prod(result[2:])
    bases = [_tap_places(node, kernel, result[2:], axis) for axis in (0, 1)]
    moved = reshaped(to, node, offset, (images * parts, taps, 2, *result[2:]))
    columns = []
    for axis in (1, 0):  # a grid has the innermost dimension first
        shift = reshaped(
            to, node, to.add(node, "Gather", (moved, integers(to, node, axis)), axis=2), (-1, taps, places)
        )
        place = to.add(node, "Add", (shift, to.constant(f"{node.name}/places", bases[axis])))
        # To the range from -1 to 1 between the outermost pixels' edges.
        twice = to.constant(f"{node.name}/scale", np.array(2 / size[axis], np.float32))
        edge = to.constant(f"{node.name}/edge", np.array(1 / size[axis] - 1, np.float32))
        scaled = to.add(node, "Add", (to.add(node, "Mul", (place, twice)), edge))
        columns.append(reshaped(to, node, scaled, (images * parts, taps, places, 1)))
    grid = to.add(node, "Concat", tuple(columns), axis=3)
    split = reshaped(to, node, x, (images * parts, channels // parts, *size))
    sampled = to.add(node, "GridSample", (split, grid), mode="linear", padding_mode="zeros", align_corners=0)
    if has_input(node, 4):
        mask = reshaped(to, node, node.inputs[4], (images * parts, 1, taps, places))
        sampled = to.add(node, "Mul", (sampled, mask))
    rows = reshaped(to, node, sampled, (images, group, inputs * taps, places))
    matrix = reshaped(to, node, weights, (group, outputs // group, inputs * taps))
    found = reshaped(
        to, node, to.add(node, "MatMul", (matrix, rows)), result, "" if has_input(node, 3) else node.outputs[0]
    )
    if has_input(node, 3):
        to.add(node, "Add", (found, reshaped(to, node, node.inputs[3], (outputs, 1, 1))), node.outputs[0])


def _tap_places(node: Node, kernel: Sequence[int], out: Sequence[int], axis: int) -> Array:
    """Return where each tap of each output lies along an axis, without offsets: ``(1, taps, outputs)``."""
    strides, dilations = (tuple(node.attrs.get(name) or (1, 1)) for name in ("strides", "dilations"))
    before = tuple(node.attrs.get("pads") or (0, 0, 0, 0))[axis]
    taps, positions = np.arange(kernel[axis]) * dilations[axis], np.arange(out[axis]) * strides[axis] - before
    line = taps[:, None] + positions
    whole = line[:, None, :, None] if axis == 0 else line[None, :, None, :]
    return np.broadcast_to(whole, (*kernel, *out)).reshape(1, prod(kernel), prod(out)).astype(np.float32)


REWRITES: dict[str, Rewrite] = {
    "AffineGrid": _affine_grid,
    "Col2Im": _col2im,
    "ConvTranspose": _conv_transpose,
    "DeformConv": _deformed,
    "MaxUnpool": _max_unpool,
}
