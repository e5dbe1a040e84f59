"""Windows: convolutions, poolings of one to three axes with the places of the greatest and back, resizing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError, of_rank, one_of
from opbuild.mindspore.execution import emit
from opbuild.mindspore.ops.arithmetic import add, mul, pow
from opbuild.mindspore.ops.arranging import tensor_scatter_elements
from opbuild.mindspore.ops.declaration import formula, named, need_tensor, spelled
from opbuild.mindspore.ops.reduction import index_of, reduce
from opbuild.mindspore.ops.shaping import concat, cut, expand_dims, gather, ints, reshaped, squeeze
from opbuild.mindspore.tensor import Tensor

Padding = int | tuple[int, ...] | list[int]
PAD_MODES = ("valid", "same", "pad")
_ONE = "of the last axis chosen so that ``output_size`` of them come out"
_THREE = "of the last three axes; None keeps a dimension"
_TWO = "chosen so that the output has ``output_size``; None keeps a dimension"


def per_axis(value: Any, rank: int, what: str) -> tuple[int, ...]:
    """Return one positive integer for each spatial axis; of four (MindSpore's NCHW form) the last two count."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(values) == 1:
        values *= rank
    values = values[-rank:] if len(values) == rank + 2 else values
    if len(values) != rank or not all(isinstance(item, int) and item > 0 for item in values):
        raise ArgumentValueError(f"{what} is {value!r}", f"give a positive integer or {rank} of them")
    return values


def pads_of(mode: str, padding: Padding, extents: tuple[int, ...], kernel: tuple[int, ...], stride: tuple[int, ...],
            dilation: tuple[int, ...], what: str) -> tuple[int, ...]:  # fmt: skip
    """Return ONNX's pads (all beginnings, then all ends) for MindSpore's ``pad_mode`` and ``padding``."""
    one_of(str(mode).lower(), PAD_MODES, f"the pad_mode of {what}")
    rank = len(kernel)
    if mode.lower() != "pad" and padding not in (0, (0,) * rank, (0,) * 2 * rank, [0] * rank):
        raise ArgumentValueError(f"{what} was given padding={padding} with pad_mode={mode!r}", "use pad_mode='pad'")
    if mode.lower() == "valid":
        return (0,) * 2 * rank
    if mode.lower() == "same":
        totals = [
            max((-(-extent // step) - 1) * step + (size - 1) * gap + 1 - extent, 0)
            for extent, size, step, gap in zip(extents, kernel, stride, dilation, strict=True)
        ]
        return (*(total // 2 for total in totals), *(total - total // 2 for total in totals))
    return _explicit(padding, rank, what)


def _explicit(padding: Padding, rank: int, what: str) -> tuple[int, ...]:
    given = (padding,) if isinstance(padding, int) else tuple(padding)
    if any(not isinstance(item, int) or item < 0 for item in given):
        raise ArgumentValueError(f"the padding of {what} is {padding!r}", "give integers of at least 0")
    if len(given) == 1:
        return given * 2 * rank
    if len(given) == rank:
        return given * 2
    if len(given) == 2 * rank:  # (top, bottom, left, right)
        return (*given[0::2], *given[1::2])
    raise ArgumentValueError(f"the padding of {what} is {padding!r}", f"give 1, {rank} or {2 * rank} integers")


def conv(input: Any, weight: Any, bias: Any = None, stride: Any = 1, pad_mode: str = "valid", padding: Padding = 0,
         dilation: Any = 1, groups: int = 1, rank: int = 2) -> Tensor:  # fmt: skip
    """Return a convolution over ``rank`` spatial axes.

    The weight has the shape (O, C / groups, ...); ``pad_mode`` is ``valid`` (none), ``same`` (as many outputs as inputs
    / stride) or ``pad``: as ``padding`` says, for all sides or for each.
    """
    tensor, kernel = need_tensor(input, "conv"), need_tensor(weight, "conv")
    what = f"conv{rank}d"
    for each in (tensor, kernel):
        of_rank(each, (rank + 2,), what)
    shape = kernel.shape[2:]
    strides = per_axis(stride, rank, f"the stride of {what}")
    dilations = per_axis(dilation, rank, f"the dilation of {what}")
    pads = pads_of(pad_mode, padding, tensor.shape[2:], shape, strides, dilations, what)
    operands = (tensor, kernel) if bias is None else (tensor, kernel, need_tensor(bias, what))
    return emit("Conv", *operands, kernel_shape=shape, strides=strides, pads=pads, dilations=dilations, group=groups)


def _conv(rank: int, axes: str) -> Callable[..., Tensor]:
    return formula(
        f"a convolution over {axes}; see ``conv``",
        lambda input, weight, bias=None, stride=1, pad_mode="valid", padding=0, dilation=1, groups=1: conv(
            input, weight, bias, stride, pad_mode, padding, dilation, groups, rank
        ),
    )


def conv_transpose(input: Any, weight: Any, bias: Any = None, stride: Any = 1, pad_mode: str = "valid",
                   padding: Padding = 0, output_padding: Any = 0, dilation: Any = 1, groups: int = 1,
                   rank: int = 2) -> Tensor:  # fmt: skip
    """Return a transposed convolution; ``weight`` has the shape (C, O / groups, ...).

    With ``pad_mode`` ``same`` the output has ``stride`` times the input's extents; with ``valid`` none is cut off.
    """
    tensor, kernel = need_tensor(input, "conv_transpose"), need_tensor(weight, "conv_transpose")
    what = f"conv_transpose{rank}d"
    shape = kernel.shape[2:]
    strides = per_axis(stride, rank, f"the stride of {what}")
    dilations = per_axis(dilation, rank, f"the dilation of {what}")
    extra = (output_padding,) * rank if isinstance(output_padding, int) else tuple(output_padding)
    one_of(str(pad_mode).lower(), PAD_MODES, f"the pad_mode of {what}")
    spans = [(size - 1) * gap + 1 - step for size, gap, step in zip(shape, dilations, strides, strict=True)]
    if pad_mode.lower() == "pad":
        pads = _explicit(padding, rank, what)
    else:  # MindSpore's valid mode keeps the stride's gap after the last element, as its same mode does
        totals = [max(span, 0) if pad_mode.lower() == "same" else 0 for span in spans]
        pads = (*(total // 2 for total in totals), *(total - total // 2 for total in totals))
        extra = tuple(max(-span, 0) for span in spans)
    operands = (tensor, kernel) if bias is None else (tensor, kernel, need_tensor(bias, what))
    return emit("ConvTranspose", *operands, kernel_shape=shape, strides=strides, pads=pads, dilations=dilations,
                group=groups, output_padding=extra)  # fmt: skip


def pool(op_type: str, value: Any, kernel_size: Any, stride: Any, pad_mode: str, padding: Padding, ceil_mode: bool,
         rank: int, **attrs: Any) -> Tensor:  # fmt: skip
    """Apply ONNX's MaxPool or AveragePool to a tensor with or without a batch axis."""
    tensor = need_tensor(value, op_type)
    of_rank(tensor, (rank + 1, rank + 2), op_type)
    batched = tensor if tensor.ndim == rank + 2 else expand_dims(tensor, 0)
    kernel, strides = per_axis(kernel_size, rank, "the kernel_size"), per_axis(stride, rank, "the stride")
    dilations = per_axis(attrs.pop("dilation", 1), rank, "the dilation")
    pads = pads_of(pad_mode, padding, batched.shape[2:], kernel, strides, dilations, op_type)
    if any(dilation != 1 for dilation in dilations):
        attrs["dilations"] = dilations
    result = emit(op_type, batched, kernel_shape=kernel, strides=strides, pads=pads, ceil_mode=int(ceil_mode), **attrs)
    return result if tensor.ndim == rank + 2 else squeeze(result, 0)


def max_pool(x: Any, kernel_size: Any, stride: Any, pad_mode: str, padding: Padding, dilation: Any, ceil_mode: bool,
             return_indices: bool, rank: int) -> Any:  # fmt: skip
    """Return the greatest element under a window and, with ``return_indices``, its place in the flattened image."""
    step = kernel_size if stride is None else stride
    if return_indices:
        return with_indices(x, kernel_size, step, padding, dilation, ceil_mode, rank)
    return pool("MaxPool", x, kernel_size, step, pad_mode, padding, ceil_mode, rank, dilation=dilation)


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


def _avg_pool(rank: int, axes: str) -> Callable[..., Tensor]:
    return formula(f"the mean under a window{axes}",
        lambda input_x, kernel_size=1, stride=1, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=0:
            averaged(input_x, kernel_size, stride, "pad", padding, ceil_mode, count_include_pad,
                     divisor_override, rank))  # fmt: skip


def adaptive(reduction: str, pooling: str, value: Any, output_size: Any, rank: int) -> Tensor:
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
    parts = [cut(tensor, [start], [end], [axis], [1]) for start, end in _bounds(tensor.shape[axis], size)]
    return concat([reduce(reduction, part, axis, True) for part in parts], axis)


def _bounds(extent: int, count: int) -> list[tuple[int, int]]:
    return [(index * extent // count, -(-(index + 1) * extent // count)) for index in range(count)]


def _adaptive_mean(rank: int, what: str) -> Callable[[Any, Any], Tensor]:
    return formula(
        f"means over windows {what}",
        lambda input, output_size: adaptive("ReduceMean", "AveragePool", input, output_size, rank),
    )


def _adaptive_greatest(rank: int, what: str) -> Callable[..., Any]:
    def function(input: Any, output_size: Any, return_indices: bool = False) -> Any:
        if return_indices:
            return adaptive_with_indices(input, output_size, rank)
        return adaptive("ReduceMax", "MaxPool", input, output_size, rank)

    return formula(f"the greatest elements of windows {what}", function)


def interpolate(input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                align_corners: bool | None = None, recompute_scale_factor: bool | None = None) -> Tensor:  # fmt: skip
    """Return a tensor of shape (N, C, ...) resized to ``size`` or by ``scale_factor``."""
    tensor = need_tensor(input, "interpolate")
    kinds = {"nearest": "nearest", "linear": "linear", "bilinear": "linear"}
    kind = kinds[one_of(mode, tuple(kinds), "the mode of interpolate")]
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


def with_indices(x: Any, kernel_size: Any, stride: Any, padding: Padding, dilation: Any, ceil_mode: bool,
                 rank: int) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the greatest element under a window and its place (int64) in the flattened spatial axes."""
    tensor = need_tensor(x, "max_pool")
    extents = tensor.shape[-rank:]
    border = (padding,) * rank if isinstance(padding, int) else tuple(padding)
    kernel, strides = per_axis(kernel_size, rank, "the kernel_size"), per_axis(stride, rank, "the stride")
    dilations = per_axis(dilation, rank, "the dilation")
    steps = [_steps(*each, ceil_mode) for each in zip(extents, kernel, strides, border, dilations, strict=True)]
    return greatest(tensor, steps)


def adaptive_with_indices(x: Any, output_size: Any, rank: int) -> tuple[Tensor, Tensor]:
    """Return the greatest elements of windows that give ``output_size``, and their places (int64)."""
    tensor = need_tensor(x, "adaptive_max_pool")
    sizes = (output_size,) * rank if isinstance(output_size, int) else tuple(output_size)
    steps = []
    for extent, size in zip(tensor.shape[-rank:], sizes, strict=True):
        bounds = _bounds(extent, extent if size is None else size)
        width = max(end - start for start, end in bounds)
        columns = [[start + k if start + k < end else -1 for k in range(width)] for start, end in bounds]
        steps.append(np.array(columns).T)
    return greatest(tensor, steps)


def greatest(tensor: Tensor, steps: Sequence[Array]) -> tuple[Tensor, Tensor]:
    """Return the greatest element of each window and its place in the flattened spatial axes.

    Args:
        tensor: Shape (N, C, ...) or (C, ...).
        steps: For each spatial axis the places of each cell (rows) of each window (columns); -1 is no cell.
    """
    rank = len(steps)
    front, extents = tensor.shape[:-rank], tensor.shape[-rank:]
    places = _cells(extents, steps)
    outer, table = places.shape[rank:], places.reshape(prod(places.shape[:rank]), -1)
    flat, last = reshaped(tensor, (*front, prod(extents))), len(front)
    least = np.full((*front, 1), -np.inf, tensor.type.dtype)
    columns = gather(concat([flat, Tensor.of(least)], last), Tensor.of(table % (prod(extents) + 1)), last)
    chosen = index_of("ArgMax", columns, last, False, "int64")
    cells = add(mul(chosen, table.shape[1]), Tensor.of(np.arange(table.shape[1])))
    found = gather(Tensor.of(np.ascontiguousarray(table.reshape(-1))), cells, 0)
    shape = (*front, *outer)
    return reshaped(reduce("ReduceMax", columns, last, False), shape), reshaped(found, shape)


def _cells(extents: tuple[int, ...], steps: Sequence[Array]) -> Array:
    """Return the place of each cell of each window, -1 for none: axes of the window, then of the windows."""
    places = np.arange(prod(extents)).reshape(extents)
    rank = len(extents)
    for axis in reversed(range(rank)):
        missing = steps[axis] < 0
        places = np.take(places, np.where(missing, 0, steps[axis]), axis)
        shape = [1] * places.ndim
        shape[axis : axis + 2] = missing.shape
        places = np.where(missing.reshape(shape), -1, places)
    return np.ascontiguousarray(places.transpose((*range(0, 2 * rank, 2), *range(1, 2 * rank, 2))))


def _steps(extent: int, kernel: int, stride: int, border: int, dilation: int, ceil_mode: bool) -> Array:
    room = extent + 2 * border - dilation * (kernel - 1) - 1
    count = (-(-room // stride) if ceil_mode else room // stride) + 1
    if ceil_mode and (count - 1) * stride >= extent + border:
        count -= 1
    places = np.add.outer(np.arange(kernel) * dilation, np.arange(count) * stride) - border
    return np.where((places < 0) | (places >= extent), -1, places)


def _unpool(rank: int) -> Callable[..., Tensor]:
    def function(x: Any, indices: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
                 output_size: Any = None) -> Tensor:  # fmt: skip
        tensor, places = need_tensor(x, "max_unpool"), need_tensor(indices, "max_unpool")
        kernel = per_axis(kernel_size, rank, "the kernel_size")
        steps = kernel if stride in (None, 0) else per_axis(stride, rank, "the stride")
        border = (padding,) * rank if isinstance(padding, int) else tuple(padding)
        front, inner = tensor.shape[: tensor.ndim - rank], tensor.shape[tensor.ndim - rank :]
        wanted = tuple((extent - 1) * step - 2 * more + size
                       for extent, step, more, size in zip(inner, steps, border, kernel, strict=True))  # fmt: skip
        if output_size:
            wanted = ints(output_size, "the output_size")[-rank:]
        zeros = Tensor.of(np.zeros((*front, prod(wanted)), tensor.type.dtype))
        flat = (*front, prod(inner))
        result = tensor_scatter_elements(zeros, reshaped(places, flat), reshaped(tensor, flat), len(front))
        return reshaped(result, (*front, *wanted))

    doc = "Return zeros with the elements of a pooled tensor at the places that they came from."
    return named(function, f"max_unpool{rank}d", doc)


def _lp_pool(rank: int, axes: str) -> Callable[..., Tensor]:
    def function(x: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
        step = kernel_size if stride is None else stride
        mean = averaged(pow(x, float(norm_type)), kernel_size, step, "valid", 0, ceil_mode, True, None, rank)
        return pow(mul(mean, float(prod(per_axis(kernel_size, rank, "the kernel_size")))), 1 / float(norm_type))

    return formula(f"the norm of order ``norm_type`` under a window of {axes}", function)


def conv3d_transpose(inputs: Any, weight: Any, pad_mode: str = "valid", padding: Padding = 0, stride: Any = 1,
                     dilation: Any = 1, group: int = 1, output_padding: Any = 0) -> Tensor:  # fmt: skip
    """Return a transposed convolution over three spatial axes."""
    return conv_transpose(inputs, weight, None, stride, pad_mode, padding, output_padding, dilation, group, 3)


max_pool2d = formula(
    "the greatest element under a window and, with ``return_indices``, its place in the flattened image",
    lambda x, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False:
        max_pool(x, kernel_size, stride, "pad", padding, dilation, ceil_mode, return_indices, 2))  # fmt: skip
max_pool3d = formula(
    "the greatest element under a window of three axes and, if asked, its place in the flattened volume",
    lambda x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False:
        max_pool(x, kernel_size, stride, "pad", padding, dilation, ceil_mode, return_indices, 3))  # fmt: skip
conv1d, conv2d, conv3d = _conv(1, "one spatial axis"), _conv(2, "two spatial axes"), _conv(3, "three spatial axes")
avg_pool2d, avg_pool3d = _avg_pool(2, ""), _avg_pool(3, " of three axes")
avg_pool1d = spelled(_avg_pool(1, ""), "Return the mean under a window of one axis.", {"divisor_override": 0})
adaptive_avg_pool1d, adaptive_avg_pool2d = _adaptive_mean(1, _ONE), _adaptive_mean(2, _TWO)
adaptive_avg_pool3d, adaptive_max_pool3d = _adaptive_mean(3, _THREE), _adaptive_greatest(3, _THREE)
adaptive_max_pool2d = _adaptive_greatest(2, _TWO)
adaptive_max_pool1d = spelled(_adaptive_greatest(1, _ONE), f"Return the greatest elements of windows {_ONE}.",
    {"return_indices": False})  # fmt: skip
max_unpool1d, max_unpool2d, max_unpool3d = (_unpool(rank) for rank in (1, 2, 3))
lp_pool1d, lp_pool2d = _lp_pool(1, "one axis"), _lp_pool(2, "two axes")
conv_transpose2d = formula("a transposed convolution over two spatial axes; see ``conv_transpose``",
    lambda input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1:
        conv_transpose(input, weight, bias, stride, "pad", padding, output_padding, dilation, groups))  # fmt: skip

names.export(vars(), but="""
    adaptive adaptive_with_indices averaged conv conv_transpose greatest max_pool pads_of per_axis pool
    resized with_indices
""")  # fmt: skip
