"""Pooling and resizing."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from opbuild.frontend.cell import location
from opbuild.mindspore.arguments import ArgumentValueError, TensorShapeError, one_of
from opbuild.mindspore.execution import emit
from opbuild.mindspore.ops.arithmetic import mul, need_tensor
from opbuild.mindspore.ops.convolution import Padding, pads_of, per_axis
from opbuild.mindspore.ops.reduction import reduce
from opbuild.mindspore.ops.shaping import concat, cut, expand_dims, squeeze
from opbuild.mindspore.tensor import Tensor

__all__ = ["adaptive_avg_pool2d", "adaptive_max_pool2d", "avg_pool1d", "avg_pool2d", "interpolate", "max_pool2d"]


def pool(op_type: str, value: Any, kernel_size: Any, stride: Any, pad_mode: str, padding: Padding, ceil_mode: bool,
         rank: int, **attrs: Any) -> Tensor:  # fmt: skip
    """Apply ONNX's MaxPool or AveragePool to a tensor with or without a batch axis."""
    tensor = need_tensor(value, op_type)
    if tensor.ndim not in (rank + 1, rank + 2):
        raise TensorShapeError(f"{op_type} of shape {tensor.shape}{location()}", f"it needs {rank + 2} dimensions")
    batched = tensor if tensor.ndim == rank + 2 else expand_dims(tensor, 0)
    kernel, strides = per_axis(kernel_size, rank, "the kernel_size"), per_axis(stride, rank, "the stride")
    dilations = per_axis(attrs.pop("dilation", 1), rank, "the dilation")
    pads = pads_of(pad_mode, padding, batched.shape[2:], kernel, strides, dilations, op_type)
    if any(dilation != 1 for dilation in dilations):
        attrs["dilations"] = dilations
    result = emit(op_type, batched, kernel_shape=kernel, strides=strides, pads=pads, ceil_mode=int(ceil_mode), **attrs)
    return result if tensor.ndim == rank + 2 else squeeze(result, 0)


def max_pool2d(x: Any, kernel_size: Any, stride: Any = None, padding: Padding = 0, dilation: Any = 1,
               return_indices: bool = False, ceil_mode: bool = False) -> Any:  # fmt: skip
    """Return the greatest element under a window and, with ``return_indices``, its place in the flattened image."""
    step = kernel_size if stride is None else stride
    if return_indices:
        from opbuild.mindspore.ops.volumes import with_indices

        return with_indices(x, kernel_size, step, padding, dilation, ceil_mode, 2)
    return pool("MaxPool", x, kernel_size, step, "pad", padding, ceil_mode, 2, dilation=dilation)


def avg_pool2d(input_x: Any, kernel_size: Any = 1, stride: Any = 1, padding: Padding = 0, ceil_mode: bool = False,
               count_include_pad: bool = True, divisor_override: int = 0) -> Tensor:  # fmt: skip
    """Return the mean under a window."""
    return averaged(input_x, kernel_size, stride, "pad", padding, ceil_mode, count_include_pad, divisor_override, 2)


def avg_pool1d(input_x: Any, kernel_size: Any = 1, stride: Any = 1, padding: Padding = 0, ceil_mode: bool = False,
               count_include_pad: bool = True) -> Tensor:  # fmt: skip
    """Return the mean under a window of one axis."""
    return averaged(input_x, kernel_size, stride, "pad", padding, ceil_mode, count_include_pad, None, 1)


def averaged(value: Any, kernel_size: Any, stride: Any, pad_mode: str, padding: Padding, ceil_mode: bool,
             count_include_pad: bool, divisor_override: int | None, rank: int) -> Tensor:  # fmt: skip
    """Return the mean under a window, divided by ``divisor_override`` instead of the window's size if that is given."""
    include = bool(count_include_pad and pad_mode.lower() == "pad")
    divisor = divisor_override or 0
    result = pool("AveragePool", value, kernel_size, stride, pad_mode, padding, ceil_mode, rank,
                  count_include_pad=int(include or bool(divisor)))  # fmt: skip
    if not divisor:
        return result
    return mul(result, prod(per_axis(kernel_size, rank, "the kernel_size")) / divisor)


def adaptive_avg_pool2d(input: Any, output_size: Any) -> Tensor:
    """Return means over windows chosen so that the output has ``output_size``; None keeps an extent."""
    return adaptive("ReduceMean", "AveragePool", input, output_size)


