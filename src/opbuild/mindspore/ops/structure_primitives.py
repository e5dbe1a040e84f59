"""Operators as classes: windows, normalization, shapes, gather and scatter, selection, images.

Each line names MindSpore's class, what computes it, and the attributes of its constructor with MindSpore's defaults.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.dtype import int32, int64, to_type
from opbuild.mindspore.execution import cast, on_data
from opbuild.mindspore.ops import arithmetic, arranging, images, normalization, pooling, reduction, shaping
from opbuild.mindspore.ops.declaration import Primitive, need_tensor, operator, primitive, primitives
from opbuild.mindspore.ops.pooling import (
    averaged,
    conv,
    conv_transpose,
    interpolate,
    only_nchw,
    pool,
)
from opbuild.mindspore.ops.random import dropped
from opbuild.mindspore.ops.shaping import gather
from opbuild.mindspore.tensor import Tensor


# Convolution and pooling
@operator
def Conv2D(x: Any, weight: Any, *, out_channel: int, kernel_size: Any, mode: int = 1, pad_mode: str = "valid",
           pad: Any = 0, stride: Any = 1, dilation: Any = 1, group: int = 1,
           data_format: str = "NCHW") -> Tensor:  # fmt: skip
    """Return a convolution over two spatial axes."""
    only_nchw(data_format)
    expected = (kernel_size,) * 2 if isinstance(kernel_size, int) else tuple(kernel_size)
    if weight.shape[0] != out_channel or weight.shape[2:] != expected:
        raise ArgumentValueError(
            f"Conv2D with out_channel={out_channel}, kernel_size={kernel_size} was given a weight of {weight.shape}",
            "its shape is (out_channel, channels / group, kernel height, kernel width)",
        )
    return conv(x, weight, None, stride, pad_mode, pad, dilation, group)


@operator
def Conv2DTranspose(x: Any, weight: Any, output_size: Any = None, *, out_channel: int, kernel_size: Any,
                    pad_mode: str = "valid", pad: Any = 0, pad_list: Any = None, mode: int = 1, stride: Any = 1,
                    dilation: Any = 1, group: int = 1, data_format: str = "NCHW") -> Tensor:  # fmt: skip
    """Return a transposed convolution over two spatial axes."""
    only_nchw(data_format)
    return conv_transpose(x, weight, None, stride, pad_mode, pad if pad_list is None else pad_list, 0, dilation, group)


@operator
def MaxPool(x: Any, *, kernel_size: Any = 1, strides: Any = 1, pad_mode: str = "valid",
            data_format: str = "NCHW") -> Tensor:  # fmt: skip
    """Return the greatest element under a window."""
    only_nchw(data_format)
    return pool("MaxPool", x, kernel_size, strides, pad_mode, 0, False, 2)


@operator
def AvgPool(x: Any, *, kernel_size: Any = 1, strides: Any = 1, pad_mode: str = "valid",
            data_format: str = "NCHW") -> Tensor:  # fmt: skip
    """Return the mean under a window."""
    only_nchw(data_format)
    return averaged(x, kernel_size, strides, pad_mode, 0, False, False, None, 2)


@operator
def ResizeNearestNeighbor(x: Any, *, size: Any, align_corners: bool = False,
                          half_pixel_centers: bool = False) -> Tensor:  # fmt: skip
    """Return the tensor resized to ``size`` by its nearest elements."""
    if align_corners or half_pixel_centers:
        raise ArgumentValueError("ResizeNearestNeighbor with align_corners or half_pixel_centers", "use its defaults")
    return interpolate(x, tuple(size))


# Normalization
@operator
def BatchNorm(x: Any, scale: Any, bias: Any, mean: Any, variance: Any, *, is_training: bool = False,
              epsilon: float = 1e-5, momentum: float = 0.1,
              data_format: str = "NCHW") -> tuple[Tensor, ...]:  # fmt: skip
    """Return the tensor normalized for each channel, and the statistics used."""
    only_nchw(data_format)
    result = normalization.batch_norm(x, mean, variance, scale, bias, is_training, momentum, epsilon)
    return result, mean, variance, mean, variance


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


Dropout = primitive(lambda x, *, keep_prob=0.5, Seed0=0, Seed1=0: dropped(x, keep_prob, x.type.dtype))


# Shapes
@operator
def Split(x: Any, *, axis: int = 0, output_num: int = 1) -> tuple[Tensor, ...]:
    """Return the tensor in ``output_num`` equal parts along ``axis``."""
    extent = x.shape[axis]
    if extent % output_num:
        raise ArgumentValueError(f"Split of size {extent} into {output_num} parts", "the parts must be equal")
    return shaping.split(x, extent // output_num, axis)


@operator
def TensorShape(x: Any) -> Tensor:
    """Return the extents as a tensor."""
    return Tensor.of(np.array(shaping.shape(x), np.int64))


Meshgrid = primitive(lambda inputs, *, indexing="xy": shaping.meshgrid(*inputs, indexing=indexing))
Pad = primitive(
    lambda x, *, paddings: shaping.pad(x, [amount for pair in reversed(tuple(paddings)) for amount in pair]),
    "Return the tensor with zeros around it, a pair of amounts for each axis.",
)  # fmt: skip
ReverseV2 = primitive(shaping.flip, "", "axis", axis=...)
Squeeze = primitive(shaping.squeeze, axis=())
Unstack = Unpack = primitive(shaping.unstack, "", "axis", axis=0, num=None)


# Gather, scatter, creation
Range = primitive(shaping.arange, "", "", maxlen=1000000)


# Shapes
BatchToSpace = primitive(images.batch_to_space_nd, "", "block_size crops", block_size=..., crops=...)
BatchToSpaceNDV2 = primitive(
    lambda x, block, crops: images.batch_to_space_nd(x, shaping.ints(block, "block_shape"), _pairs(crops))
)  # fmt: skip
ChannelShuffle = primitive(images.channel_shuffle, "", "group", group=...)
DepthToSpace = primitive(images.depth_to_space, block_size=...)
FillV2 = primitive(lambda shape, value: shaping.full(shape, value, dtype=value.dtype))
MatrixDiagPartV3 = primitive(arranging.matrix_diag_part, align="RIGHT_LEFT")
MatrixDiagV3 = primitive(arranging.matrix_diag, align="RIGHT_LEFT")
MatrixSetDiagV3 = primitive(arranging.matrix_set_diag, align="RIGHT_LEFT")
SpaceToBatch = primitive(images.space_to_batch_nd, block_size=..., paddings=...)
SpaceToBatchND = primitive(images.space_to_batch_nd, "", "block_shape paddings", block_shape=..., paddings=...)
SpaceToDepth = primitive(images.space_to_depth, block_size=...)
SplitV = primitive(
    lambda x, *, size_splits, split_dim, num_split:
        shaping.split(x, _filled(size_splits, x.shape[split_dim]), split_dim),
)  # fmt: skip
TrilIndices = primitive(arranging.tril_indices, row=..., col=..., offset=0, dtype=int32)
TriuIndices = primitive(arranging.triu_indices, row=..., col=..., offset=0, dtype=int32)
IdentityN = primitive(lambda x: tuple(x))


def _pairs(value: Any) -> Any:
    return value.tolist() if isinstance(value, Tensor) else value


def _filled(sizes: Any, extent: int) -> tuple[int, ...]:
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
def DataFormatDimMap(x: Any, *, src_format: str = "NHWC", dst_format: str = "NCHW") -> Tensor:
    """Return dimensions of one format in another."""
    table = np.array([src_format.index(letter) for letter in dst_format], np.int32)
    return gather(Tensor.of(table), Tensor.of(x.asnumpy() % len(table)), 0)


@operator
def DataFormatVecPermute(x: Any, *, src_format: str = "NHWC", dst_format: str = "NCHW") -> Tensor:
    """Return extents of one format in the order of another."""
    letters = (
        src_format if len(x.shape) and x.shape[0] == len(src_format) else src_format.replace("N", "").replace("C", "")
    )
    wanted = [letter for letter in dst_format if letter in letters]
    return gather(x, Tensor.of(np.array([letters.index(letter) for letter in wanted])), 0)


# Gather and scatter
@operator
def EmbeddingLookup(input_params: Any, input_indices: Any, offset: int = 0) -> Tensor:
    """Return the rows that ``input_indices`` less ``offset`` names."""
    return gather(input_params, input_indices - offset if offset else input_indices, 0)


IndexAdd = primitive(arranging.index_add, "", "axis", axis=..., use_lock=True, check_index_bound=True)
IndexPut = primitive(lambda x, v, indices, *, accumulate=0: arranging.index_put(x, indices, v, bool(accumulate)))
InplaceUpdateV2 = primitive(lambda x, indices, v: arranging.inplace_update(x, v, indices))
globals().update({
    f"Scatter{places}{how}": primitive(
        getattr(arranging, f"scatter_{nd}{how.lower()}"), "", "", use_locking=how == "Update")
    for places, nd in (("", ""), ("Nd", "nd_")) for how in ("Add", "Div", "Max", "Min", "Mul", "Sub", "Update")
})  # fmt: skip
ScatterAddWithAxis = primitive(arranging.scatter_add_with_axis, axis=0)

# Selection and segments
Bucketize = primitive(lambda x, *, boundaries: arranging.bucketize(x, np.asarray(boundaries, np.float64), right=True))
ListDiff = primitive(arranging.list_diff, out_idx=int32)
LowerBound = primitive(lambda x, values, *, out_type=int32: _bound(x, values, out_type, False))
SearchSorted = primitive(
    lambda sequence, values, sorter=None, *, dtype=int64, right=False:
        cast(arranging.searchsorted(sequence, values, right=right, sorter=sorter), to_type(dtype).name),
)  # fmt: skip
UniqueConsecutive = primitive(
    lambda x, *, return_inverse=False, return_counts=False, dim=None:
        _consecutive(x, return_inverse, return_counts, dim),
)  # fmt: skip
UpperBound = primitive(lambda x, values, *, out_type=int32: _bound(x, values, out_type, True))


def _bound(sequence: Any, values: Any, out_type: Any, right: bool) -> Tensor:
    return cast(arranging.searchsorted(sequence, values, right=right), to_type(out_type).name)


def _consecutive(x: Any, return_inverse: bool, return_counts: bool, dim: int | None) -> Any:
    values, inverse, counts = arranging.unique_consecutive(x, True, True, dim)
    empty = Tensor.of(np.zeros(0, np.int64))
    return values, inverse if return_inverse else empty, counts if return_counts else empty


@operator
@on_data
def UnravelIndex(indices: Any, dims: Any) -> Any:
    """Return the coordinates of places in a flattened tensor, a column each."""
    return np.array(np.unravel_index(indices, tuple(dims))).astype(indices.dtype)


@operator
@on_data
def EqualCount(x: Any, y: Any) -> Any:
    """Return the number of elements that are equal."""
    return np.array([(x == y).sum()], x.dtype)


# Images, boxes, poolings
@operator
def AdaptiveMaxPool3D(x: Any, output_size: Any) -> tuple[Tensor, Tensor]:
    """Return the greatest elements of windows that give ``output_size``, a tensor, and their places (int32)."""
    found, places = pooling.adaptive_with_indices(x, output_size.asnumpy().tolist(), 3)
    return found, cast(places, "int32")


AdaptiveMaxPool2D = primitive(lambda x, *, output_size: pooling.adaptive_with_indices(x, output_size, 2))
Col2Im = primitive(images.col2im, "", "kernel_size dilation padding stride", kernel_size=..., dilation=1, padding=0,
                   stride=1)  # fmt: skip
GridSampler2D = primitive(images.grid_sample, "", "interpolation_mode padding_mode align_corners",
                          interpolation_mode="bilinear", padding_mode="zeros", align_corners=False)  # fmt: skip
Im2Col = primitive(images.im2col, ksizes=..., strides=1, dilations=1, pads=0)
NMSWithMask = primitive(images.nms_with_mask, iou_threshold=0.5)
MaxPoolWithArgmaxV2 = primitive(
    lambda x, *, kernel_size, strides=None, pads=0, dilation=(1, 1), ceil_mode=False, argmax_type=int64:
        pooling.with_indices(x, kernel_size, strides or kernel_size, pads, dilation, ceil_mode, 2),
)  # fmt: skip
MaxPool3DWithArgmax = primitive(
    lambda x, *, ksize, strides, pads, dilation=(1, 1, 1), ceil_mode=False, data_format="NCDHW", argmax_type=int64:
        pooling.with_indices(x, ksize, strides, pads, dilation, ceil_mode, 3),
)  # fmt: skip
MaxUnpool2D = primitive(pooling.max_unpool2d, "", "ksize strides pads output_shape", ksize=..., strides=0, pads=0,
                        output_shape=(), data_format="NCHW")  # fmt: skip
MaxUnpool3D = primitive(pooling.max_unpool3d, "", "ksize strides pads output_shape", ksize=..., strides=0, pads=0,
                        output_shape=(), data_format="NCDHW")  # fmt: skip
AvgPool3D = primitive(
    lambda x, *, kernel_size=1, strides=1, pad_mode="valid", pad=0, ceil_mode=False, count_include_pad=True,
        divisor_override=0, data_format="NCDHW":
        pooling.averaged(x, kernel_size, strides, pad_mode, pad, ceil_mode, count_include_pad, divisor_override, 3),
)  # fmt: skip
MaxPool3D = primitive(
    lambda x, *, kernel_size=1, strides=1, pad_mode="VALID", pad_list=0, ceil_mode=None, data_format="NCDHW":
        pooling.pool("MaxPool", x, kernel_size, strides, pad_mode, pad_list, bool(ceil_mode), 3),
)  # fmt: skip
Conv3D = primitive(
    lambda x, weight, *, out_channel, kernel_size, mode=1, pad_mode="valid", pad=0, stride=1, dilation=1, group=1,
        data_format="NCDHW":
        conv(x, weight, None, stride, pad_mode, pad, dilation, group, 3),
)  # fmt: skip
Conv3DTranspose = primitive(
    lambda x, weight, *, in_channel, out_channel, kernel_size, mode=1, pad_mode="valid", pad=0, stride=1,
        dilation=1, group=1, output_padding=0, data_format="NCDHW":
        conv_transpose(x, weight, None, stride, pad_mode, pad, output_padding, dilation, group, 3),
)  # fmt: skip


Dropout2D = primitive(lambda x, *, keep_prob=0.5: dropped(x, keep_prob, "bool", 2))
Dropout3D = primitive(lambda x, *, keep_prob=0.5: dropped(x, keep_prob, "bool", 3))


def _resized(mode: str) -> Any:
    def resized(image: Any, size: Any, align_corners: bool = False, half_pixel_centers: bool = False) -> Tensor:
        """Return images of another size."""
        return pooling.resized(image, shaping.ints(size, "the size"), mode, align_corners, half_pixel_centers)

    return resized


ResizeBilinearV2 = primitive(_resized("linear"), align_corners=False, half_pixel_centers=False)
ResizeBicubic = primitive(_resized("cubic"), align_corners=False, half_pixel_centers=False)
ResizeNearestNeighborV2 = primitive(_resized("nearest"), align_corners=False, half_pixel_centers=False)
ResizeLinear1D = primitive(
    lambda x, size, coordinate_transformation_mode: pooling.resized(
        x, shaping.ints(size, "the size"), "linear", coordinate_transformation_mode == "align_corners",
        coordinate_transformation_mode == "half_pixel"),
    coordinate_transformation_mode="align_corners",
)  # fmt: skip

# Without attributes
globals().update(primitives(
    ConjugateTranspose=shaping.transpose, DiagPart=arranging.diag_part, InvertPermutation=arranging.invert_permutation,
    MaskedScatter=arranging.masked_scatter, ParallelConcat=shaping.concat,
    ScatterNonAliasingAdd=arranging.scatter_nd_add, SegmentMax=arranging.segment_max,
    SegmentMean=arranging.segment_mean, SegmentMin=arranging.segment_min, SegmentProd=arranging.segment_prod,
    SegmentSum=arranging.segment_sum,
))  # fmt: skip

names.call_rows(vars(), __name__)
__all__ = names.public(vars(), Primitive)
