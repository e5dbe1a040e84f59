"""Backward passes that torch's decompositions do not write out, or not for open sizes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from opbuild.frontend.torch.builder import StepBuilder, Value, category, rule
from opbuild.frontend.torch.rules.window import spatial, spread
from opbuild.graph.gradients import movement, reduction, window


@rule("convolution_backward.default")
def convolution_backward(
    of: StepBuilder,
    dy: Value,
    x: Value,
    weight: Value,
    _bias_sizes: Sequence[int] | None,
    strides: Sequence[int],
    padding: Sequence[int],
    dilations: Sequence[int],
    transposed: bool,
    _output_padding: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Value | None, ...]:
    """The gradients of a convolution's data, weights and bias, those that are wanted."""
    count = len(weight.shape) - 2
    _require(of, x, count)
    sliding = window.TapWindow(spread(strides, count), spread(padding, count) * 2, spread(dilations, count), groups)
    return window.convolution_gradients(of, x, weight, dy, sliding, wanted, transposed=transposed)


@rule("max_pool2d_with_indices_backward.default", "max_pool3d_with_indices_backward.default")
def max_pool_backward(
    of: StepBuilder,
    dy: Value,
    x: Value,
    _kernel: Any,
    _strides: Any,
    _padding: Any,
    _dilations: Any,
    _ceil: bool,
    indices: Value,
) -> Value:
    """The gradient of a max pool's data: all of it where the greatest elements stood."""
    count = spatial(of)
    _require(of, x, count)
    return window.max_pool_data(of, dy, indices, x.shape, count)


@rule("avg_pool2d_backward.default", "avg_pool3d_backward.default")
def avg_pool_backward(
    of: StepBuilder,
    dy: Value,
    x: Value,
    kernel: Any,
    strides: Any,
    padding: Any,
    _ceil: bool,
    count_padding: bool,
    divisor: int | None,
) -> Value:
    """The gradient of an average pool's data."""
    count = spatial(of)
    _require(of, x, count)
    kernel = spread(kernel, count)
    sliding = window.TapWindow(spread(strides, count) if strides else kernel, spread(padding, count) * 2, (1,) * count)
    return window.average_pool_data(of, dy, x.shape, kernel, sliding, count_include_pad=count_padding, divisor=divisor)


@rule("_adaptive_avg_pool2d_backward.default", "_adaptive_avg_pool3d_backward.default")
def adaptive_avg_pool_backward(of: StepBuilder, dy: Value, x: Value) -> Value:
    """The gradient of means of as many windows as were asked for, where all windows are alike."""
    count = spatial(of)
    _require(of, x, count)
    if any(not size or extent % size for extent, size in zip(x.shape[2:], dy.shape[2:], strict=True)):
        of.refuse("windows of different sizes")
    kernel = tuple(extent // size for extent, size in zip(x.shape[2:], dy.shape[2:], strict=True))
    sliding = window.TapWindow(kernel, (0,) * (2 * count), (1,) * count)
    return window.average_pool_data(of, dy, x.shape, kernel, sliding, count_include_pad=True)


@rule("native_batch_norm_backward.default")
def batch_norm_backward(
    of: StepBuilder,
    dy: Value,
    x: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_variance: Value | None,
    mean: Value | None,
    inverse: Value | None,
    training: bool,
    epsilon: float,
    wanted: Sequence[bool],
) -> tuple[Value | None, ...]:
    """The gradients of a batch normalization's data, scale and bias."""
    if not training and running_mean is not None and running_variance is not None:
        variance = of("Add", running_variance, of.constant(epsilon, running_variance.dtype))
        mean, inverse = running_mean, of("Reciprocal", of("Sqrt", variance))
    if mean is None or inverse is None or {dy.dtype, mean.dtype} != {x.dtype}:
        of.refuse("no statistics, or of another element type")
    count = of.operand(prod((*x.shape[:1], *x.shape[2:])), dy.dtype)
    found = reduction.batch_norm_gradients(of, dy, x, weight, mean, inverse, training, count)
    return _masked(found, wanted)


@rule("native_layer_norm_backward.default")
def layer_norm_backward(
    of: StepBuilder,
    dy: Value,
    x: Value,
    shape: Sequence[Any],
    mean: Value,
    inverse: Value,
    weight: Value | None,
    _bias: Value | None,
    wanted: Sequence[bool],
) -> tuple[Value | None, ...]:
    """The gradients of a layer normalization's data, scale and bias."""
    of.refuse_if({dy.dtype, mean.dtype} != {x.dtype}, "statistics of another element type")
    axes = range(len(x.shape) - len(shape), len(x.shape))
    return _masked(reduction.layer_norm_gradients(of, dy, x, weight, mean, inverse, axes), wanted)


@rule("native_group_norm_backward.default")
def group_norm_backward(
    of: StepBuilder,
    dy: Value,
    x: Value,
    mean: Value,
    inverse: Value,
    weight: Value | None,
    _batch: Any,
    _channels: Any,
    _space: Any,
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Value | None, ...]:
    """The gradients of a group normalization's data, scale and bias."""
    of.refuse_if({dy.dtype, mean.dtype} != {x.dtype}, "statistics of another element type")
    return _masked(reduction.group_norm_gradients(of, dy, x, weight, mean, inverse, groups), wanted)


@rule("embedding_dense_backward.default")
def embedding_backward(
    of: StepBuilder, dy: Value, indices: Value, rows: int, padding_idx: int, by_frequency: bool
) -> Value:
    """The gradient of a table: the sum of the gradients of all uses of its rows, in their order."""
    of.refuse_if(by_frequency, "gradients divided by how often a row is taken")
    return movement.embedding_weight(of, dy, indices, rows, padding_idx)


def _masked(found: Sequence[Value], wanted: Sequence[bool]) -> tuple[Value | None, ...]:
    return tuple(value if is_wanted else None for value, is_wanted in zip(found, wanted, strict=True))


def _require(of: StepBuilder, x: Value, count: int) -> None:
    """Refuse images without a batch, and integers."""
    of.refuse_if(len(x.shape) != count + 2, "an image without a batch")
    of.refuse_if(category(x.dtype) < 2, "integers")
