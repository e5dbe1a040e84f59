"""Operators as classes: each has its name, its function, and its constructor's parameters with the defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError, defaults_of
from opbuild.mindspore.dtype import float32, int32, int64, to_type
from opbuild.mindspore.execution import array_of, cast, emit, on_data
from opbuild.mindspore.initializer import truncated
from opbuild.mindspore.ops import (
    arithmetic,
    arranging,
    control,
    images,
    loss,
    matrices,
    normalization,
    pooling,
    random,
    reduction,
    shaping,
)
from opbuild.mindspore.ops.declaration import Primitive, formula, need_tensor, operator, primitive
from opbuild.mindspore.ops.pooling import averaged, conv, conv_transpose, interpolate, pool
from opbuild.mindspore.ops.random import dropped
from opbuild.mindspore.ops.reduction import bias_add, product
from opbuild.mindspore.ops.reduction import sum as total
from opbuild.mindspore.ops.shaping import gather
from opbuild.mindspore.tensor import Tensor


# Activations
@operator
def Softmax(logits: Any, *, axis: int | tuple[int, ...] = -1) -> Tensor:
    """Return the softmax along one axis."""
    if isinstance(axis, tuple):
        if len(axis) != 1:
            raise ArgumentValueError(f"Softmax along the axes {axis}", "give one axis; flatten the others first")
        axis = axis[0]
    return arithmetic.softmax(logits, axis)


# Reductions
def _reduction(op_type: str) -> Callable[..., Tensor]:
    def function(x: Any, axis: Any = (), *, keep_dims: bool) -> Tensor:
        return reduction.reduce(op_type, need_tensor(x, op_type), axis, keep_dims)

    function.__doc__ = f"Apply {op_type} over ``axis``, over all if it is empty."
    return function


@operator
def ReduceSum(x: Any, axis: Any = (), *, keep_dims: bool = False, skip_mode: bool = False) -> Tensor:
    """Return the sum over ``axis``; an empty axis means all, or with ``skip_mode`` none."""
    tensor = need_tensor(x, "ReduceSum")
    if skip_mode and (axis is None or axis == ()):
        return tensor
    if tensor.type.dtype == "bool":
        tensor = cast(tensor, "int64")
    return reduction.reduce("ReduceSum", tensor, axis, keep_dims)


def _index_of(op_type: str, which: str) -> Callable[..., Tensor]:
    def function(x: Any, axis: int, output_type: Any) -> Tensor:
        tensor = need_tensor(x, op_type)
        return reduction.index_of(op_type, tensor, axis, False, to_type(output_type).name)

    function.__doc__ = f"Return the index of the {which} element along ``axis``."
    return function


def _with_value(op_type: str, extreme: str) -> Callable[..., tuple[Tensor, Tensor]]:
    def function(x: Any, axis: int, keep_dims: bool) -> tuple[Tensor, Tensor]:
        tensor = need_tensor(x, op_type)
        index = reduction.index_of(op_type, tensor, axis, keep_dims, "int64")
        return index, reduction.reduce(extreme, tensor, axis, keep_dims)

    function.__doc__ = f"Return the index ({op_type}) and the value along ``axis``."
    return function


def _running(op_type: str) -> Callable[..., Tensor]:
    def function(x: Any, axis: Any, exclusive: bool, reverse: bool) -> Tensor:
        tensor = need_tensor(x, op_type)
        place = np.asarray(int(axis) % tensor.ndim, np.int64)
        return emit(op_type, tensor, place, exclusive=int(exclusive), reverse=int(reverse))

    return function


# Products, orders and decompositions
@operator
def NLLLoss(x: Any, y: Any, weight: Any, *, reduction: str = "mean", ignore_index: int = -100) -> tuple[Tensor, Tensor]:
    """Return the loss and the weights that count."""
    used = gather(weight, y, 0)
    return loss.nll_loss(x, y, weight, ignore_index, reduction), total(used)


@operator
@on_data
def NthElement(input: Any, n: Any, *, reverse: bool = False) -> Any:
    """Return the ``n``-th smallest (or greatest) element along the last axis."""
    ordered = np.sort(input, -1)
    place = int(np.asarray(n))
    return ordered[..., -1 - place if reverse else place]


@operator
@on_data
def MatrixTriangularSolve(matrix: Any, rhs: Any, *, lower: bool = True, adjoint: bool = False) -> Any:
    """Return X of ``matrix @ X = rhs`` for triangular matrices."""
    half = np.tril(matrix) if lower else np.triu(matrix)
    return np.linalg.solve(np.swapaxes(half, -1, -2) if adjoint else half, rhs)


@operator
@on_data
def TridiagonalMatMul(superdiag: Any, maindiag: Any, subdiag: Any, rhs: Any) -> Any:
    """Return the product of a matrix of three diagonals and ``rhs``."""
    result = maindiag[..., 0, :, None] * rhs
    result[..., :-1, :] += superdiag[..., 0, :-1, None] * rhs[..., 1:, :]
    result[..., 1:, :] += subdiag[..., 0, 1:, None] * rhs[..., :-1, :]
    return result


# Random numbers
def _seeded(function: Any, doc: str = "") -> Any:
    """Return a function that takes a primitive's two seeds as one."""

    def drawn(*operands: Any, seed: int, seed2: int, **named: Any) -> Any:
        return function(*operands, seed=_seed(seed, seed2), **named)

    drawn.__doc__ = doc or function.__doc__
    return drawn


