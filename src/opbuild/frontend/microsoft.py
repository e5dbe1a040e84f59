"""Single operators of ``com.microsoft`` that ONNX Runtime fuses, moves or quantises, as ONNX's own operators.

What they compute is what ONNX Runtime's schemas say (``onnxruntime/core/graph/contrib_ops``); passes fuse it again.
Operators of that domain that have kernels of their own have shape rules instead.

In domain ``com.microsoft.nchwc``, into which ONNX Runtime's optimizer turns networks of convolutions, values lie in
blocks of channels, and so do the weights that are in the model. Here values are as they would be without blocks, with
the channels that fill the last one, and weights are put back; what lowering makes of them is its own. How many channels
a block has the model does not say: it is what ONNX Runtime takes on the machine that wrote it, which is to be of the
kind of the one that runs it.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import numpy as np

from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.frontend.rewritten import MICROSOFT, NCHWC, REWRITES
from opbuild.graph.graph_builder import Value
from opbuild.graph.indices import DOMAIN
from opbuild.graph.types import Array, Node
from opbuild.target.host import host_flags
from opbuild.text.plural import counted

CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
POOL = ("auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides")

_PARAMETERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Gelu", "HardSwish", "Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"), ()),
    **dict.fromkeys(("Celu", "Elu", "LeakyRelu", "ThresholdedRelu"), ("alpha",)),
    "HardSigmoid": ("alpha", "beta"),
    "Selu": ("alpha", "gamma"),
}
"""Activations that ONNX has too, and the names of their parameters."""


# -- products, convolutions and activations ----------------------------------------------------------------------------


def activated(of: Rewriting, value: str, prefix: str = "") -> str:
    """Apply the activation that a fused operator names.

    Args:
        of: Where it is written.
        value: What it is applied to.
        prefix: What the names of the attributes alpha, beta and gamma begin with, if there are any; an operator may
            have ``activation_params`` instead.
    """
    kind = of.node.text("activation", "")
    listed = tuple(map(float, of.attr("activation_params", ())))
    named = {
        name: float(of.attr(prefix + name, 0.0))
        for name in ("alpha", "beta", "gamma")
        if prefix and prefix + name in of.node.attrs
    }
    if not kind:
        return value
    if kind in _PARAMETERS:
        attrs: dict[str, Any] = dict(zip(_PARAMETERS[kind], listed, strict=False)) if listed else named
        return of(kind, value, **{name: attrs[name] for name in _PARAMETERS[kind] if name in attrs})
    if kind == "Clip":
        return of("Clip", value, *map(of.floats, listed))
    if kind == "QuickGelu":
        return _gated(of, value, (*listed, 1.702)[0])
    alpha, beta = (of.floats(named.get(name, 1.0)) for name in ("alpha", "beta"))
    inner = {"ScaledTanh": "Tanh", "ParametricSoftplus": "Softplus"}.get(kind)
    if inner is None:
        of.refuse(f"its activation {kind!r} is not known")
    return of("Mul", alpha, of(inner, of("Mul", beta, value)))


@writes("FusedConv")
@writes("Conv", domain=NCHWC)
def _fused_conv(of: Rewriting) -> Sequence[Node]:
    """A convolution, a sum, and an activation; those of domain ``com.microsoft.nchwc`` have weights in blocks."""
    weights = _weights(of) if of.node.domain == NCHWC else of.input(1)
    value = of("Conv", of.input(0), weights, *of.optional(2), **of.attributes(CONV))
    return of.finish(activated(of, of.plus(value, 3)))


@writes("NhwcConv", "NhwcFusedConv")
def _nhwc_conv(of: Rewriting) -> Sequence[Node]:
    rank = len(of.shape(0))
    value = of("Conv", of.to_front(of.input(0), rank), *of.node.inputs[1:3], **of.attributes(CONV))
    return of.finish(activated(of, of.plus(of.to_end(value, rank), 3)))


@writes("FusedGemm")
def _fused_gemm(of: Rewriting) -> Sequence[Node]:
    value = of("Gemm", *of.node.inputs, **of.attributes(("alpha", "beta", "transA", "transB")))
    return of.finish(activated(of, value, "activation_"))


@writes("FusedMatMul", "TransposeMatMul")
def _fused_matmul(of: Rewriting) -> Sequence[Node]:
    sides = []
    for index, side in enumerate("AB"):
        rank = len(of.shape(index))
        order = list(range(rank))
        if of.attr(f"transBatch{side}", 0) and rank > 2:
            order = [*order[1:-1], 0, order[-1]]
        if of.attr(f"trans{side}", 0) and rank > 1:
            order[-2:] = order[:-3:-1]
        sides.append(_in_order(of, of.input(index), order))
    value, alpha = of("MatMul", *sides), float(of.attr("alpha", 1.0))
    return of.finish(value if alpha == 1.0 else of("Mul", value, of.floats(alpha)))


def _in_order(of: Rewriting, value: Value, order: Sequence[int]) -> Value:
    return value if list(order) == sorted(order) else of("Transpose", value, perm=tuple(order))


@writes("BiasSplitGelu")
def _split_gelu(of: Rewriting) -> Sequence[Node]:
    """The first half of the last axis times the GELU of the second, after a bias."""
    left, right = of.several("Split", 2, of("Add", of.input(0), of.input(1)), axis=-1, num_outputs=2)
    return of.finish(of("Mul", left, of("Gelu", right)))


def _gated(of: Rewriting, value: str, alpha: float) -> Value:
    scaled = value if alpha == 1 else of("Mul", value, of.floats(alpha))
    return of("Mul", value, of("Sigmoid", scaled))


@writes("BiasSoftmax")
def _bias_softmax(of: Rewriting) -> Sequence[Node]:
    """Softmax of all axes from one on; the bias lacks axes before it, or in front of its own."""
    shape, bias, axis = of.shape(0), of.shape(1), int(of.attr("axis", 1)) % len(of.shape(0))
    added = of.input(1)
    if of.attr("is_inner_broadcast", 1) and len(bias) < len(shape):
        kept = len(bias) - (len(shape) - axis)
        added = of.reshape(added, (*bias[:kept], *(1,) * (len(shape) - len(bias)), *bias[kept:]))
    total = of("Add", of.input(0), added)
    if axis == len(shape) - 1:
        return of.finish(of("Softmax", total, axis=-1))
    rows = of("Softmax", of("Flatten", total, axis=axis), axis=-1)
    return of.finish(of.reshape(rows, shape))


# -- values in blocks of channels --------------------------------------------------------------------------------------


@cache
def channels_of_block() -> int:
    """Return the number of channels of a block in ONNX Runtime on this machine."""
    return 16 if "avx512f" in host_flags() or platform.machine() == "aarch64" else 8


@writes("ReorderInput", domain=NCHWC)
def _reorder_input(of: Rewriting) -> Sequence[Node]:
    shape, last = of.shape(0), bool(of.attr("channels_last", 0))
    value = of.to_front(of.input(0), len(shape)) if last else of.input(0)
    missing = -shape[-1 if last else 1] % channels_of_block()
    if missing:
        value = of("Pad", value, of.ints(*(0,) * (len(shape) + 1), missing, *(0,) * (len(shape) - 2)))
    return of.finish(value)


@writes("ReorderOutput", domain=NCHWC)
def _reorder_output(of: Rewriting) -> Sequence[Node]:
    value, rank, channels = of.input(0), len(of.shape(0)), int(of.attr("channels", 0))
    if channels != of.shape(0)[1]:
        value = of.slice(value, 1, 0, channels)
    return of.finish(of.to_end(value, rank) if of.attr("channels_last", 0) else value)


def _weights(of: Rewriting) -> Value:
    """Return the weights of a convolution without blocks.

    They lie in blocks of outputs, and within these of inputs, unless a convolution reads what has no blocks, or each of
    its channels alone.
    """
    outputs, inputs, *window = of.shape(1)
    block, size = channels_of_block(), tuple(window)
    if outputs % block:
        of.refuse(
            f"its weights have {counted(outputs, 'output')}: the model was optimised for a machine "
            f"where blocks have not {block} channels, as they have here"
        )
    if inputs < block:
        blocked = of.reshape(of.input(1), (outputs // block, inputs, *size, block))
        order: tuple[int, ...] = (0, len(size) + 2, *range(1, len(size) + 2))
    else:
        blocked = of.reshape(of.input(1), (outputs // block, inputs // block, *size, block, block))
        order = (0, len(size) + 3, 1, len(size) + 2, *range(2, len(size) + 2))
    return of.reshape(of("Transpose", blocked, perm=order), (outputs, inputs, *size))


@writes("Upsample", domain=NCHWC)
def _upsample(of: Rewriting) -> Sequence[Node]:
    attrs: dict[str, Any] = {
        "mode": of.node.text("mode", "nearest"),
        "coordinate_transformation_mode": of.node.text("coordinate_transformation_mode", "asymmetric"),
        "nearest_mode": "floor",
    }
    scales = of.floats(tuple(map(float, of.attr("scales", ()))))
    return of.finish(of("Resize", of.input(0), "", scales, **attrs))


# -- movement of elements, and mathematics -----------------------------------------------------------------------------


def _scalars(of: Rewriting, *indices: int) -> list[Value]:
    """Return inputs that hold one number each, as far as they are there."""
    return [of.scalar(index) for index in indices if of.has(index)]


@writes("Pad")
def _pad(of: Rewriting) -> Sequence[Node]:
    """ONNX's Pad, whose widths may lie in a row, and whose value may have a dimension."""
    pads = of.input(1) if len(of.shape(1, 1, 2)) == 1 else of.reshape(of.input(1), (-1,))
    return of.finish(of("Pad", of.input(0), pads, *_scalars(of, 2), mode=of.node.text("mode", "constant")))


