"""Poolings of one and three axes, of greatest elements with their places and back, and of powers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore.ops.arithmetic import add, mul, need_tensor, pow
from opbuild.mindspore.ops.convolution import Padding, conv_transpose, per_axis
from opbuild.mindspore.ops.declaration import spelled
from opbuild.mindspore.ops.gathering import gather
from opbuild.mindspore.ops.normalization import dropout
from opbuild.mindspore.ops.pooling import adaptive, averaged, pool
from opbuild.mindspore.ops.reduction import index_of, reduce
from opbuild.mindspore.ops.scattering import tensor_scatter_elements
from opbuild.mindspore.ops.shaping import concat, expand_dims, ints, reshaped, squeeze
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool3d", "avg_pool3d",
    "conv3d_transpose", "dropout1d", "dropout2d", "dropout3d", "lp_pool1d", "lp_pool2d", "max_pool3d",
    "max_unpool1d", "max_unpool2d", "max_unpool3d",
]  # fmt: skip


def adaptive_avg_pool1d(input: Any, output_size: Any) -> Tensor:
    """Return means over windows of the last axis chosen so that ``output_size`` of them come out."""
    return adaptive("ReduceMean", "AveragePool", input, output_size, 1)


def adaptive_max_pool1d(input: Any, output_size: Any) -> Tensor:
    """Return the greatest elements of windows of the last axis chosen so that ``output_size`` come out."""
    return adaptive("ReduceMax", "MaxPool", input, output_size, 1)


def adaptive_avg_pool3d(input: Any, output_size: Any) -> Tensor:
    """Return means over windows of the last three axes; None keeps an extent."""
    return adaptive("ReduceMean", "AveragePool", input, output_size, 3)


def adaptive_max_pool3d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
    """Return the greatest elements of windows of the last three axes; None keeps an extent."""
    if return_indices:
        return adaptive_with_indices(input, output_size, 3)
    return adaptive("ReduceMax", "MaxPool", input, output_size, 3)


def avg_pool3d(input_x: Any, kernel_size: Any = 1, stride: Any = 1, padding: Padding = 0, ceil_mode: bool = False,
               count_include_pad: bool = True, divisor_override: int = 0) -> Tensor:  # fmt: skip
    """Return the mean under a window of three axes."""
    return averaged(input_x, kernel_size, stride, "pad", padding, ceil_mode, count_include_pad, divisor_override, 3)


def max_pool3d(x: Any, kernel_size: Any, stride: Any = None, padding: Padding = 0, dilation: Any = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:  # fmt: skip
    """Return the greatest element under a window of three axes and, if asked, its place in the flattened volume."""
    step = kernel_size if stride is None else stride
    if return_indices:
        return with_indices(x, kernel_size, step, padding, dilation, ceil_mode, 3)
    return pool("MaxPool", x, kernel_size, step, "pad", padding, ceil_mode, 3, dilation=dilation)


def with_indices(x: Any, kernel_size: Any, stride: Any, padding: Padding, dilation: Any, ceil_mode: bool,
                 rank: int) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the greatest element under a window and its place (int64) in the flattened spatial axes."""
    given = need_tensor(x, "max_pool")
    tensor = given if given.ndim == rank + 2 else expand_dims(given, 0)
    extents = tensor.shape[2:]
    border = (padding,) * rank if isinstance(padding, int) else tuple(padding)
    kernel, strides = per_axis(kernel_size, rank, "the kernel_size"), per_axis(stride, rank, "the stride")
    dilations = per_axis(dilation, rank, "the dilation")
    steps = [_steps(*each, ceil_mode) for each in zip(extents, kernel, strides, border, dilations, strict=True)]
    results = greatest(tensor, steps)
    return results if given is tensor else (squeeze(results[0], 0), squeeze(results[1], 0))