def _seed(seed: int, seed2: int) -> int | None:
    return seed * 65537 + seed2 if seed or seed2 else None


@operator
@on_data
def CheckNumerics(x: Any) -> Any:
    """Return the tensor if its elements are finite."""
    for name, found in (("Inf", np.isinf(x).any()), ("NaN", np.isnan(x).any())):
        if found:
            raise ArgumentValueError(f"CheckNumerics was given a tensor with {name} values")
    return x


@operator
def CumulativeLogsumexp(x: Any, axis: Any, *, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Return the logarithms of the running sums of ``exp(x)``."""
    if exclusive:
        raise ArgumentValueError("CumulativeLogsumexp was given exclusive=True", "opbuild has it for exclusive=False")
    place = int(axis)
    turned = shaping.flip(x, (place,)) if reverse else x
    result = reduction.logcumsumexp(turned, place)
    return shaping.flip(result, (place,)) if reverse else result


# Convolution and pooling
@operator
def Conv2D(x: Any, weight: Any, *, out_channel: int, kernel_size: Any, mode: int = 1, pad_mode: str = "valid",
           pad: Any = 0, stride: Any = 1, dilation: Any = 1, group: int = 1,
           data_format: str = "NCHW") -> Tensor:  # fmt: skip
    """Return a convolution over two spatial axes."""
    expected = (kernel_size,) * 2 if isinstance(kernel_size, int) else tuple(kernel_size)
    if weight.shape[0] != out_channel or weight.shape[2:] != expected:
        raise ArgumentValueError(
            f"Conv2D with out_channel={out_channel}, kernel_size={kernel_size} was given a weight of {weight.shape}",
            "its shape is (out_channel, channels / group, kernel height, kernel width)",
        )
    return conv(x, weight, None, stride, pad_mode, pad, dilation, group)


@operator
def ResizeNearestNeighbor(x: Any, *, size: Any, align_corners: bool = False,
                          half_pixel_centers: bool = False) -> Tensor:  # fmt: skip
    """Return the tensor resized to ``size`` by its nearest elements."""
    if align_corners or half_pixel_centers:
        raise ArgumentValueError("ResizeNearestNeighbor with align_corners or half_pixel_centers", "use its defaults")
    return interpolate(x, tuple(size))


# Normalization
@operator
def LayerNorm(x: Any, gamma: Any, beta: Any, *, begin_norm_axis: int = 1, begin_params_axis: int = 1,
              epsilon: float = 1e-7) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the tensor normalized from an axis on, the mean and the variance."""
    tensor = need_tensor(x, "LayerNorm")
    axis = begin_norm_axis % tensor.ndim
    axes = tuple(range(axis, tensor.ndim))
    mean, variance = reduction.mean(tensor, axes, True), reduction.var(tensor, axes, 0, True)
    if begin_params_axis % tensor.ndim == axis:
        return normalization.normalized(tensor, gamma, beta, axis, epsilon), mean, variance
    plain = normalization.normalized(tensor, None, None, axis, epsilon)
    return arithmetic.add(arithmetic.mul(plain, gamma), beta), mean, variance


# Shapes
@operator
def Split(x: Any, *, axis: int = 0, output_num: int = 1) -> tuple[Tensor, ...]:
    """Return the tensor in ``output_num`` equal parts along ``axis``."""
    extent = x.shape[axis]
    if extent % output_num:
        raise ArgumentValueError(f"Split of size {extent} into {output_num} parts", "the parts must be equal")
    return shaping.split(x, extent // output_num, axis)


def _filled_up(sizes: Any, extent: int) -> tuple[int, ...]:
    """Return sizes with the rest for -1."""
    return tuple(extent - sum(item for item in sizes if item > 0) if item == -1 else item for item in sizes)


@operator
def PadV3(x: Any, paddings: Any, constant_value: Any = 0, *, mode: str = "constant",
          paddings_contiguous: bool = True) -> Tensor:  # fmt: skip
    """Return the tensor with elements added around it: pairs for the last axis first."""
    amounts = list(shaping.ints(paddings, "the paddings"))
    if not paddings_contiguous:
        half = len(amounts) // 2
        amounts = [item for pair in zip(amounts[:half], amounts[half:], strict=True) for item in pair]
    value = constant_value.item() if isinstance(constant_value, Tensor) else constant_value
    names = {"edge": "replicate"}
    return shaping.pad(x, amounts, names.get(mode, mode), value if mode == "constant" else None)


@operator
@on_data
def FillDiagonal(input_x: Any, *, fill_value: float, wrap: bool = False) -> Any:
    """Return the tensor with ``fill_value`` on its diagonal."""
    result = input_x.copy()
    np.fill_diagonal(result, fill_value, wrap)
    return result


@operator
def DataFormatVecPermute(x: Any, *, src_format: str = "NHWC", dst_format: str = "NCHW") -> Tensor:
    """Return extents of one format in the order of another."""
    spatial = src_format.replace("N", "").replace("C", "")
    letters = src_format if x.shape[:1] == (len(src_format),) else spatial
    wanted = [letter for letter in dst_format if letter in letters]
    return gather(x, Tensor.of(np.array([letters.index(letter) for letter in wanted])), 0)


# Gather and scatter
def _bound(sequence: Any, values: Any, out_type: Any, right: bool) -> Tensor:
    return cast(arranging.searchsorted(sequence, values, right=right), to_type(out_type).name)


def _consecutive(x: Any, return_inverse: bool, return_counts: bool, dim: int | None) -> Any:
    values, inverse, counts = arranging.unique_consecutive(x, True, True, dim)
    empty = Tensor.of(np.zeros(0, np.int64))
    return values, inverse if return_inverse else empty, counts if return_counts else empty


# Images, boxes, poolings
@operator
def AdaptiveMaxPool3D(x: Any, output_size: Any) -> tuple[Tensor, Tensor]:
    """Return the greatest elements of windows that give ``output_size``, a tensor, and their places (int32)."""
    found, places = pooling.adaptive_with_indices(x, output_size.asnumpy().tolist(), 3)
    return found, cast(places, "int32")


def _resized(mode: str) -> Any:
    return formula(
        "images of another size",
        lambda image, size, align_corners=False, half_pixel_centers=False: pooling.resized(
            image, shaping.ints(size, "the size"), mode, align_corners, half_pixel_centers
        ),
    )


BiasAdd = primitive(lambda x, bias, *, data_format="NCHW": bias_add(x, bias),
    "Return the tensor plus one number for each channel.")  # fmt: skip
BatchNorm = primitive(
    lambda x, scale, bias, mean, variance, *, is_training=False, epsilon=1e-5, momentum=0.1, data_format="NCHW": (
        normalization.batch_norm(x, mean, variance, scale, bias, is_training, momentum, epsilon),
        mean, variance, mean, variance),
    "Return the tensor normalized for each channel, and the statistics used.")  # fmt: skip
L2Loss = primitive(lambda x: arithmetic.mul(reduction.reduce_sum(arithmetic.square(x)), 0.5),
    "Return half the sum of squares.")  # fmt: skip
SquareSumAll = primitive(
    lambda x, y: (reduction.reduce_sum(arithmetic.square(x)), reduction.reduce_sum(arithmetic.square(y))),
    "Return the sums of squares of two tensors.")  # fmt: skip
TensorShape = primitive(lambda x: Tensor.of(np.array(shaping.shape(x), np.int64)),
    "Return the extents as a tensor.")  # fmt: skip
UnravelIndex = primitive(
    on_data(lambda indices, dims: np.array(np.unravel_index(indices, tuple(dims))).astype(indices.dtype)),
    "Return the coordinates of places in a flattened tensor, a column each.")  # fmt: skip
EqualCount = primitive(on_data(lambda x, y: np.array([(x == y).sum()], x.dtype)),
    "Return the number of elements that are equal.")  # fmt: skip
CumSum = primitive(_running("CumSum"), "Return the running sums along ``axis``.", exclusive=False, reverse=False)
CumProd = primitive(_running("CumProd"), "Return the running products along ``axis``.", exclusive=False, reverse=False)
Bincount = primitive(lambda array, size, weights: arranging.bincount(array, weights, int(size))[: int(size)],
    "Return the sums of the weights of each integer below ``size``.")  # fmt: skip
EmbeddingLookup = primitive(
    lambda input_params, input_indices, offset=0:
        gather(input_params, input_indices - offset if offset else input_indices, 0),
    "Return the rows that ``input_indices`` less ``offset`` names.")  # fmt: skip
HShrink = primitive(arithmetic.hardshrink, lambd=0.5)
GeLU = Gelu = primitive(lambda x: arithmetic.gelu(x, "tanh"),
    "Return the GELU with tanh, which is MindSpore's primitive.")  # fmt: skip
ReduceAll = primitive(lambda x, axis=(), *, keep_dims=False: reduction.all(x, axis, keep_dims))
ReduceAny = primitive(lambda x, axis=(), *, keep_dims=False: reduction.any(x, axis, keep_dims))
ReduceMax = primitive(_reduction("ReduceMax"), keep_dims=False)
ReduceMean = primitive(_reduction("ReduceMean"), keep_dims=False)
ReduceMin = primitive(_reduction("ReduceMin"), keep_dims=False)
ReduceProd = primitive(_reduction("ReduceProd"), keep_dims=False)
Argmax = primitive(_index_of("ArgMax", "greatest"), axis=-1, output_type=int32)
Argmin = primitive(_index_of("ArgMin", "smallest"), axis=-1, output_type=int32)
ArgMaxWithValue = primitive(_with_value("ArgMax", "ReduceMax"), axis=0, keep_dims=False)
ArgMinWithValue = primitive(_with_value("ArgMin", "ReduceMin"), axis=0, keep_dims=False)
MatMul = primitive(
    lambda a, b, *, transpose_a=False, transpose_b=False: product(a, b, transpose_a, transpose_b, "MatMul", 2),
    "Return the product of two matrices, each transposed first if asked.")  # fmt: skip
BatchMatMul = primitive(
    lambda a, b, *, transpose_a=False, transpose_b=False: product(a, b, transpose_a, transpose_b, "BatchMatMul", None),
    "Return the products of two stacks of matrices, each matrix transposed first if asked.")  # fmt: skip
BCEWithLogitsLoss = primitive(
    lambda x, y, weight=None, pos_weight=None, *, reduction="mean":
        loss.binary_cross_entropy_with_logits(x, y, weight, pos_weight, reduction),
    "Return the cross entropy of ``sigmoid(x)`` and labels, reduced.")  # fmt: skip
KLDivLoss = primitive(loss.kl_div, reduction="mean")
MultiMarginLoss = primitive(
    lambda x, target, weight=None, *, p=1, margin=1.0, reduction="mean":
        loss.multi_margin_loss(x, target, p, margin, weight, reduction))  # fmt: skip
MultilabelMarginLoss = primitive(loss.multilabel_margin, reduction="mean")
SigmoidCrossEntropyWithLogits = primitive(lambda x, y: loss.binary_cross_entropy_with_logits(x, y, reduction="none"))
SoftmaxCrossEntropyWithLogits = primitive(loss.softmax_cross_entropy)
SparseSoftmaxCrossEntropyWithLogits = primitive(loss.sparse_softmax_cross_entropy, "", "", is_grad=False)
Logit = primitive(arithmetic.logit, eps=-1.0)
CountNonZero = primitive(lambda x, *, dims=None: reduction.count_nonzero(x, () if dims is None else dims, False, int64),
    "Return how many elements over ``dims`` are not zero, as int64.")  # fmt: skip
Histogram = primitive(arranging.histc, bins=100, min=0.0, max=0.0)
HistogramFixedWidth = primitive(arranging.histogram_fixed_width, "", "nbins", nbins=..., dtype="int32")
ReduceStd = primitive(
    lambda x, *, axis=(), unbiased=True, keep_dims=False: reduction.std_mean(x, axis or None, int(unbiased), keep_dims),
    "Return the standard deviation and the mean.")  # fmt: skip
LpNorm = primitive(matrices.vector_norm, "Return the norm of order ``p`` over axes.", "p axis keep_dims", axis=..., p=2,
    keep_dims=False, epsilon=1e-12)  # fmt: skip
Quantile = primitive(
    lambda x, q, *, dim=None, keep_dims=False, ignore_nan=False:
        (reduction.nanquantile if ignore_nan else reduction.quantile)(x, q, dim, keep_dims),
    "Return the elements at the shares ``q`` of the order.")  # fmt: skip
Cross = primitive(matrices.cross, dim=-65530)
Renorm = primitive(matrices.renorm, "", "p dim maxnorm", p=..., dim=..., maxnorm=...)
Median = primitive(
    lambda x, *, global_median=False, axis=0, keep_dims=False, ignore_nan=False:
        reduction.median(shaping.ravel(x), 0) if global_median
        else (reduction.nanmedian if ignore_nan else reduction.median)(x, axis, keep_dims),
    "Return the middle element and its index.")  # fmt: skip
Svd = primitive(
    lambda x, *, full_matrices=False, compute_uv=True:
        matrices.svd(x, full_matrices) if compute_uv
        else (matrices.svd(x, compute_uv=False), *[shaping.zeros(1, x.dtype)] * 2),
    "Return the singular values and vectors; zeros for the vectors if they are not asked for.")  # fmt: skip
DataFormatDimMap = primitive(
    lambda x, *, src_format="NHWC", dst_format="NCHW": gather(
        Tensor.of(np.array([src_format.index(letter) for letter in dst_format], np.int32)),
        Tensor.of(x.asnumpy() % len(dst_format)), 0),
    "Return dimensions of one format in another.")  # fmt: skip
Einsum = primitive(lambda tensors, *, equation: matrices.einsum(equation, *tensors),
    "Return the sum of products that the equation describes.")  # fmt: skip
Lstsq = primitive(matrices.lstsq, "Return X with the least squares of ``matrix @ X - rhs``.", "", fast=True,
    l2_regularizer=0.0)  # fmt: skip
Qr = primitive(lambda x, *, full_matrices=False: matrices.qr(x, "complete" if full_matrices else "reduced"),
    "Return an orthogonal and an upper triangular factor.")  # fmt: skip
RandomCategorical = primitive(random.random_categorical, dtype=int64)
RandomChoiceWithMask = primitive(_seeded(random.choice_with_mask), count=256, seed=0, seed2=0)
RandomShuffle = primitive(_seeded(random.shuffle), seed=0, seed2=0)
RandpermV2 = primitive(random.randperm, seed=0, offset=0, dtype=int64)
Gamma = primitive(_seeded(random.gamma), seed=0, seed2=0)
Multinomial = primitive(
    lambda x, num_samples, *, seed=0, seed2=0, dtype=int32:
        cast(random.multinomial(x, int(num_samples), True, _seed(seed, seed2)), dtype.name),
    "Return indices drawn with the probabilities of each row.")  # fmt: skip
Poisson = primitive(
    lambda shape, mean, *, seed=0, seed2=0: cast(random.poisson(shape, mean, _seed(seed, seed2)), "int32"),
    "Return integers (int32) drawn from Poisson distributions.")  # fmt: skip
StandardLaplace = primitive(_seeded(random.standard_laplace), seed=0, seed2=0)
StandardNormal = primitive(_seeded(random.standard_normal), seed=0, seed2=0)
TruncatedNormal = primitive(
    lambda shape, *, dtype=float32, seed=0, seed2=0: random.drawn(
        "TruncatedNormal", lambda generator: truncated(generator, tuple(shape)), dtype, _seed(seed, seed2)),
    "Return numbers drawn from the normal distribution within 2 deviations.")  # fmt: skip
UniformInt = primitive(
    _seeded(lambda shape, low, high, seed: random.uniform(shape, low, high, seed, int32),
                          "Return integers (int32) drawn evenly from the first number to below the second."),
    seed=0, seed2=0)  # fmt: skip
UniformReal = primitive(
    _seeded(lambda shape, seed: random.uniform(shape, 0.0, 1.0, seed), "Return numbers drawn evenly from [0, 1)."),
    seed=0, seed2=0)  # fmt: skip
BartlettWindow = primitive(shaping.bartlett_window, periodic=True, dtype=float32)
BlackmanWindow = primitive(shaping.blackman_window, periodic=True, dtype=float32)
HammingWindow = primitive(shaping.hamming_window, periodic=True, alpha=0.54, beta=0.46, dtype=float32)
LogSpace = primitive(shaping.logspace, steps=10, base=10, dtype=float32)
Dropout = primitive(lambda x, *, keep_prob=0.5, Seed0=0, Seed1=0: dropped(x, keep_prob, x.type.dtype))
Meshgrid = primitive(lambda inputs, *, indexing="xy": shaping.meshgrid(*inputs, indexing=indexing))
Pad = primitive(
    lambda x, *, paddings: shaping.pad(x, [amount for pair in reversed(tuple(paddings)) for amount in pair]),
    "Return the tensor with zeros around it, a pair of amounts for each axis.")  # fmt: skip
ReverseV2 = primitive(shaping.flip, "", "axis", axis=...)
Squeeze = primitive(shaping.squeeze, axis=())
Unstack = Unpack = primitive(shaping.unstack, "", "axis", axis=0, num=None)
Range = primitive(shaping.arange, "", "", maxlen=1000000)
BatchToSpace = primitive(images.batch_to_space_nd, "", "block_size crops", block_size=..., crops=...)
BatchToSpaceNDV2 = primitive(
    lambda x, block, crops:
        images.batch_to_space_nd(x, shaping.ints(block, "block_shape"), array_of(crops)))  # fmt: skip
ChannelShuffle = primitive(images.channel_shuffle, "", "group", group=...)
FillV2 = primitive(lambda shape, value: shaping.full(shape, value, dtype=value.dtype))
MatrixDiagPartV3 = primitive(arranging.matrix_diag_part, align="RIGHT_LEFT")
MatrixDiagV3 = primitive(arranging.matrix_diag, align="RIGHT_LEFT")
MatrixSetDiagV3 = primitive(arranging.matrix_set_diag, align="RIGHT_LEFT")
SpaceToBatch = primitive(images.space_to_batch_nd, block_size=..., paddings=...)
SpaceToBatchND = primitive(images.space_to_batch_nd, "", "block_shape paddings", block_shape=..., paddings=...)
SplitV = primitive(
    lambda x, *, size_splits, split_dim, num_split:
        shaping.split(x, _filled_up(size_splits, x.shape[split_dim]), split_dim))  # fmt: skip
TrilIndices = primitive(arranging.tril_indices, row=..., col=..., offset=0, dtype=int32)
TriuIndices = primitive(arranging.triu_indices, row=..., col=..., offset=0, dtype=int32)
IdentityN = primitive(lambda x: tuple(x))
IndexPut = primitive(lambda x, v, indices, *, accumulate=0: arranging.index_put(x, indices, v, bool(accumulate)))
InplaceUpdateV2 = primitive(lambda x, indices, v: arranging.inplace_update(x, v, indices))
globals().update({
    f"Scatter{places}{how}": primitive(
        getattr(arranging, f"scatter_{nd}{how.lower()}"), "", "", use_locking=how == "Update")
    for places, nd in (("", ""), ("Nd", "nd_")) for how in ("Add", "Div", "Max", "Min", "Mul", "Sub", "Update")
})  # fmt: skip
Bucketize = primitive(lambda x, *, boundaries: arranging.bucketize(x, np.asarray(boundaries, np.float64), right=True))
ListDiff = primitive(arranging.list_diff, out_idx=int32)
LowerBound = primitive(lambda x, values, *, out_type=int32: _bound(x, values, out_type, False))
SearchSorted = primitive(
    lambda sequence, values, sorter=None, *, dtype=int64, right=False:
        cast(arranging.searchsorted(sequence, values, right=right, sorter=sorter), to_type(dtype).name))  # fmt: skip
UniqueConsecutive = primitive(
    lambda x, *, return_inverse=False, return_counts=False, dim=None:
        _consecutive(x, return_inverse, return_counts, dim))  # fmt: skip
UpperBound = primitive(lambda x, values, *, out_type=int32: _bound(x, values, out_type, True))
AdaptiveMaxPool2D = primitive(lambda x, *, output_size: pooling.adaptive_with_indices(x, output_size, 2))
Col2Im = primitive(images.col2im, "", "kernel_size dilation padding stride", kernel_size=..., dilation=1, padding=0,
    stride=1)  # fmt: skip
GridSampler2D = primitive(images.grid_sample, "", "interpolation_mode padding_mode align_corners",
    interpolation_mode="bilinear", padding_mode="zeros", align_corners=False)  # fmt: skip
MaxPoolWithArgmaxV2 = primitive(
    lambda x, *, kernel_size, strides=None, pads=0, dilation=(1, 1), ceil_mode=False, argmax_type=int64:
        pooling.with_indices(x, kernel_size, strides or kernel_size, pads, dilation, ceil_mode, 2))  # fmt: skip
MaxPool3DWithArgmax = primitive(
    lambda x, *, ksize, strides, pads, dilation=(1, 1, 1), ceil_mode=False, data_format="NCDHW", argmax_type=int64:
        pooling.with_indices(x, ksize, strides, pads, dilation, ceil_mode, 3))  # fmt: skip
MaxUnpool2D = primitive(pooling.max_unpool2d, "", "ksize strides pads output_shape", ksize=..., strides=0, pads=0,
    output_shape=(), data_format="NCHW")  # fmt: skip
MaxUnpool3D = primitive(pooling.max_unpool3d, "", "ksize strides pads output_shape", ksize=..., strides=0, pads=0,
    output_shape=(), data_format="NCDHW")  # fmt: skip
MaxPool = primitive(
    lambda x, *, kernel_size=1, strides=1, pad_mode="valid", data_format="NCHW":
        pool("MaxPool", x, kernel_size, strides, pad_mode, 0, False, 2),
    "Return the greatest element under a window.")  # fmt: skip
AvgPool = primitive(
    lambda x, *, kernel_size=1, strides=1, pad_mode="valid", data_format="NCHW":
        averaged(x, kernel_size, strides, pad_mode, 0, False, False, None, 2),
    "Return the mean under a window.")  # fmt: skip
Conv2DTranspose = primitive(
    lambda x, weight, output_size=None, *, out_channel, kernel_size, pad_mode="valid", pad=0, pad_list=None, mode=1,
        stride=1, dilation=1, group=1, data_format="NCHW":
        conv_transpose(x, weight, None, stride, pad_mode, pad if pad_list is None else pad_list, 0, dilation, group),
    "Return a transposed convolution over two spatial axes.")  # fmt: skip
AvgPool3D = primitive(
    lambda x, *, kernel_size=1, strides=1, pad_mode="valid", pad=0, ceil_mode=False, count_include_pad=True,
        divisor_override=0, data_format="NCDHW":
        averaged(x, kernel_size, strides, pad_mode, pad, ceil_mode, count_include_pad, divisor_override,
            3))  # fmt: skip
MaxPool3D = primitive(
    lambda x, *, kernel_size=1, strides=1, pad_mode="VALID", pad_list=0, ceil_mode=None, data_format="NCDHW":
        pool("MaxPool", x, kernel_size, strides, pad_mode, pad_list, bool(ceil_mode), 3))  # fmt: skip
Conv3D = primitive(
    lambda x, weight, *, out_channel, kernel_size, mode=1, pad_mode="valid", pad=0, stride=1, dilation=1, group=1,
        data_format="NCDHW":
        conv(x, weight, None, stride, pad_mode, pad, dilation, group, 3))  # fmt: skip
Conv3DTranspose = primitive(
    lambda x, weight, *, in_channel, out_channel, kernel_size, mode=1, pad_mode="valid", pad=0, stride=1,
        dilation=1, group=1, output_padding=0, data_format="NCDHW":
        conv_transpose(x, weight, None, stride, pad_mode, pad, output_padding, dilation, group, 3))  # fmt: skip
Dropout2D = primitive(lambda x, *, keep_prob=0.5: dropped(x, keep_prob, "bool", 2))
Dropout3D = primitive(lambda x, *, keep_prob=0.5: dropped(x, keep_prob, "bool", 3))
ResizeBilinearV2 = primitive(_resized("linear"), align_corners=False, half_pixel_centers=False)
ResizeBicubic = primitive(_resized("cubic"), align_corners=False, half_pixel_centers=False)
ResizeNearestNeighborV2 = primitive(_resized("nearest"), align_corners=False, half_pixel_centers=False)
ResizeLinear1D = primitive(
    lambda x, size, coordinate_transformation_mode: pooling.resized(
        x, shaping.ints(size, "the size"), "linear", coordinate_transformation_mode == "align_corners",
        coordinate_transformation_mode == "half_pixel"),
    coordinate_transformation_mode="align_corners")  # fmt: skip

_PLAIN = """
    ACos Abs Acosh Add AddN Addcdiv Addcmul Angle Asin Asinh Assign AssignAdd AssignSub Atan Atan2 Atanh BesselI0
    BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Betainc
    BitwiseAnd BitwiseOr BitwiseXor Cast Ceil CheckValid Conj Cos Cosh DType Dense Depend Diag DiagPart Digamma Div
    DivNoNan Eps Equal Erf Erfc Erfinv Exp Expand ExpandDims Expm1 Eye FastGeLU Fill Fills Flatten Floor FloorDiv
    FloorMod Fmax Fmin GatherD GatherNd Gcd Geqrf Ger Greater GreaterEqual Heaviside Hypot Identity Igamma Igammac Imag
    IndexFill InvertPermutation IsFinite IsInf IsNan Lcm Lerp Less LessEqual Lgamma LinSpace Log Log1p
    LogMatrixDeterminant LogicalAnd LogicalNot LogicalOr LogicalXor LuSolve MaskedFill MaskedScatter MaskedSelect
    MatrixBandPart MatrixDeterminant MatrixExp Maximum Minimum Mish Mul MulNoNan Neg NextAfter NonZero NotEqual Ones
    OnesLike Orgqr PReLU Polygamma PopulationCount Pow Rank ReLU ReLU6 Real Reciprocal Reshape Round Rsqrt
    ScalarToTensor ScatterNd SeLU SegmentMax SegmentMean SegmentMin SegmentProd SegmentSum Select Shape Sigmoid Sign
    Sin Sinc Sinh Size Slice Softplus Softsign Sqrt Square SquaredDifference StopGradient Sub Tan Tanh TensorScatterAdd
    TensorScatterDiv TensorScatterMax TensorScatterMin TensorScatterMul TensorScatterSub TensorScatterUpdate Tile Trace
    Transpose Trunc TruncateDiv TruncateMod TupleToArray Unique UniqueWithPad UnsortedSegmentMax UnsortedSegmentMin
    UnsortedSegmentProd UnsortedSegmentSum Xdivy Xlogy Zeros ZerosLike Zeta
"""
"""Operators that are called as functions are, but for case and underscores: those whose constructor takes nothing."""

_WITH_ATTRIBUTES = dict(  # noqa: C408 - a row reads as the call
    AdaptiveAvgPool2D="output_size", AdaptiveAvgPool3D="output_size", AffineGrid="align_corners",
    ApproximateEqual="tolerance", BatchToSpaceND="block_shape crops", BinaryCrossEntropy="reduction",
    BoundingBoxDecode="max_shape means stds wh_ratio_clip", BoundingBoxEncode="means stds", BroadcastTo="shape",
    Cdist="p", CeLU="alpha", Cholesky="upper", CholeskyInverse="upper", CholeskySolve="upper", Concat="axis",
    Cummax="axis", Cummin="axis", DepthToSpace="block_size", Elu="alpha", EuclideanNorm="keep_dims", GLU="axis",
    Gather="batch_dims", IOU="mode", Im2Col="ksizes strides dilations pads", InTopK="k",
    IndexAdd="axis use_lock check_index_bound", InplaceAdd="indices", InplaceIndexAdd="axis", InplaceSub="indices",
    InplaceUpdate="indices", IsClose="rtol atol equal_nan", L2Normalize="axis epsilon",
    LRN="depth_radius bias alpha beta norm_region", LogSoftmax="axis", LuUnpack="unpack_data unpack_pivots",
    MatrixInverse="adjoint", MatrixPower="n", MatrixSolve="adjoint", MirrorPad="mode", Mvlgamma="p",
    NMSWithMask="iou_threshold", NanToNum="nan posinf neginf", NuclearNorm="dim keepdim", OneHot="axis",
    Ormqr="left transpose", Padding="pad_dim_size", Pdist="p", ReverseSequence="seq_dim batch_dim", RmsNorm="epsilon",
    Roll="shifts dims", ScatterAddWithAxis="axis", SmoothL1Loss="beta reduction", SoftMarginLoss="reduction",
    SoftShrink="lambd", Sort="axis descending", SpaceToDepth="block_size", Stack="axis",
    StridedSlice="begin_mask end_mask ellipsis_mask new_axis_mask shrink_axis_mask",
    TensorScatterElements="axis reduction", TopK="sorted", Tril="diagonal", TripletMarginLoss="p swap eps reduction",
    Triu="diagonal",
)  # fmt: skip
"""Of others the arguments of the function that the constructor takes, in order, with the function's defaults."""

_OTHERWISE = dict(  # noqa: C408
    AccumulateNV2="accumulate_n", ConjugateTranspose="transpose", HSigmoid="hardsigmoid", HSwish="hardswish",
    Invert="bitwise_not", LeftShift="bitwise_left_shift", LerpScalar="lerp", Mod="fmod", ParallelConcat="concat",
    RealDiv="div", RightShift="bitwise_right_shift", Rint="round", ScatterNonAliasingAdd="scatter_nd_add",
)  # fmt: skip
"""Without attributes too: the names of those functions that are called otherwise."""

_ALSO = {"FastGelu": "FastGeLU", "GatherV2": "Gather", "Inv": "Reciprocal", "Pack": "Stack", "TensorAdd": "Add"}

_MODULES = (arithmetic, arranging, control, images, loss, matrices, normalization, pooling, random, reduction, shaping)
_KNOWN = {name.replace("_", ""): function for module in _MODULES for name, function in sorted(vars(module).items())
          if callable(function) and function.__module__ == module.__name__}  # fmt: skip
"""Functions by their names as those of classes are compared with them."""

_NAMESAKES = {**dict.fromkeys(_PLAIN.split(), ""), **_WITH_ATTRIBUTES}
globals().update({name: primitive(_KNOWN[name.lower()], **defaults_of(_KNOWN[name.lower()], attributes))
                  for name, attributes in _NAMESAKES.items()})  # fmt: skip
globals().update({name: primitive(_KNOWN[function.replace("_", "")]) for name, function in _OTHERWISE.items()})
globals().update({name: globals()[listed] for name, listed in _ALSO.items()})
names.call_rows(vars(), __name__)
__all__ = names.public(vars(), Primitive)
