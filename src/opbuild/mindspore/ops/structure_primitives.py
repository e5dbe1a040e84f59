"""Operators as classes: windows, normalization, shapes, gather and scatter, selection, images.

Each line names MindSpore's class, what computes it, and the attributes of its constructor with MindSpore's defaults.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.dtype import int32, int64, to_type
from opbuild.mindspore.execution import cast
from opbuild.mindspore.host import on_data
from opbuild.mindspore.ops import (
    arithmetic,
    arranging,
    creation,
    images,
    normalization,
    pooling,
    reduction,
    scattering,
    shaping,
)
from opbuild.mindspore.ops.declaration import need_tensor
from opbuild.mindspore.ops.gathering import gather
from opbuild.mindspore.ops.pooling import (
    averaged,
    conv,
    conv_transpose,
    interpolate,
    only_nchw,
    pool,
)
from opbuild.mindspore.ops.primitive import Primitive, primitive, primitives
from opbuild.mindspore.ops.random import dropped
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
Dropout = primitive(
    "Dropout", lambda x, keep_prob, Seed0, Seed1: dropped(x, keep_prob, x.type.dtype), keep_prob=0.5, Seed0=0, Seed1=0
)


# Shapes
def _split(x: Any, axis: int, output_num: int) -> tuple[Tensor, ...]:
    """Return the tensor in ``output_num`` equal parts along ``axis``."""
    extent = x.shape[axis]
    if extent % output_num:
        raise ArgumentValueError(f"Split of extent {extent} into {output_num} parts", "the parts must be equal")
    return shaping.split(x, extent // output_num, axis)


def _tensor_shape(x: Any) -> Tensor:
    """Return the extents as a tensor."""
    return Tensor.of(np.array(shaping.shape(x), np.int64))


Meshgrid = primitive("Meshgrid", lambda inputs, indexing: shaping.meshgrid(*inputs, indexing=indexing), indexing="xy")
Pad = primitive(
    "Pad", lambda x, paddings: shaping.pad(x, [amount for pair in reversed(tuple(paddings)) for amount in pair]),
    "Return the tensor with zeros around it, a pair of amounts for each axis.", paddings=...,
)  # fmt: skip
ReverseV2 = primitive("ReverseV2", shaping.flip, "", "axis", axis=...)
Split = primitive("Split", _split, axis=0, output_num=1)
Squeeze = primitive("Squeeze", shaping.squeeze, axis=())
Unstack = Unpack = primitive("Unstack", shaping.unstack, "", "axis", axis=0, num=None)


# Gather, scatter, creation
Range = primitive("Range", creation.arange, "", "", maxlen=1000000)


# Shapes
BatchToSpace = primitive("BatchToSpace", images.batch_to_space_nd, "", "block_size crops", block_size=..., crops=...)
BatchToSpaceNDV2 = primitive(
    "BatchToSpaceNDV2",
    lambda x, block, crops: images.batch_to_space_nd(x, shaping.ints(block, "block_shape"), _pairs(crops)),
)
ChannelShuffle = primitive("ChannelShuffle", images.channel_shuffle, "", "group", group=...)
DepthToSpace = primitive("DepthToSpace", images.depth_to_space, block_size=...)
FillV2 = primitive("FillV2", lambda shape, value: creation.full(shape, value, dtype=value.dtype))
MatrixDiagPartV3 = primitive("MatrixDiagPartV3", arranging.matrix_diag_part, align="RIGHT_LEFT")
MatrixDiagV3 = primitive("MatrixDiagV3", arranging.matrix_diag, align="RIGHT_LEFT")
MatrixSetDiagV3 = primitive("MatrixSetDiagV3", arranging.matrix_set_diag, align="RIGHT_LEFT")
SpaceToBatch = primitive("SpaceToBatch", images.space_to_batch_nd, block_size=..., paddings=...)
SpaceToBatchND = primitive("SpaceToBatchND", images.space_to_batch_nd, "", "block_shape paddings",
                           block_shape=..., paddings=...)  # fmt: skip
SpaceToDepth = primitive("SpaceToDepth", images.space_to_depth, block_size=...)
SplitV = primitive(
    "SplitV", lambda x, size_splits, split_dim, num_split: shaping.split(
        x, _filled(size_splits, x.shape[split_dim]), split_dim),
    size_splits=..., split_dim=..., num_split=...,
)  # fmt: skip
TrilIndices = primitive("TrilIndices", arranging.tril_indices, row=..., col=..., offset=0, dtype=int32)
TriuIndices = primitive("TriuIndices", arranging.triu_indices, row=..., col=..., offset=0, dtype=int32)
IdentityN = primitive("IdentityN", lambda x: tuple(x))


def _pairs(value: Any) -> Any:
    return value.tolist() if isinstance(value, Tensor) else value


def _filled(sizes: Any, extent: int) -> tuple[int, ...]:
    """Return sizes with what is left for -1."""
    return tuple(extent - sum(item for item in sizes if item > 0) if item == -1 else item for item in sizes)


def _pad_v3(x: Any, paddings: Any, constant_value: Any = 0, mode: str = "constant",
            paddings_contiguous: bool = True) -> Tensor:  # fmt: skip
    """Return the tensor with elements added around it: pairs for the last axis first."""
    amounts = list(shaping.ints(paddings, "the paddings"))
    if not paddings_contiguous:
        half = len(amounts) // 2
        amounts = [item for pair in zip(amounts[:half], amounts[half:], strict=True) for item in pair]
    value = constant_value.item() if isinstance(constant_value, Tensor) else constant_value
    names = {"edge": "replicate"}
    return shaping.pad(x, amounts, names.get(mode, mode), value if mode == "constant" else None)


PadV3 = primitive("PadV3", _pad_v3, mode="constant", paddings_contiguous=True)


@on_data
def _fill_diagonal(input_x: Any, fill_value: float, wrap: bool) -> Any:
    """Return the tensor with ``fill_value`` on its diagonal."""
    result = input_x.copy()
    np.fill_diagonal(result, fill_value, wrap)
    return result


FillDiagonal = primitive("FillDiagonal", _fill_diagonal, fill_value=..., wrap=False)


def _format_map(x: Any, src_format: str, dst_format: str) -> Tensor:
    """Return dimensions of one format in another."""
    table = np.array([src_format.index(letter) for letter in dst_format], np.int32)
    return gather(Tensor.of(table), Tensor.of(x.asnumpy() % len(table)), 0)


def _format_permute(x: Any, src_format: str, dst_format: str) -> Tensor:
    """Return extents of one format in the order of another."""
    letters = (
        src_format if len(x.shape) and x.shape[0] == len(src_format) else src_format.replace("N", "").replace("C", "")
    )
    wanted = [letter for letter in dst_format if letter in letters]
    return gather(x, Tensor.of(np.array([letters.index(letter) for letter in wanted])), 0)


DataFormatDimMap = primitive("DataFormatDimMap", _format_map, src_format="NHWC", dst_format="NCHW")
DataFormatVecPermute = primitive("DataFormatVecPermute", _format_permute, src_format="NHWC", dst_format="NCHW")


# Gather and scatter
def _embedding_lookup(input_params: Any, input_indices: Any, offset: int = 0) -> Tensor:
    """Return the rows that ``input_indices`` less ``offset`` names."""
    return gather(input_params, input_indices - offset if offset else input_indices, 0)


IndexAdd = primitive("IndexAdd", scattering.index_add, "", "axis", axis=..., use_lock=True, check_index_bound=True)
IndexPut = primitive(
    "IndexPut", lambda x, v, indices, accumulate: scattering.index_put(x, indices, v, bool(accumulate)), accumulate=0
)
InplaceUpdateV2 = primitive("InplaceUpdateV2", lambda x, indices, v: scattering.inplace_update(x, v, indices))
globals().update({
    f"Scatter{places}{how}": primitive(
        f"Scatter{places}{how}", getattr(scattering, f"scatter_{nd}{how.lower()}"), "", "", use_locking=how == "Update")
    for places, nd in (("", ""), ("Nd", "nd_")) for how in ("Add", "Div", "Max", "Min", "Mul", "Sub", "Update")
})  # fmt: skip
ScatterAddWithAxis = primitive("ScatterAddWithAxis", scattering.scatter_add_with_axis, axis=0)

# Selection and segments
Bucketize = primitive("Bucketize", lambda x, boundaries: scattering.bucketize(
    x, np.asarray(boundaries, np.float64), right=True), boundaries=...)  # fmt: skip
ListDiff = primitive("ListDiff", scattering.list_diff, out_idx=int32)
LowerBound = primitive("LowerBound", lambda x, values, out_type: _bound(x, values, out_type, False), out_type=int32)
SearchSorted = primitive(
    "SearchSorted", lambda sequence, values, sorter=None, *, dtype, right: cast(
        scattering.searchsorted(sequence, values, right=right, sorter=sorter), to_type(dtype).name),
    dtype=int64, right=False,
)  # fmt: skip
UniqueConsecutive = primitive("UniqueConsecutive", lambda x, return_inverse, return_counts, dim: _consecutive(
    x, return_inverse, return_counts, dim), return_inverse=False, return_counts=False, dim=None)  # fmt: skip
UpperBound = primitive("UpperBound", lambda x, values, out_type: _bound(x, values, out_type, True), out_type=int32)


def _bound(sequence: Any, values: Any, out_type: Any, right: bool) -> Tensor:
    return cast(scattering.searchsorted(sequence, values, right=right), to_type(out_type).name)


def _consecutive(x: Any, return_inverse: bool, return_counts: bool, dim: int | None) -> Any:
    values, inverse, counts = scattering.unique_consecutive(x, True, True, dim)
    empty = Tensor.of(np.zeros(0, np.int64))
    return values, inverse if return_inverse else empty, counts if return_counts else empty


@on_data
def _unravel(indices: Any, dims: Any) -> Any:
    """Return the coordinates of places in a flattened tensor, a column each."""
    return np.array(np.unravel_index(indices, tuple(dims))).astype(indices.dtype)


@on_data
def _equal_count(x: Any, y: Any) -> Any:
    """Return how many elements are equal."""
    return np.array([(x == y).sum()], x.dtype)


# Images, boxes, poolings
def _adaptive_max_pool3d(x: Any, output_size: Any) -> tuple[Tensor, Tensor]:
    """Return the greatest elements of windows that give ``output_size``, a tensor, and their places (int32)."""
    found, places = pooling.adaptive_with_indices(x, output_size.asnumpy().tolist(), 3)
    return found, cast(places, "int32")


AdaptiveMaxPool2D = primitive(
    "AdaptiveMaxPool2D", lambda x, output_size: pooling.adaptive_with_indices(x, output_size, 2), output_size=...
)
Col2Im = primitive("Col2Im", images.col2im, "", "kernel_size dilation padding stride",
                   kernel_size=..., dilation=1, padding=0, stride=1)  # fmt: skip
GridSampler2D = primitive(
    "GridSampler2D", images.grid_sample, "", "interpolation_mode padding_mode align_corners",
    interpolation_mode="bilinear", padding_mode="zeros", align_corners=False,
)  # fmt: skip
Im2Col = primitive("Im2Col", images.im2col, ksizes=..., strides=1, dilations=1, pads=0)
NMSWithMask = primitive("NMSWithMask", images.nms_with_mask, iou_threshold=0.5)
MaxPoolWithArgmaxV2 = primitive(
    "MaxPoolWithArgmaxV2",
    lambda x, kernel_size, strides, pads, dilation, ceil_mode, argmax_type: pooling.with_indices(
        x, kernel_size, strides or kernel_size, pads, dilation, ceil_mode, 2),
    kernel_size=..., strides=None, pads=0, dilation=(1, 1), ceil_mode=False, argmax_type=int64,
)  # fmt: skip
MaxPool3DWithArgmax = primitive(
    "MaxPool3DWithArgmax",
    lambda x, ksize, strides, pads, dilation, ceil_mode, data_format, argmax_type: pooling.with_indices(
        x, ksize, strides, pads, dilation, ceil_mode, 3),
    ksize=..., strides=..., pads=..., dilation=(1, 1, 1), ceil_mode=False, data_format="NCDHW", argmax_type=int64,
)  # fmt: skip
MaxUnpool2D = primitive("MaxUnpool2D", pooling.max_unpool2d, "", "ksize strides pads output_shape",
                        ksize=..., strides=0, pads=0, output_shape=(), data_format="NCHW")  # fmt: skip
MaxUnpool3D = primitive("MaxUnpool3D", pooling.max_unpool3d, "", "ksize strides pads output_shape",
                        ksize=..., strides=0, pads=0, output_shape=(), data_format="NCDHW")  # fmt: skip
AvgPool3D = primitive(
    "AvgPool3D",
    lambda x, kernel_size, strides, pad_mode, pad, ceil_mode, count_include_pad, divisor_override, data_format:
        pooling.averaged(x, kernel_size, strides, pad_mode, pad, ceil_mode, count_include_pad, divisor_override, 3),
    kernel_size=1, strides=1, pad_mode="valid", pad=0, ceil_mode=False, count_include_pad=True, divisor_override=0,
    data_format="NCDHW",
)  # fmt: skip
MaxPool3D = primitive(
    "MaxPool3D",
    lambda x, kernel_size, strides, pad_mode, pad_list, ceil_mode, data_format: pooling.pool(
        "MaxPool", x, kernel_size, strides, pad_mode, pad_list, bool(ceil_mode), 3),
    kernel_size=1, strides=1, pad_mode="VALID", pad_list=0, ceil_mode=None, data_format="NCDHW",
)  # fmt: skip
Conv3D = primitive(
    "Conv3D",
    lambda x, weight, out_channel, kernel_size, mode, pad_mode, pad, stride, dilation, group, data_format: conv(
        x, weight, None, stride, pad_mode, pad, dilation, group, 3),
    out_channel=..., kernel_size=..., mode=1, pad_mode="valid", pad=0, stride=1, dilation=1, group=1,
    data_format="NCDHW",
)  # fmt: skip
Conv3DTranspose = primitive(
    "Conv3DTranspose",
    lambda x, weight, in_channel, out_channel, kernel_size, mode, pad_mode, pad, stride, dilation, group,
    output_padding, data_format: conv_transpose(
        x, weight, None, stride, pad_mode, pad, output_padding, dilation, group, 3),
    in_channel=..., out_channel=..., kernel_size=..., mode=1, pad_mode="valid", pad=0, stride=1, dilation=1, group=1,
    output_padding=0, data_format="NCDHW",
)  # fmt: skip


Dropout2D = primitive("Dropout2D", lambda x, keep_prob: dropped(x, keep_prob, "bool", 2), keep_prob=0.5)
Dropout3D = primitive("Dropout3D", lambda x, keep_prob: dropped(x, keep_prob, "bool", 3), keep_prob=0.5)


def _resized(mode: str) -> Any:
    def resized(image: Any, size: Any, align_corners: bool = False, half_pixel_centers: bool = False) -> Tensor:
        """Return images of another size."""
        return pooling.resized(image, shaping.ints(size, "the size"), mode, align_corners, half_pixel_centers)

    return resized


ResizeBilinearV2 = primitive("ResizeBilinearV2", _resized("linear"), align_corners=False, half_pixel_centers=False)
ResizeBicubic = primitive("ResizeBicubic", _resized("cubic"), align_corners=False, half_pixel_centers=False)
ResizeNearestNeighborV2 = primitive(
    "ResizeNearestNeighborV2", _resized("nearest"), align_corners=False, half_pixel_centers=False
)
ResizeLinear1D = primitive(
    "ResizeLinear1D", lambda x, size, coordinate_transformation_mode: pooling.resized(
        x, shaping.ints(size, "the size"), "linear", coordinate_transformation_mode == "align_corners",
        coordinate_transformation_mode == "half_pixel"),
    coordinate_transformation_mode="align_corners",
)  # fmt: skip

# Without attributes
globals().update(primitives(
    AdaptiveMaxPool3D=_adaptive_max_pool3d, ConjugateTranspose=shaping.transpose, DiagPart=arranging.diag_part,
    EmbeddingLookup=_embedding_lookup, EqualCount=_equal_count, InvertPermutation=scattering.invert_permutation,
    MaskedScatter=scattering.masked_scatter, ParallelConcat=shaping.concat,
    ScatterNonAliasingAdd=scattering.scatter_nd_add, SegmentMax=scattering.segment_max,
    SegmentMean=scattering.segment_mean, SegmentMin=scattering.segment_min, SegmentProd=scattering.segment_prod,
    SegmentSum=scattering.segment_sum, TensorShape=_tensor_shape, UnravelIndex=_unravel,
))  # fmt: skip

__all__ = names.public(vars(), Primitive)
