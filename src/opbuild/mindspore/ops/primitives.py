"""The operators as classes: ``ops.Square()``, ``ops.Softmax(axis=-1)``, ...

Each line names MindSpore's class, what computes it, and the attributes of its constructor with MindSpore's defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.dtype import int32, to_type
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.ops import activation, arithmetic, comparison, creation, gathering, normalization, reduction, shaping
from opbuild.mindspore.ops.convolution import conv, conv_transpose
from opbuild.mindspore.ops.linear import bias_add, dense, product
from opbuild.mindspore.ops.pooling import adaptive_avg_pool2d, averaged, interpolate, pool
from opbuild.mindspore.ops.primitive import Primitive, primitive
from opbuild.mindspore.tensor import Tensor

# Arithmetic
Abs = primitive("Abs", arithmetic.abs)
Add = primitive("Add", arithmetic.add)
AddN = primitive("AddN", arithmetic.addn)
Addcdiv = primitive("Addcdiv", arithmetic.addcdiv)
Addcmul = primitive("Addcmul", arithmetic.addcmul)
ACos = primitive("ACos", arithmetic.acos)
Acosh = primitive("Acosh", arithmetic.acosh)
Asin = primitive("Asin", arithmetic.asin)
Asinh = primitive("Asinh", arithmetic.asinh)
Atan = primitive("Atan", arithmetic.atan)
Atan2 = primitive("Atan2", arithmetic.atan2)
Atanh = primitive("Atanh", arithmetic.atanh)
Ceil = primitive("Ceil", arithmetic.ceil)
Cos = primitive("Cos", arithmetic.cos)
Cosh = primitive("Cosh", arithmetic.cosh)
Div = primitive("Div", arithmetic.div)
Erf = primitive("Erf", arithmetic.erf)
Erfc = primitive("Erfc", arithmetic.erfc)
Exp = primitive("Exp", arithmetic.exp)
Expm1 = primitive("Expm1", arithmetic.expm1)
Floor = primitive("Floor", arithmetic.floor)
FloorDiv = primitive("FloorDiv", arithmetic.floor_div)
FloorMod = primitive("FloorMod", arithmetic.floor_mod)
Hypot = primitive("Hypot", arithmetic.hypot)
Lerp = primitive("Lerp", arithmetic.lerp)
Log = primitive("Log", arithmetic.log)
Log1p = primitive("Log1p", arithmetic.log1p)
Maximum = primitive("Maximum", arithmetic.maximum)
Minimum = primitive("Minimum", arithmetic.minimum)
Mod = primitive("Mod", arithmetic.fmod)
Mul = primitive("Mul", arithmetic.mul)
Neg = primitive("Neg", arithmetic.neg)
Pow = primitive("Pow", arithmetic.pow)
RealDiv = primitive("RealDiv", arithmetic.div)
Reciprocal = Inv = primitive("Reciprocal", arithmetic.reciprocal)
Rint = primitive("Rint", arithmetic.round)
Round = primitive("Round", arithmetic.round)
Rsqrt = primitive("Rsqrt", arithmetic.rsqrt)
Sign = primitive("Sign", arithmetic.sign)
Sin = primitive("Sin", arithmetic.sin)
Sinh = primitive("Sinh", arithmetic.sinh)
Sqrt = primitive("Sqrt", arithmetic.sqrt)
Square = primitive("Square", arithmetic.square)
SquaredDifference = primitive("SquaredDifference", arithmetic.squared_difference)
Sub = primitive("Sub", arithmetic.sub)
Tan = primitive("Tan", arithmetic.tan)
Trunc = primitive("Trunc", arithmetic.trunc)

# Comparison, logic, bits
BitwiseAnd = primitive("BitwiseAnd", comparison.bitwise_and)
BitwiseOr = primitive("BitwiseOr", comparison.bitwise_or)
BitwiseXor = primitive("BitwiseXor", comparison.bitwise_xor)
Equal = primitive("Equal", comparison.equal)
Greater = primitive("Greater", comparison.greater)
GreaterEqual = primitive("GreaterEqual", comparison.greater_equal)
Invert = primitive("Invert", comparison.bitwise_not)
IsClose = primitive("IsClose", comparison.isclose, rtol=1e-05, atol=1e-08, equal_nan=False)
IsFinite = primitive("IsFinite", comparison.isfinite)
IsInf = primitive("IsInf", comparison.isinf)
IsNan = primitive("IsNan", comparison.isnan)
LeftShift = primitive("LeftShift", comparison.bitwise_left_shift)
Less = primitive("Less", comparison.less)
LessEqual = primitive("LessEqual", comparison.less_equal)
LogicalAnd = primitive("LogicalAnd", comparison.logical_and)
LogicalNot = primitive("LogicalNot", comparison.logical_not)
LogicalOr = primitive("LogicalOr", comparison.logical_or)
LogicalXor = primitive("LogicalXor", comparison.logical_xor)
MaskedFill = primitive("MaskedFill", comparison.masked_fill)
NotEqual = primitive("NotEqual", comparison.not_equal)
RightShift = primitive("RightShift", comparison.bitwise_right_shift)
Select = primitive("Select", comparison.select)

# Activations
CeLU = primitive("CeLU", activation.celu, alpha=1.0)
Elu = primitive("Elu", activation.elu, alpha=1.0)
FastGeLU = FastGelu = primitive("FastGeLU", activation.fast_gelu)
GLU = primitive("GLU", activation.glu, axis=-1)
HShrink = primitive("HShrink", activation.hardshrink, lambd=0.5)
HSigmoid = primitive("HSigmoid", activation.hardsigmoid)
HSwish = primitive("HSwish", activation.hardswish)
LogSoftmax = primitive("LogSoftmax", activation.log_softmax, axis=-1)
Mish = primitive("Mish", activation.mish)
PReLU = primitive("PReLU", activation.prelu)
ReLU = primitive("ReLU", activation.relu)
ReLU6 = primitive("ReLU6", activation.relu6)
SeLU = primitive("SeLU", activation.selu)
Sigmoid = primitive("Sigmoid", activation.sigmoid)
SoftShrink = primitive("SoftShrink", activation.softshrink, lambd=0.5)
Softplus = primitive("Softplus", activation.softplus)
Softsign = primitive("Softsign", activation.softsign)
Tanh = primitive("Tanh", arithmetic.tanh)


def _gelu(x: Any) -> Tensor:
    """Return the GELU with tanh, which is MindSpore's primitive."""
    return activation.gelu(x, "tanh")


