"""Operators of ``com.microsoft`` that move elements, most of them older forms of those of ONNX, and mathematics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.frontend.rewritten import MICROSOFT, REWRITES
from opbuild.graph.graph_builder import Value
from opbuild.graph.types import Node


@writes("Pad")
def _pad(of: Rewriting) -> Sequence[Node]:
    """ONNX's Pad, whose widths may lie in a row, and whose value may have a dimension."""
    pads = of.input(1) if len(of.shape(1, 1, 2)) == 1 else of.reshape(of.input(1), (-1,))
    value = (of.scalar(2),) if of.has(2) else ()
    return of.finish(of("Pad", of.input(0), pads, *value, mode=of.node.text("mode", "constant")))


@writes("Range")
def _range(of: Rewriting) -> Sequence[Node]:
    step = of.scalar(2) if of.has(2) else of.constant(np.ones((), of.dtype(0)))
    return of.finish(of("Range", of.scalar(0), of.scalar(1), step))


@writes("Trilu")
def _trilu(of: Rewriting) -> Sequence[Node]:
    diagonal = (of.scalar(1),) if of.has(1) else ()
    return of.finish(of("Trilu", of.input(0), *diagonal, upper=int(of.attr("upper", 1))))


@writes("ExpandDims")
def _expand_dims(of: Rewriting) -> Sequence[Node]:
    axis = of.reshape(of.cast(of.input(1), "int64", of.dtype(1)), (1,))
    return of.finish(of("Unsqueeze", of.input(0), axis))


@writes("Unique")
def _unique(of: Rewriting) -> Sequence[Node]:
    """ONNX's Unique, which tells besides where each value comes first."""
    values, places, counts = (*of.node.outputs, "", "")[:3]
    of.write("Unique", (of.input(0),), (values, "", places, counts), {"sorted": 0})
    return of.nodes


@writes("UnfoldTensor")
def _unfold(of: Rewriting) -> Sequence[Node]:
    """All slices of a size along an axis, side by side; the elements of each are a new last axis."""
    rank = len(of.shape(0))
    axis, size, step = (int(of.attr(name, default)) for name, default in (("dim", -1), ("size", 1), ("step", 1)))
    axis %= rank
    count = (of.shape(0)[axis] - size) // step + 1
    starts = of("Mul", of.steps(count), of.ints(step))
    places = of("Add", of.reshape(starts, (count, 1)), of.constant(np.arange(size, dtype=np.int64)))
    found = of("Gather", of.input(0), places, axis=axis)
    order = [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1]
    return of.finish(found if order == sorted(order) else of("Transpose", found, perm=tuple(order)))


@writes("GridSample")
def _grid_sample(of: Rewriting) -> Sequence[Node]:
    modes = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}
    mode = of.node.text("mode", "bilinear")
    attrs: dict[str, Any] = {
        "padding_mode": of.node.text("padding_mode", "zeros"),
        "align_corners": int(of.attr("align_corners", 0)),
    }
    return of.finish(of("GridSample", of.input(0), of.input(1), mode=modes.get(mode, mode), **attrs))


@writes("NGramRepeatBlock")
def _block_repeated(of: Rewriting) -> Sequence[Node]:
    """Scores, minus infinity for tokens that would repeat a run of so many tokens."""
    batch, length = of.shape(0, 2)
    size = int(of.attr("ngram_size", 1))
    if size <= 0 or size > length:
        return of.finish(of.input(1))
    following = of.slice(of.input(0), 1, size - 1, length)
    limits = (
        _limits(of, (batch, length), size) if size > 1 else of("Expand", of.floats(-np.inf), of.ints(batch, length))
    )
    return of.finish(of("ScatterElements", of.input(1), following, limits, axis=1, reduction="min"))


def _limits(of: Rewriting, shape: tuple[int, ...], size: int) -> Value:
    """Return minus infinity for tokens behind a run that the last tokens would repeat, infinity for others."""
    batch, length = shape
    count = length - size + 1
    starts = of.reshape(of.steps(count), (count, 1))
    windows = of("Add", starts, of.constant(np.arange(size - 1, dtype=np.int64)))
    runs = of("Gather", of.input(0), windows, axis=1)
    last = of.reshape(of.slice(of.input(0), 1, length - size + 1, length), (batch, 1, size - 1))
    differences = of.sum(of("Abs", of("Sub", runs, last)), [2])
    return of("Where", of("Equal", differences, of.ints(0)), of.floats(-np.inf), of.floats(np.inf))


