"""Operators as classes: convolution, pooling, normalization, shapes, gather and creation.

Each line names MindSpore's class, what computes it, and the attributes of its constructor with MindSpore's defaults.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.ops import arithmetic, arranging, creation, gathering, normalization, reduction, shaping
from opbuild.mindspore.ops.convolution import conv, conv_transpose, only_nchw
from opbuild.mindspore.ops.declaration import need_tensor
from opbuild.mindspore.ops.dropout import dropped
from opbuild.mindspore.ops.pooling import adaptive_avg_pool2d, averaged, interpolate, pool
from opbuild.mindspore.ops.primitive import Primitive, primitive, primitives
from opbuild.mindspore.tensor import Tensor


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


def _conv2d_transpose(x: Any, weight: Any, output_size: Any = None, *, out_channel: int, kernel_size: Any,
                      pad_mode: str, pad: Any, pad_list: Any, mode: int, stride: Any, dilation: Any, group: int,
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
Conv2DTranspose = primitive("Conv2DTranspose", _conv2d_transpose, out_channel=..., kernel_size=..., pad_mode="valid",
                            pad=0, pad_list=None, mode=1, stride=1, dilation=1, group=1,
                            data_format="NCHW")  # fmt: skip
MaxPool = primitive("MaxPool", _max_pool, kernel_size=1, strides=1, pad_mode="valid", data_format="NCHW")
AvgPool = primitive("AvgPool", _avg_pool, kernel_size=1, strides=1, pad_mode="valid", data_format="NCHW")
AdaptiveAvgPool2D = primitive("AdaptiveAvgPool2D", adaptive_avg_pool2d, output_size=...)


def _nearest(x: Any, size: Any, align_corners: bool, half_pixel_centers: bool) -> Tensor:
    """Return the tensor resized to ``size`` by its nearest elements."""
    if align_corners or half_pixel_centers:
        raise ArgumentValueError("ResizeNearestNeighbor with align_corners or half_pixel_centers", "use its defaults")
    return interpolate(x, tuple(size))


ResizeNearestNeighbor = primitive(
    "ResizeNearestNeighbor", _nearest, size=..., align_corners=False, half_pixel_centers=False
)


# Normalization
def _batch_norm(x: Any, scale: Any, bias: Any, mean: Any, variance: Any, is_training: bool, epsilon: float,
                momentum: float, data_format: str) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the tensor normalized for each channel, and the statistics used."""
    only_nchw(data_format)
    result = normalization.batch_norm(x, mean, variance, scale, bias, is_training, momentum, epsilon)
    return result, mean, variance, mean, variance


def _layer_norm(
    x: Any, gamma: Any, beta: Any, begin_norm_axis: int, begin_params_axis: int, epsilon: float
) -> tuple[Tensor, ...]:
    """Return the tensor normalized from an axis on, the mean and the variance."""
    tensor = need_tensor(x, "LayerNorm")
    axis = begin_norm_axis % tensor.ndim
    axes = tuple(range(axis, tensor.ndim))
    mean, variance = reduction.mean(tensor, axes, True), reduction.var(tensor, axes, 0, True)
    if begin_params_axis % tensor.ndim == axis:
        return normalization.normalized(tensor, gamma, beta, axis, epsilon), mean, variance
    plain = normalization.normalized(tensor, None, None, axis, epsilon)
    return arithmetic.add(arithmetic.mul(plain, gamma), beta), mean, variance


BatchNorm = primitive("BatchNorm", _batch_norm, is_training=False, epsilon=1e-5, momentum=0.1, data_format="NCHW")
LayerNorm = primitive("LayerNorm", _layer_norm, begin_norm_axis=1, begin_params_axis=1, epsilon=1e-7)
RmsNorm = primitive("RmsNorm", normalization.rms_norm, epsilon=1e-6)
LRN = primitive("LRN", normalization.lrn, depth_radius=5, bias=1.0, alpha=1.0, beta=0.5, norm_region="ACROSS_CHANNELS")
Dropout = primitive(
    "Dropout", lambda x, keep_prob, Seed0, Seed1: dropped(x, keep_prob, x.type.dtype), keep_prob=0.5, Seed0=0, Seed1=0
)


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


def _tensor_shape(x: Any) -> Tensor:
    """Return the extents as a tensor."""
    return Tensor.of(np.array(shaping.shape(x), np.int64))


BroadcastTo = primitive("BroadcastTo", shaping.broadcast_to, shape=...)
Concat = primitive("Concat", shaping.concat, axis=0)
Meshgrid = primitive("Meshgrid", lambda inputs, indexing: shaping.meshgrid(*inputs, indexing=indexing), indexing="xy")
Pad = primitive("Pad", _pad, paddings=...)
ReverseV2 = primitive("ReverseV2", shaping.flip, "", "axis", axis=...)
Roll = primitive("Roll", shaping.roll, shifts=..., dims=None)
Split = primitive("Split", _split, axis=0, output_num=1)
Squeeze = primitive("Squeeze", shaping.squeeze, axis=())
Stack = primitive("Stack", shaping.stack, axis=0)
StridedSlice = primitive("StridedSlice", arranging.strided_slice, begin_mask=0, end_mask=0, ellipsis_mask=0,
                         new_axis_mask=0, shrink_axis_mask=0)  # fmt: skip
Tril = primitive("Tril", shaping.tril, diagonal=0)
Triu = primitive("Triu", shaping.triu, diagonal=0)
Unstack = primitive("Unstack", shaping.unstack, "", "axis", axis=0, num=None)


# Gather, scatter, creation
Gather = GatherV2 = primitive("Gather", gathering.gather, batch_dims=0)
OneHot = primitive("OneHot", gathering.one_hot, axis=-1)
Range = primitive("Range", creation.arange, "", "", maxlen=1000000)
Pack, Unpack = Stack, Unstack

# Without attributes
globals().update(primitives(
    Cast=shaping.cast, DType=shaping.dtype, ExpandDims=shaping.expand_dims, Eye=creation.eye, Fill=creation.fill,
    Flatten=shaping.flatten, GatherD=gathering.gather_d, GatherNd=gathering.gather_nd, Identity=shaping.identity,
    LinSpace=creation.linspace, Ones=creation.ones, OnesLike=creation.ones_like, Rank=shaping.rank,
    Reshape=shaping.reshape, ScalarToTensor=creation.scalar_to_tensor, ScatterNd=gathering.scatter_nd,
    Shape=shaping.shape, Size=shaping.size, Slice=shaping.slice, TensorScatterUpdate=gathering.tensor_scatter_update,
    TensorShape=_tensor_shape, Tile=shaping.tile, Transpose=shaping.transpose, Zeros=creation.zeros,
    ZerosLike=creation.zeros_like,
))  # fmt: skip

__all__ = names.public(vars(), Primitive)