def _softmax(logits: Any, axis: int | tuple[int, ...]) -> Tensor:
    """Return the softmax along one axis."""
    if isinstance(axis, tuple):
        if len(axis) != 1:
            raise ArgumentValueError(f"Softmax along the axes {axis}", "give one axis; flatten the others first")
        axis = axis[0]
    return activation.softmax(logits, axis)


GeLU = Gelu = primitive("GeLU", _gelu)
Softmax = primitive("Softmax", _softmax, axis=-1)


# Reductions
def _reduction(op_type: str) -> Callable[..., Tensor]:
    def function(x: Any, axis: Any = (), *, keep_dims: bool) -> Tensor:
        return reduction.reduce(op_type, arithmetic.need_tensor(x, op_type), axis, keep_dims)

    function.__doc__ = f"Apply {op_type} over ``axis``, over all if it is empty."
    return function


def _reduce_sum(x: Any, axis: Any = (), *, keep_dims: bool, skip_mode: bool) -> Tensor:
    """Return the sum over ``axis``; an empty axis means all, or with ``skip_mode`` none."""
    tensor = arithmetic.need_tensor(x, "ReduceSum")
    if skip_mode and (axis is None or axis == ()):
        return tensor
    if tensor.type.dtype == "bool":
        tensor = cast(tensor, "int64")
    return reduction.reduce("ReduceSum", tensor, axis, keep_dims)