@writes("CropAndResize")
def _crop(of: Rewriting) -> Sequence[Node]:
    """Boxes of images as images of one size: corners meet corners, and places outside are a given number."""
    height, width = of.shape(0, 4)[2:]
    rows, columns = of.ints_in(3)
    count = of.shape(1, 2)[0]
    images = of("Transpose", of("Gather", of.input(0), of.input(2), axis=0), perm=(0, 2, 3, 1))
    corners = [of.slice(of.input(1), 1, index, index + 1) for index in range(4)]
    down = _places(of, corners[0], corners[2], height, rows)
    across = _places(of, corners[1], corners[3], width, columns)
    shown = of(
        "And",
        of.reshape(_within(of, down, height), (count, 1, rows, 1)),
        of.reshape(_within(of, across, width), (count, 1, 1, columns)),
    )
    if of.node.text("mode", "bilinear") == "nearest":
        half = of.floats(0.5)
        down, across = (of("Floor", of("Add", each, half)) for each in (down, across))
    y, x = (of("Floor", each) for each in (down, across))
    parts = (of("Sub", down, y), of("Sub", across, x))
    part_y, part_x = of.reshape(parts[0], (count, rows, 1, 1)), of.reshape(parts[1], (count, 1, columns, 1))

    def at(far_y: int, far_x: int) -> str:
        places = [
            of("Expand", of.reshape(_clamped(of, each, far, extent), (*split, 1)), of.ints(count, rows, columns, 1))
            for each, far, extent, split in (
                (y, far_y, height, (count, rows, 1)),
                (x, far_x, width, (count, 1, columns)),
            )
        ]
        return of("GatherND", images, of("Concat", *places, axis=3), batch_dims=1)

    def between(one: str, other: str, part: str) -> str:
        return of("Add", one, of("Mul", of("Sub", other, one), part))

    upper, lower = (between(at(far, 0), at(far, 1), part_x) for far in (0, 1))
    result = of("Transpose", between(upper, lower, part_y), perm=(0, 3, 1, 2))
    return of.finish(of("Where", shown, result, of.floats(float(of.attr("extrapolation_value", 0.0)))))


def _places(of: Rewriting, first: str, last: str, extent: int, count: int) -> Value:
    """Return the places of the elements of each box along an axis of an image, ``(boxes, count)``."""
    scale = of.floats(extent - 1)
    if count == 1:
        return of("Mul", of("Mul", of("Add", first, last), of.floats(0.5)), scale)
    step = of("Div", of("Mul", of("Sub", last, first), scale), of.floats(count - 1))
    return of("Add", of("Mul", first, scale), of("Mul", of.floats(np.arange(count)), step))


def _within(of: Rewriting, places: str, extent: int) -> Value:
    return of("And", of("GreaterOrEqual", places, of.floats(0)), of("LessOrEqual", places, of.floats(extent - 1)))


def _clamped(of: Rewriting, places: str, far: int, extent: int) -> Value:
    moved = of("Add", places, of.floats(far))
    return of.cast(of("Min", of("Max", moved, of.floats(0)), of.floats(extent - 1)), "int64")


@writes("ConvTransposeWithDynamicPads")
def _padded_conv_transpose(of: Rewriting) -> Sequence[Node]:
    """ConvTranspose whose pads are an input."""
    attrs = of.attributes(("auto_pad", "dilations", "group", "kernel_shape", "output_padding", "strides"))
    attrs |= {"pads": of.ints_in(2)} if of.has(2) else {}
    return of.finish(of("ConvTranspose", of.input(0), of.input(1), *of.optional(3), **attrs))