def adaptive_max_pool2d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Return the greatest elements of windows chosen so that the output has ``output_size``; None keeps an extent."""
    if return_indices:
        from opbuild.mindspore.ops.volumes import adaptive_with_indices

        return adaptive_with_indices(input, output_size, 2)
    return adaptive("ReduceMax", "MaxPool", input, output_size)


def adaptive(reduction: str, pooling: str, value: Any, output_size: Any, rank: int = 2) -> Tensor:
    """Reduce windows of the last ``rank`` axes that are chosen so that the output has ``output_size``."""
    tensor = need_tensor(value, "adaptive pooling")
    sizes = (output_size,) * rank if isinstance(output_size, int) or output_size is None else tuple(output_size)
    sizes = sizes * rank if len(sizes) == 1 else sizes
    extents = tensor.shape[-rank:]
    wanted = tuple(extent if size is None else size for size, extent in zip(sizes, extents, strict=True))
    axes = tuple(range(tensor.ndim - rank, tensor.ndim))
    if wanted == (1,) * rank:
        return reduce(reduction, tensor, axes, True)
    if all(extent % size == 0 for extent, size in zip(extents, wanted, strict=True)):
        window = tuple(extent // size for extent, size in zip(extents, wanted, strict=True))
        return pool(pooling, tensor, window, window, "valid", 0, False, rank)
    for axis, size in zip(axes, wanted, strict=True):
        tensor = _windows(reduction, tensor, axis, size)
    return tensor


def _windows(reduction: str, tensor: Tensor, axis: int, size: int) -> Tensor:
    """Reduce each of ``size`` windows of unequal extents along one axis.

    Means of means are exact: windows are rectangles.
    """
    extent = tensor.shape[axis]
    bounds = [(index * extent // size, -(-(index + 1) * extent // size)) for index in range(size)]
    parts = [cut(tensor, [start], [end], [axis], [1]) for start, end in bounds]
    return concat([reduce(reduction, part, axis, True) for part in parts], axis)


def interpolate(input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                align_corners: bool | None = None, recompute_scale_factor: bool | None = None) -> Tensor:  # fmt: skip
    """Return a tensor of shape (N, C, ...) resized to ``size`` or by ``scale_factor``.

    Raises:
        ArgumentValueError: If the mode is another, or not exactly one of size and scale is given.
    """
    tensor = need_tensor(input, "interpolate")
    kind = {"nearest": "nearest", "linear": "linear", "bilinear": "linear"}[
        one_of(mode, ("nearest", "linear", "bilinear"), "the mode of interpolate")
    ]
    rank = tensor.ndim - 2
    if (size is None) == (scale_factor is None):
        raise ArgumentValueError("interpolate needs a size or a scale_factor", "give exactly one of them")
    if size is not None:
        spatial = (size,) * rank if isinstance(size, int) else tuple(size)
    else:
        factors = (scale_factor,) * rank if isinstance(scale_factor, (int, float)) else tuple(scale_factor)
        spatial = tuple(int(extent * factor) for extent, factor in zip(tensor.shape[2:], factors, strict=True))
    place = "asymmetric" if kind == "nearest" else "align_corners" if align_corners else "half_pixel"
    sizes = np.array((*tensor.shape[:2], *spatial), np.int64)
    return emit(
        "Resize", tensor, None, None, sizes, mode=kind, coordinate_transformation_mode=place, nearest_mode="floor"
    )


def resized(value: Any, size: tuple[int, ...], kind: str, align_corners: bool, half_pixel: bool) -> Tensor:
    """Return a tensor of shape (N, C, ...) resized; without either flag places are divided by the factor alone."""
    tensor = need_tensor(value, "resize")
    place = "align_corners" if align_corners else "half_pixel" if half_pixel else "asymmetric"
    sizes = np.array((*tensor.shape[:2], *size), np.int64)
    nearest = {"align_corners": "round_prefer_ceil", "half_pixel": "round_prefer_ceil", "asymmetric": "floor"}[place]
    extra: dict[str, Any] = (
        {"cubic_coeff_a": -0.5 if half_pixel else -0.75, "exclude_outside": int(half_pixel)} if kind == "cubic" else {}
    )
    return emit("Resize", tensor, None, None, sizes, mode=kind, coordinate_transformation_mode=place,
                nearest_mode=nearest, **extra)  # fmt: skip