def _argmax(x: Any, axis: int, output_type: Any) -> Tensor:
    """Return the index of the greatest element along ``axis``."""
    return reduction.index_of("ArgMax", arithmetic.need_tensor(x, "Argmax"), axis, False, to_type(output_type).name)


def _argmin(x: Any, axis: int, output_type: Any) -> Tensor:
    """Return the index of the smallest element along ``axis``."""
    return reduction.index_of("ArgMin", arithmetic.need_tensor(x, "Argmin"), axis, False, to_type(output_type).name)


def _with_value(op_type: str, extreme: str) -> Callable[..., tuple[Tensor, Tensor]]:
    def function(x: Any, axis: int, keep_dims: bool) -> tuple[Tensor, Tensor]:
        tensor = arithmetic.need_tensor(x, op_type)
        index = reduction.index_of(op_type, tensor, axis, keep_dims, "int64")
        return index, reduction.reduce(extreme, tensor, axis, keep_dims)

    function.__doc__ = f"Return the index ({op_type}) and the value along ``axis``."
    return function


def _cum_sum(x: Any, axis: Any, exclusive: bool, reverse: bool) -> Tensor:
    """Return the running sums along ``axis``."""
    tensor = arithmetic.need_tensor(x, "CumSum")
    return emit("CumSum", tensor, np.asarray(int(axis), np.int64), exclusive=int(exclusive), reverse=int(reverse))


def _top_k(x: Any, k: int, sorted: bool) -> tuple[Tensor, Tensor]:  # noqa: A002
    """Return the ``k`` greatest elements along the last axis and their indices."""
    return reduction.topk(x, k, sorted=sorted)


ReduceAll = primitive("ReduceAll", lambda x, axis=(), *, keep_dims: reduction.all(x, axis, keep_dims), keep_dims=False)
ReduceAny = primitive("ReduceAny", lambda x, axis=(), *, keep_dims: reduction.any(x, axis, keep_dims), keep_dims=False)
ReduceMax = primitive("ReduceMax", _reduction("ReduceMax"), keep_dims=False)
ReduceMean = primitive("ReduceMean", _reduction("ReduceMean"), keep_dims=False)
ReduceMin = primitive("ReduceMin", _reduction("ReduceMin"), keep_dims=False)
ReduceProd = primitive("ReduceProd", _reduction("ReduceProd"), keep_dims=False)
ReduceSum = primitive("ReduceSum", _reduce_sum, keep_dims=False, skip_mode=False)
Argmax = primitive("Argmax", _argmax, axis=-1, output_type=int32)
Argmin = primitive("Argmin", _argmin, axis=-1, output_type=int32)
ArgMaxWithValue = primitive("ArgMaxWithValue", _with_value("ArgMax", "ReduceMax"), axis=0, keep_dims=False)
ArgMinWithValue = primitive("ArgMinWithValue", _with_value("ArgMin", "ReduceMin"), axis=0, keep_dims=False)
CumSum = primitive("CumSum", _cum_sum, exclusive=False, reverse=False)
L2Normalize = primitive("L2Normalize", reduction.l2_normalize, axis=0, epsilon=1e-4)
TopK = primitive("TopK", _top_k, sorted=True)
Sort = primitive("Sort", reduction.sort, axis=-1, descending=False)


# Products
def _mat_mul(a: Any, b: Any, transpose_a: bool, transpose_b: bool) -> Tensor:
    """Return the product of two matrices, each transposed first if asked."""
    return product(a, b, transpose_a, transpose_b, "MatMul", 2)


def _batch_mat_mul(a: Any, b: Any, transpose_a: bool, transpose_b: bool) -> Tensor:
    """Return the products of two stacks of matrices, each matrix transposed first if asked."""
    return product(a, b, transpose_a, transpose_b, "BatchMatMul", None)


def _bias_add(x: Any, bias: Any, data_format: str) -> Tensor:
    """Return the tensor plus one number for each channel."""
    only_nchw(data_format)
    return bias_add(x, bias)