@writes("WordConvEmbedding")
def _word_embedding(of: Rewriting) -> Sequence[Node]:
    """The greatest of a convolution over the characters of each word, whose number those that are not 0 tell."""
    (words, letters), (filters, _, width, size) = of.shape(0, 2), of.shape(1, 4)
    rows = of.reshape(of("Gather", of.input(3), of.input(0), axis=0), (words, 1, letters, size))
    found = of("Tanh", of("Conv", rows, of.input(1), of.input(2)))
    count = letters - width + 1
    there = of.cast(of("Greater", of.input(0), of.constant(np.array(0, np.int32))), "int64")
    length = of("Max", of.sum(there, [1], keepdims=True), of.ints(width))
    ends = of("Sub", length, of.ints(width - 1))
    seen = of("Less", of.steps(count), ends)
    shown = of(
        "Where", of.reshape(seen, (words, 1, count)), of.reshape(found, (words, filters, count)), of.floats(-np.inf)
    )
    return of.finish(of("ReduceMax", shown, of.ints(2), keepdims=0))


@writes("CDist")
def _distances(of: Rewriting) -> Sequence[Node]:
    """The distance of each row of one matrix to each of another one, from their lengths and products."""
    metric = of.node.text("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        of.refuse(f"the metric {metric!r} is not served, 'sqeuclidean' and 'euclidean' are")
    first, second = (of("ReduceSumSquare", of.input(index), of.ints(1), keepdims=1) for index in (0, 1))
    products = of("MatMul", of.input(0), of("Transpose", of.input(1), perm=(1, 0)))
    lengths = of("Add", first, of("Transpose", second, perm=(1, 0)))
    squares = of("Max", of("Sub", lengths, of("Mul", products, of.floats(2))), of.floats(0))
    return of.finish(of("Sqrt", squares) if metric == "euclidean" else squares)


@writes("ComplexMul", "ComplexMulConj")
def _complex_product(of: Rewriting) -> Sequence[Node]:
    """The product of complex numbers, or that with the conjugate of the second one; pairs are the last axis."""
    sign = -1.0 if of.node.op_type == "ComplexMulConj" else 1.0
    a, b = (of.several("Split", 2, of.input(index), axis=-1, num_outputs=2) for index in (0, 1))
    other = of("Mul", b[1], of.floats(sign))
    real = of("Sub", of("Mul", a[0], b[0]), of("Mul", a[1], other))
    imaginary = of("Add", of("Mul", a[0], other), of("Mul", a[1], b[0]))
    return of.finish(of("Concat", real, imaginary, axis=-1))


@writes("IsAllFinite")
def _all_finite(of: Rewriting) -> Sequence[Node]:
    nan, inf = (bool(of.attr(name, 0)) for name in ("isnan_only", "isinf_only"))
    wrong = [of("IsNaN", name) for name in of.node.inputs if not inf]
    wrong += [of("IsInf", name) for name in of.node.inputs if not nan]
    counts = [of("ReduceMax", of.cast(each, "int32"), keepdims=0) for each in wrong]
    return of.finish(of("Not", of.cast(of("Max", *counts), "bool")))


@writes("Rfft", "Irfft")
def _real_transform(of: Rewriting) -> Sequence[Node]:
    """The transform of a real signal, of which half is there, and back; neither is divided by the number of samples."""
    if int(of.attr("signal_ndim", 1)) != 1 or not of.attr("onesided", 1) or of.attr("normalized", 0):
        of.refuse("transforms along more than one axis, of both sides, or that are normalised are not served")
    if of.node.op_type == "Rfft":
        pairs = of("Unsqueeze", of.input(0), of.ints(-1))
        return of.finish(of("DFT", pairs, "", of.number(-2), onesided=1))
    count = of.shape(0)[-2]
    mirrored = of("Slice", of.input(0), of.ints(count - 2), of.ints(0), of.ints(-2), of.ints(-1))
    signs = of.floats([1.0, -1.0])
    whole = of("Concat", of.input(0), of("Mul", mirrored, signs), axis=-2)
    found = of("DFT", whole, "", of.number(-2), inverse=1)
    real = of("Squeeze", of("Slice", found, of.ints(0), of.ints(1), of.ints(-1)), of.ints(-1))
    return of.finish(of("Mul", real, of.floats(2 * count - 2)))


REWRITES.register_all(
    {
        "GatherND": lambda of: of.finish(of("GatherND", of.input(0), of.cast(of.input(1), "int64", of.dtype(1)))),
        "TorchEmbedding": lambda of: of.finish(of("Gather", of.input(0), of.input(1), axis=0)),
        "SampleOp": lambda of: of.finish(of.input(0)),
    },
    MICROSOFT,
)