@writes("Range")
def _range(of: Rewriting) -> Sequence[Node]:
    step = of.scalar(2) if of.has(2) else of.constant(1, of.dtype(0))
    return of.finish(of("Range", of.scalar(0), of.scalar(1), step))


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
    return of.finish(_in_order(of, found, [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1]))


@writes("GridSample")
def _grid_sample(of: Rewriting) -> Sequence[Node]:
    mode = of.node.text("mode", "bilinear")
    attrs: dict[str, Any] = {
        "mode": {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode),
        "padding_mode": of.node.text("padding_mode", "zeros"),
        "align_corners": int(of.attr("align_corners", 0)),
    }
    return of.finish(of("GridSample", of.input(0), of.input(1), **attrs))


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
    down = _places_in_boxes(of, corners[0], corners[2], height, rows)
    across = _places_in_boxes(of, corners[1], corners[3], width, columns)
    shown = of(
        "And",
        of.reshape(_is_within(of, down, height), (count, 1, rows, 1)),
        of.reshape(_is_within(of, across, width), (count, 1, 1, columns)),
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


def _places_in_boxes(of: Rewriting, first: str, last: str, extent: int, count: int) -> Value:
    """Return the places of the elements of each box along an axis of an image, ``(boxes, count)``."""
    scale = of.floats(extent - 1)
    if count == 1:
        return of("Mul", of("Mul", of("Add", first, last), of.floats(0.5)), scale)
    step = of("Div", of("Mul", of("Sub", last, first), scale), of.floats(count - 1))
    return of("Add", of("Mul", first, scale), of("Mul", of.floats(np.arange(count)), step))


def _is_within(of: Rewriting, places: str, extent: int) -> Value:
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
    there = of.cast(of("Greater", of.input(0), of.constant(0, "int32")), "int64")
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
    real = of("Squeeze", of.slice(found, -1, 0, 1), of.ints(-1))
    return of.finish(of("Mul", real, of.floats(2 * count - 2)))


# -- quantised numbers and weights of few bits -------------------------------------------------------------------------

FP4 = (0.0, 5.208333333e-03, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
"""The magnitudes of bitsandbytes' numbers of 4 bits; the fourth bit is the sign."""

NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
    *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634),
    *(0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
"""Bitsandbytes' sixteen numbers whose places are those of a normal distribution."""

SERVED = (2, 4, 8)
"""Bits of weights of few bits."""


def unpacked(of: Rewriting, value: str, shape: Sequence[int], bits: int, *, high_first: bool = False) -> str:
    """Return bytes along whose last axis several numbers are packed as one byte a number."""
    if bits == 8:
        return value
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    shifts = shifts[::-1].copy() if high_first else shifts
    apart = of("BitShift", of.reshape(value, (*shape, 1)), of.constant(shifts), direction="RIGHT")
    numbers = of("BitwiseAnd", apart, of.constant((1 << bits) - 1, "uint8"))
    return of.reshape(numbers, (*shape[:-1], shape[-1] * len(shifts)))


@writes("MatMulNBits")
def _matmul_nbits(of: Rewriting) -> Sequence[Node]:
    """Keep forms that have a kernel: known weights whose blocks have an order; write the weights out otherwise."""
    k, n, bits, block = (int(of.attr(name, 4)) for name in ("K", "N", "bits", "block_size"))
    of.refuse_if(bits not in SERVED, f"weights of {bits} bits are not served, those of 2, 4 and 8 are")
    of.refuse_if(of.attr("weight_prepacked", 0), "its weights are arranged for a GPU")
    if 0 in of.shape(1):  # weights that are left out: zeros, or the bias
        row = of.input(5) if of.has(5) else of.constant(np.zeros(n, of.dtype(0)))
        return of.finish(of("Expand", row, of.ints(*of.shape(0)[:-1], n)))
    known = [of.is_known(index) for index in (1, 2, 3) if of.has(index)]
    if all(known) and not of.has(4):
        return of.itself()
    order = _order(of, k, block) if all(known) else None
    if order is not None:
        return _together(of, order, n, bits)
    blocks, kind = -(-k // block), of.dtype(0)
    codes = unpacked(of, of.input(1), (n, blocks, block * bits // 8), bits)
    scale, zero = of.reshape(of.input(2), (n, blocks)), _zero_points(of, n, blocks, bits)
    if of.has(4):
        codes = of.slice(of.reshape(codes, (n, blocks * block)), 1, 0, k)
        scale, zero = (of("Gather", each, of.input(4), axis=1) for each in (scale, zero))
    else:
        scale, zero = (of.reshape(each, (n, blocks, 1)) for each in (scale, zero))
    weights = of("Mul", of("Sub", of.cast(codes, kind), zero), scale)
    if not of.has(4):
        weights = of.slice(of.reshape(weights, (n, blocks * block)), 1, 0, k)
    product = of("MatMul", of.input(0), of("Transpose", weights, perm=(1, 0)))
    return of.finish(of.plus(product, 5))


def _order(of: Rewriting, k: int, block: int) -> Array | None:
    """Return the order along K in which weights that share a scale lie together, if they are as many as in a block."""
    groups = of.known(of.input(4))
    if groups is None or not np.array_equal(np.bincount(groups), np.bincount(np.arange(k) // block)):
        return None
    return np.argsort(groups, kind="stable")


def _together(of: Rewriting, order: Array, n: int, bits: int) -> Sequence[Node]:
    """Write a product whose operands are both put in another order along K, in which blocks lie together."""
    packed, k = cast("Array", of.known(of.input(1))), len(order)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    moved = np.zeros((n, packed.size // n * len(shifts)), np.uint8)
    moved[:, :k] = (packed.reshape(n, -1, 1) >> shifts & (1 << bits) - 1).reshape(n, -1)[:, order]
    together = np.bitwise_or.reduce(moved.reshape(n, -1, len(shifts)) << shifts, -1)
    x = of("Gather", of.input(0), of.constant(order), axis=-1)
    zeros, bias = (of.input(index) if of.has(index) else "" for index in (3, 5))
    inputs = (x, of.constant(together.reshape(packed.shape)), of.input(2), zeros, "", bias)
    return of.finish(of("MatMulNBits", *inputs, domain=MICROSOFT, **of.node.attrs))


def _zero_points(of: Rewriting, n: int, blocks: int, bits: int) -> Value:
    """Return the zero points of all blocks, ``(n, blocks)``, in the type of the left operand."""
    kind = of.dtype(0)
    if not of.has(3):
        return of.constant(np.full((n, blocks), 1 << (bits - 1), kind))
    if of.dtype(3) != "uint8":
        return of.reshape(of.input(3), (n, blocks))
    count = -(-blocks * bits // 8)
    numbers = unpacked(of, of.reshape(of.input(3), (n, count)), (n, count), bits)
    return of.cast(of.slice(numbers, 1, 0, blocks), kind)


@writes("MatMulBnb4")
def _matmul_bnb4(of: Rewriting) -> Sequence[Node]:
    """A product with a matrix of places in a table of sixteen numbers, blocks of which have one greatest magnitude."""
    k, n, block = (int(of.attr(name, 0)) for name in ("K", "N", "block_size"))
    kind, size = of.dtype(0), k * n
    table = NF4 if of.attr("quant_type", 1) else (*FP4, *(-each for each in FP4))
    count = -(-size // 2)
    places = unpacked(of, of.reshape(of.input(1), (count,)), (count,), 4, high_first=True)
    numbers = of("Gather", of.constant(np.array(table, kind)), of.cast(places, "int32"), axis=0)
    blocks = -(-size // block)
    spread = of("Expand", of.reshape(of.input(2), (blocks, 1)), of.ints(blocks, block))
    scale = of.slice(of.reshape(spread, (blocks * block,)), 0, 0, size)
    weights = of.reshape(of("Mul", of.slice(numbers, 0, 0, size), scale), (n, k))
    if of.attr("transB", 1):
        weights = of("Transpose", weights, perm=(1, 0))
    return of.finish(of("MatMul", of.input(0), weights))


@writes("QuantizeLinear", "DequantizeLinear")
def _linear(of: Rewriting) -> Sequence[Node]:
    """The operator of ONNX with that name, which has more element types."""
    axis = int(of.attr("axis", 1))
    return of.same(attrs={"axis": axis} if len(of.shape(0)) > axis else {})  # else there is one scale


def _over_axes(of: Rewriting, op_type: str, value: str) -> Value:
    """Write a reduction of the axes that an attribute names."""
    return of(op_type, value, of.ints(*map(int, of.attr("axes", ()))), keepdims=int(of.attr("keepdims", 1)))


@writes("QLinearReduceMean")
def _reduce_mean(of: Rewriting) -> Sequence[Node]:
    mean = _over_axes(of, "ReduceMean", of("DequantizeLinear", *of.optional(0, 1, 2)))
    zero = of.input(4) if of.has(4) else of.constant(0, of.dtype(0))
    return of.finish(of("QuantizeLinear", mean, of.input(3), zero))


def _centred(of: Rewriting, index: int) -> Value:
    wide = of.cast(of.input(index), "int32")
    return of("Sub", wide, of.cast(of.input(index + 1), "int32")) if of.has(index + 1) else wide


@writes("GatherBlockQuantized")
def _gather_blocks(of: Rewriting) -> Sequence[Node]:
    """Gather, then dequantise the gathered rows; an index that is out of range gives zeros, as the schema says."""
    shape, indices, kind = of.shape(0, *range(1, 9)), of.shape(1), of.dtype(2)
    rank = len(shape)
    taken, blocked = (
        int(of.attr(f"{name}_axis", default)) % rank for name, default in (("gather", 0), ("quantize", 1))
    )
    places, inside = _places(of, shape[taken])
    own = {index: _Gathered(of, index, taken, places) for index in (0, 2, 3) if of.has(index)}
    bits = int(of.attr("bits", 4)) if of.dtype(0) == "uint8" else 8
    of.refuse_if(bits < 8 and taken == rank - 1, "packed numbers are gathered along another axis than the last one")
    value, (extent, blocks) = own[0].numbers(bits), (shape[blocked], of.shape(2, rank)[blocked])
    if blocked == rank - 1:
        extent *= 8 // bits
    block = int(of.attr("block_size", 128)) or extent
    if taken == blocked:
        own[2].places = own[3 if 3 in own else 2].places = of("Div", places, of.number(block))
    scale = own[2].numbers(8)
    zero = own[3].numbers(bits) if 3 in own else ""
    axis = blocked if blocked < taken else blocked + len(indices) - 1
    if taken != blocked and (blocks > 1 or block < extent):
        index = of.constant(np.arange(extent, dtype=np.int64) // block)
        scale = of("Gather", scale, index, axis=axis)
        zero = of("Gather", zero, index, axis=axis) if zero else zero
    if not zero and of.dtype(0) == "uint8":
        zero = of.constant(1 << (bits - 1), "uint8")
    wide = of.cast(value, kind)
    result = of("Mul", of("Sub", wide, of.cast(zero, kind)) if zero else wide, scale)
    inside = of.reshape(inside, (*(1,) * taken, *indices, *(1,) * (rank - 1 - taken)))
    return of.finish(of("Where", inside, result, of.constant(0, kind)))


def _places(of: Rewriting, extent: int) -> tuple[str, str]:
    """Return indices from 0 on, 0 for those that are out of range, and which are not."""
    given = of.cast(of.input(1), "int64", of.dtype(1))
    places = of("Where", of("Less", given, of.number(0)), of("Add", given, of.number(extent)), given)
    inside = of("And", of("GreaterOrEqual", places, of.number(0)), of("Less", places, of.number(extent)))
    return of("Where", inside, places, of.number(0)), inside


class _Gathered:
    """The elements gathered of an input, by its number, at places along an axis."""

    def __init__(self, of: Rewriting, index: int, axis: int, places: str) -> None:
        self._of, self._index, self._axis = of, index, axis
        self.places = places

    def numbers(self, bits: int) -> str:
        """Write it, one element a number; of one number for the whole axis all places have that."""
        of, index, axis = self._of, self._index, self._axis
        own, indices = of.shape(index), of.shape(1)
        shape = (*own[:axis], *indices, *own[axis + 1 :])
        if own[axis] == 1 and of.shape(0)[axis] != 1:
            return of.reshape(of.input(index), (*own[:axis], *(1,) * len(indices), *own[axis + 1 :]))
        value: str = of.input(index)
        whole = {"int4": "int8", "uint4": "uint8"}.get(of.dtype(index))
        value = of("Gather", of.cast(value, whole) if whole else value, self.places, axis=axis)
        value = unpacked(of, value, shape, bits)
        count = of.shape(2)[-1]
        if index == 3 and bits < 8 and own[-1] * 8 // bits != count:
            value = of.slice(value, len(shape) - 1, 0, count)
        return value


@writes("DynamicQuantizeLSTM")
def _dynamic_quantize_lstm(of: Rewriting) -> Sequence[Node]:
    """DynamicQuantizeLSTM: products of bytes with all inputs, and a recurrence whose states become bytes at each step.

    Sequences are quantised each by itself, ONNX Runtime's as many together as a thread has. An LSTM whose recurrence
    weights are not known, or may leave int8 less their zero points, has all weights dequantised.
    """
    if not _is_int8_recurrence(of):
        return _dequantized_lstm(of)
    directions, size, rows = of.shape(1)
    columns = directions * rows
    weights = of.reshape(of("Transpose", of.input(1), perm=(1, 0, 2)), (size, columns))
    scale, zero, own = (
        of.reshape(of("Expand", of.reshape(of.input(i), (directions, -1)), of.ints((directions, rows))), (columns,))
        for i in (8, 9, 10)
    )
    bias = []
    if of.has(3):
        halves = of.parts(of.input(3), 1, rows, rows)
        bias = [of.reshape(of("Add", *halves), (columns,))]
    projected = of("DynamicQuantizeMatMul", of.input(0), weights, scale, zero, *bias, domain=MICROSOFT)
    recurrence: str = of.input(2)
    if of.dtype(2) == "uint8":
        recurrence = of.cast(of("Sub", of.cast(recurrence, "int32"), of.constant(_MIDDLE["uint8"], "int32")), "int8")
    others = [of.input(index) if of.has(index) else "" for index in range(4, 8)]
    inputs = (projected, recurrence, of.reshape(own, (directions, rows)), *others)
    of.write("IntegerLSTM", inputs, of.node.outputs, of.node.attrs, domain=DOMAIN)
    return of.nodes


_MIDDLE = {"int8": 0, "uint8": 128}
"""The zero points with which weights of each type are int8."""


def _is_int8_recurrence(of: Rewriting) -> bool:
    """Return whether recurrence weights are known and, less their zero points, int8."""
    zero = of.known(of.input(11))
    return of.is_known(2) and zero is not None and bool((zero == _MIDDLE[of.dtype(2)]).all())


def _dequantized_lstm(of: Rewriting) -> Sequence[Node]:
    """Write an LSTM of float32, closer to that of the weights before they were quantised."""
    weights = []
    for index, scale, zero in ((1, 8, 9), (2, 10, 11)):
        wide = of.cast(of.input(index), "float32")
        parameters = (of.input(scale), of.cast(of.input(zero), "float32"))
        # One number a direction, or one a column of it.
        spread, moved = (of.reshape(each, (*of.shape(scale)[:1], 1, -1)) for each in parameters)
        weights.append(of("Transpose", of("Mul", of("Sub", wide, moved), spread), perm=(0, 2, 1)))
    others = [of.input(index) if of.has(index) else "" for index in range(3, 8)]
    of.write("LSTM", (of.input(0), *weights, *others), of.node.outputs, of.node.attrs)
    return of.nodes


REWRITES.register_all(
    {
        "BiasGelu Gelu": lambda of: of.finish(of("Gelu", of.plus(of.input(0), 1), approximate="none")),
        "FastGelu": lambda of: of.finish(of("Gelu", of.plus(of.input(0), 1), approximate="tanh")),
        "GemmFastGelu": lambda of: of.finish(
            of("Gelu", of.plus(of("MatMul", of.input(0), of.input(1)), 2), approximate="tanh")
        ),
        "BiasAdd": lambda of: of.finish(of("Add", of("Add", of.input(0), of.input(1)), of.input(2))),
        "QuickGelu": lambda of: of.finish(_gated(of, of.input(0), float(of.attr("alpha", 1.702)))),
        "Tokenizer": lambda of: of.same("opbuild"),
        "Trilu": lambda of: of.finish(of("Trilu", of.input(0), *_scalars(of, 1), upper=int(of.attr("upper", 1)))),
        "ExpandDims": lambda of: of.finish(
            of("Unsqueeze", of.input(0), of.reshape(of.cast(of.input(1), "int64", of.dtype(1)), (1,)))
        ),
        "GatherND": lambda of: of.finish(of("GatherND", of.input(0), of.cast(of.input(1), "int64", of.dtype(1)))),
        "TorchEmbedding": lambda of: of.finish(of("Gather", of.input(0), of.input(1), axis=0)),
        "SampleOp": lambda of: of.finish(of.input(0)),
        "MulInteger": lambda of: of.finish(of("Mul", _centred(of, 0), _centred(of, 2))),
        "MatMulInteger16": lambda of: of.finish(of("MatMul", *(of.cast(of.input(i), "int32") for i in (0, 1)))),
        "ReduceSumInteger": lambda of: of.finish(
            _over_axes(of, "ReduceSum", of.cast(of.input(0), "int32" if of.dtype(0) == "int8" else "uint32"))
        ),
    },
    MICROSOFT,
)
REWRITES.register_all(
    {
        "MaxPool AveragePool GlobalAveragePool GlobalMaxPool": lambda of: of.finish(
            of(of.node.op_type, of.input(0), **of.attributes(POOL))
        )
    },
    NCHWC,
)