def adaptive_with_indices(x: Any, output_size: Any, rank: int) -> tuple[Tensor, Tensor]:
    """Return the greatest elements of windows that give ``output_size``, and their places (int64)."""
    given = need_tensor(x, "adaptive_max_pool")
    tensor = given if given.ndim == rank + 2 else expand_dims(given, 0)
    sizes = (output_size,) * rank if isinstance(output_size, int) else tuple(output_size)
    steps = []
    for extent, size in zip(tensor.shape[2:], sizes, strict=True):
        count = extent if size is None else size
        bounds = [(index * extent // count, -(-(index + 1) * extent // count)) for index in range(count)]
        width = max(end - start for start, end in bounds)
        columns = [[start + k if start + k < end else -1 for k in range(width)] for start, end in bounds]
        steps.append(np.array(columns).T)
    results = greatest(tensor, steps)
    return results if given is tensor else (squeeze(results[0], 0), squeeze(results[1], 0))


def greatest(tensor: Tensor, steps: Sequence[Array]) -> tuple[Tensor, Tensor]:
    """Return the greatest element of each window and its place in the flattened spatial axes.

    Args:
        tensor: Shape (N, C, ...).
        steps: For each spatial axis the places of each cell (rows) of each window (columns); -1 is no cell.
    """
    extents, rank = tensor.shape[2:], len(steps)
    places = _windows(extents, steps)
    outer, table = places.shape[rank:], places.reshape(prod(places.shape[:rank]), -1)
    batch, channels = tensor.shape[:2]
    flat = reshaped(tensor, (batch, channels, prod(extents)))
    least = np.full((batch, channels, 1), -np.inf, tensor.type.dtype)
    columns = gather(concat([flat, Tensor.of(least)], 2), Tensor.of(table % (prod(extents) + 1)), 2)
    chosen = index_of("ArgMax", columns, 2, False, "int64")
    cells = add(mul(chosen, table.shape[1]), Tensor.of(np.arange(table.shape[1])))
    found = gather(Tensor.of(np.ascontiguousarray(table.reshape(-1))), cells, 0)
    shape = (batch, channels, *outer)
    return reshaped(reduce("ReduceMax", columns, 2, False), shape), reshaped(found, shape)


def _windows(extents: tuple[int, ...], steps: Sequence[Array]) -> Array:
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
        """Return zeros with the elements of a pooled tensor at the places that they came from."""
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

    function.__name__ = function.__qualname__ = f"max_unpool{rank}d"
    return function


max_unpool1d, max_unpool2d, max_unpool3d = (_unpool(rank) for rank in (1, 2, 3))


def _lp_pool(rank: int, axes: str) -> Callable[..., Tensor]:
    def function(x: Any, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> Tensor:
        step = kernel_size if stride is None else stride
        mean = averaged(pow(x, float(norm_type)), kernel_size, step, "valid", 0, ceil_mode, True, None, rank)
        return pow(mul(mean, float(prod(per_axis(kernel_size, rank, "the kernel_size")))), 1 / float(norm_type))

    function.__name__ = function.__qualname__ = f"lp_pool{rank}d"
    function.__doc__ = f"Return the norm of order ``norm_type`` under a window of {axes}."
    return function


lp_pool1d, lp_pool2d = _lp_pool(1, "one axis"), _lp_pool(2, "two axes")


def conv3d_transpose(inputs: Any, weight: Any, pad_mode: str = "valid", padding: Padding = 0, stride: Any = 1,
                     dilation: Any = 1, group: int = 1, output_padding: Any = 0) -> Tensor:  # fmt: skip
    """Return a transposed convolution over three spatial axes."""
    return conv_transpose(inputs, weight, None, stride, pad_mode, padding, output_padding, dilation, group, 3)


def dropout1d(input: Any, p: float = 0.5, training: bool = True) -> Tensor:
    """Return the tensor: nothing is dropped when a network runs."""
    return dropout(input, p, training)


dropout2d, dropout3d = spelled(dropout1d, "dropout2d"), spelled(dropout1d, "dropout3d")