def only_nchw(data_format: str) -> None:
    """Refuse formats other than channels-first."""
    if data_format not in ("NCHW", "NCDHW"):
        raise ArgumentValueError(f"data_format is {data_format!r}", "opbuild takes NCHW; it chooses its own layout inside")


MatMul = primitive("MatMul", _mat_mul, transpose_a=False, transpose_b=False)
BatchMatMul = primitive("BatchMatMul", _batch_mat_mul, transpose_a=False, transpose_b=False)
BiasAdd = primitive("BiasAdd", _bias_add, data_format="NCHW")
Dense = primitive("Dense", dense)


# Convolution and pooling
def _conv2d(x: Any, weight: Any, out_channel: int, kernel_size: Any, mode: int, pad_mode: str, pad: Any, stride: Any,
            dilation: Any, group: int, data_format: str) -> Tensor:  # fmt: skip
    """Return a convolution over two spatial axes."""
    only_nchw(data_format)
    expected = (kernel_size,) * 2 if isinstance(kernel_size, int) else tuple(kernel_size)
    if weight.shape[0] != out_channel or weight.shape[2:] != expected:
        raise ArgumentValueError(
            f"Conv2D with out_channel={out_channel}, kernel_size={kernel_size} was given a weight of {weight.shape}",
            "its shape is (out_channel, channels / group, kernel height, kernel width)",
        )
    return conv(x, weight, None, stride, pad_mode, pad, dilation, group)


def _conv2d_transpose(x: Any, weight: Any, output_size: Any = None, *, out_channel: int, kernel_size: Any, pad_mode: str,
                      pad: Any, pad_list: Any, mode: int, stride: Any, dilation: Any, group: int,
                      data_format: str) -> Tensor:  # fmt: skip
    """Return a transposed convolution over two spatial axes."""
    only_nchw(data_format)
    return conv_transpose(x, weight, None, stride, pad_mode, pad if pad_list is None else pad_list, 0, dilation, group)


def _max_pool(x: Any, kernel_size: Any, strides: Any, pad_mode: str, data_format: str) -> Tensor:
    """Return the greatest element under a window."""
    only_nchw(data_format)
    return pool("MaxPool", x, kernel_size, strides, pad_mode, 0, False, 2)


def _avg_pool(x: Any, kernel_size: Any, strides: Any, pad_mode: str, data_format: str) -> Tensor:
    """Return the mean under a window."""
    only_nchw(data_format)
    return averaged(x, kernel_size, strides, pad_mode, 0, False, False, None, 2)


Conv2D = primitive("Conv2D", _conv2d, out_channel=..., kernel_size=..., mode=1, pad_mode="valid", pad=0, stride=1,
                   dilation=1, group=1, data_format="NCHW")  # fmt: skip
Conv2DTranspose = primitive("Conv2DTranspose", _conv2d_transpose, out_channel=..., kernel_size=..., pad_mode="valid", pad=0,
                            pad_list=None, mode=1, stride=1, dilation=1, group=1, data_format="NCHW")  # fmt: skip
MaxPool = primitive("MaxPool", _max_pool, kernel_size=1, strides=1, pad_mode="valid", data_format="NCHW")
AvgPool = primitive("AvgPool", _avg_pool, kernel_size=1, strides=1, pad_mode="valid", data_format="NCHW")
AdaptiveAvgPool2D = primitive("AdaptiveAvgPool2D", adaptive_avg_pool2d, output_size=...)


def _nearest(x: Any, size: Any, align_corners: bool, half_pixel_centers: bool) -> Tensor:
    """Return the tensor resized to ``size`` by its nearest elements."""
    if align_corners or half_pixel_centers:
        raise ArgumentValueError("ResizeNearestNeighbor with align_corners or half_pixel_centers", "use its defaults")
    return interpolate(x, tuple(size))


ResizeNearestNeighbor = primitive("ResizeNearestNeighbor", _nearest, size=..., align_corners=False, half_pixel_centers=False)


# Normalization
def _batch_norm(x: Any, scale: Any, bias: Any, mean: Any, variance: Any, is_training: bool, epsilon: float,
                momentum: float, data_format: str) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the tensor normalized for each channel, and the statistics used."""
    only_nchw(data_format)
    result = normalization.batch_norm(x, mean, variance, scale, bias, is_training, momentum, epsilon)
    return result, mean, variance, mean, variance


def _layer_norm(x: Any, gamma: Any, beta: Any, begin_norm_axis: int, begin_params_axis: int, epsilon: float) -> tuple[Tensor, ...]:
    """Return the tensor normalized from an axis on, the mean and the variance."""
    tensor = arithmetic.need_tensor(x, "LayerNorm")
    axis = begin_norm_axis % tensor.ndim
    axes = tuple(range(axis, tensor.ndim))
    mean, variance = reduction.mean(tensor, axes, True), reduction.var(tensor, axes, 0, True)
    if begin_params_axis % tensor.ndim == axis:
        return normalization.normalized(tensor, gamma, beta, axis, epsilon), mean, variance
    plain = normalization.normalized(tensor, None, None, axis, epsilon)
    return arithmetic.add(arithmetic.mul(plain, gamma), beta), mean, variance


def _dropout(x: Any, keep_prob: float, Seed0: int, Seed1: int) -> tuple[Tensor, Tensor]:  # noqa: N803
    """Return the tensor and a mask of ones if nothing is dropped."""
    return normalization.dropout(x, 1.0 - keep_prob), creation.ones_like(x)


BatchNorm = primitive("BatchNorm", _batch_norm, is_training=False, epsilon=1e-5, momentum=0.1, data_format="NCHW")
LayerNorm = primitive("LayerNorm", _layer_norm, begin_norm_axis=1, begin_params_axis=1, epsilon=1e-7)
RmsNorm = primitive("RmsNorm", normalization.rms_norm, epsilon=1e-6)
LRN = primitive("LRN", normalization.lrn, depth_radius=5, bias=1.0, alpha=1.0, beta=0.5, norm_region="ACROSS_CHANNELS")
Dropout = primitive("Dropout", _dropout, keep_prob=0.5, Seed0=0, Seed1=0)


# Shapes
def _pad(x: Any, paddings: Any) -> Tensor:
    """Return the tensor with zeros around it, a pair of amounts for each axis."""
    return shaping.pad(x, [amount for pair in reversed(tuple(paddings)) for amount in pair])


def _split(x: Any, axis: int, output_num: int) -> tuple[Tensor, ...]:
    """Return the tensor in ``output_num`` equal parts along ``axis``."""
    extent = x.shape[axis]
    if extent % output_num:
        raise ArgumentValueError(f"Split of extent {extent} into {output_num} parts", "the parts must be equal")
    return shaping.split(x, extent // output_num, axis)


def _squeeze(x: Any, axis: Any) -> Tensor:
    """Return the tensor without axes of extent 1."""
    return shaping.squeeze(x, axis)


def _unstack(x: Any, axis: int, num: int | None) -> tuple[Tensor, ...]:
    """Return the slices of a tensor along ``axis``."""
    return shaping.unstack(x, axis)


def _dtype(x: Any) -> Any:
    """Return the element type."""
    return x.dtype


def _tensor_shape(x: Any) -> Tensor:
    """Return the extents as a tensor."""
    return Tensor.of(np.array(shaping.shape(x), np.int64))


def _strided_slice(x: Any, begin: Any, end: Any, strides: Any, begin_mask: int, end_mask: int, ellipsis_mask: int,
                   new_axis_mask: int, shrink_axis_mask: int) -> Tensor:  # fmt: skip
    """Return every ``strides``-th element between ``begin`` and ``end``; a bit of a mask ignores that bound."""
    if ellipsis_mask or new_axis_mask:
        raise ArgumentValueError("StridedSlice with an ellipsis or new axis mask", "index the tensor with x[...] instead")
    starts, ends, steps = list(begin), list(end), list(strides)
    for index, step in enumerate(steps):
        if shrink_axis_mask >> index & 1:
            ends[index], steps[index] = starts[index] + 1 or x.shape[index], 1
            continue
        if begin_mask >> index & 1:
            starts[index] = 0 if step > 0 else x.shape[index]
        if end_mask >> index & 1:
            ends[index] = x.shape[index] if step > 0 else -(2**31)
    result = shaping.cut(x, starts, ends, list(range(len(starts))), steps)
    gone = tuple(index for index in range(len(starts)) if shrink_axis_mask >> index & 1)
    return shaping.squeeze(result, gone) if gone else result


BroadcastTo = primitive("BroadcastTo", shaping.broadcast_to, shape=...)
Cast = primitive("Cast", shaping.cast)
Concat = primitive("Concat", shaping.concat, axis=0)
DType = primitive("DType", _dtype)
ExpandDims = primitive("ExpandDims", shaping.expand_dims)
Flatten = primitive("Flatten", shaping.flatten)
Identity = primitive("Identity", shaping.identity)
Meshgrid = primitive("Meshgrid", lambda inputs, indexing: shaping.meshgrid(*inputs, indexing=indexing), indexing="xy")
Pad = primitive("Pad", _pad, paddings=...)
Rank = primitive("Rank", shaping.rank)
Reshape = primitive("Reshape", shaping.reshape)
ReverseV2 = primitive("ReverseV2", lambda x, axis: shaping.flip(x, axis), axis=...)
Roll = primitive("Roll", shaping.roll, shifts=..., dims=None)
Shape = primitive("Shape", shaping.shape)
Size = primitive("Size", shaping.size)
Slice = primitive("Slice", shaping.slice)
Split = primitive("Split", _split, axis=0, output_num=1)
Squeeze = primitive("Squeeze", _squeeze, axis=())
Stack = primitive("Stack", shaping.stack, axis=0)
StridedSlice = primitive("StridedSlice", _strided_slice, begin_mask=0, end_mask=0, ellipsis_mask=0, new_axis_mask=0,
                         shrink_axis_mask=0)  # fmt: skip
TensorShape = primitive("TensorShape", _tensor_shape)
Tile = primitive("Tile", shaping.tile)
Transpose = primitive("Transpose", shaping.transpose)
Tril = primitive("Tril", shaping.tril, diagonal=0)
Triu = primitive("Triu", shaping.triu, diagonal=0)
Unstack = primitive("Unstack", _unstack, axis=0, num=None)


# Gather, scatter, creation
def _one_hot(indices: Any, depth: int, on_value: Any, off_value: Any, axis: int) -> Tensor:
    """Return ``on_value`` at each index along a new axis, ``off_value`` elsewhere."""
    return gathering.one_hot(indices, depth, on_value, off_value, axis)


def _fill(dtype: Any, shape: Any, value: Any) -> Tensor:
    """Return one number in every element."""
    return creation.fill(dtype, shape, value)


Gather = GatherV2 = primitive("Gather", gathering.gather, batch_dims=0)
GatherD = primitive("GatherD", gathering.gather_d)
GatherNd = primitive("GatherNd", gathering.gather_nd)
OneHot = primitive("OneHot", _one_hot, axis=-1)
ScatterNd = primitive("ScatterNd", gathering.scatter_nd)
TensorScatterUpdate = primitive("TensorScatterUpdate", gathering.tensor_scatter_update)
Eye = primitive("Eye", creation.eye)
Fill = primitive("Fill", _fill)
LinSpace = primitive("LinSpace", creation.linspace)
Ones = primitive("Ones", creation.ones)
OnesLike = primitive("OnesLike", creation.ones_like)
Range = primitive("Range", lambda start, end, step, maxlen: creation.arange(start, end, step), maxlen=1000000)
ScalarToTensor = primitive("ScalarToTensor", creation.scalar_to_tensor)
Zeros = primitive("Zeros", creation.zeros)
ZerosLike = primitive("ZerosLike", creation.zeros_like)

TensorAdd = Add
Pack, Unpack = Stack, Unstack
PRIMITIVES = {name: value for name, value in globals().items() if isinstance(value, type) and issubclass(value, Primitive)}
