"""Normalizations, as the operators that ONNX has for them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.rules.reduction import reduced
from opbuild.frontend.torch.writing import StepBuilder, Value
from opbuild.graph.extents import is_open
from opbuild.graph.gradients.registry import channel_means


@rule("_native_batch_norm_legit_no_training.default")
def batch_norm(
    of: StepBuilder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    momentum: float,
    epsilon: float,
) -> tuple[Value | None, ...]:
    """Batch normalization by running statistics; those of the batch are empty."""
    weight, bias = _affine(of, weight, bias, x.shape[1:2], mean.dtype)
    operands = [of.cast(each, x.dtype) for each in (weight, bias, mean, variance)]
    statistics = (of.constant([], mean.dtype) if of.is_read(index) else None for index in (1, 2))
    return of("BatchNormalization", x, *operands, epsilon=epsilon), *statistics


@rule("_native_batch_norm_legit_functional.default")
def batch_norm_of_batch(
    of: StepBuilder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    training: bool,
    momentum: float,
    epsilon: float,
) -> tuple[Value, ...]:
    """Batch normalization by the batch's statistics: also these, and the running ones as they are then."""
    if not training or x.dtype != mean.dtype:
        of.refuse("running statistics, or statistics of another element type")
    wide = tuple(extent if axis == 1 else 1 for axis, extent in enumerate(x.shape))
    count = of.operand(prod((*x.shape[:1], *x.shape[2:])), x.dtype)
    middle = channel_means(of, x)
    spread = channel_means(of, of("Square", of("Sub", x, middle), domain="opbuild"))
    inverse = of("Reciprocal", of("Sqrt", of("Add", spread, of.constant(epsilon, x.dtype))))
    weight, bias = (of.reshape(each, wide) for each in _affine(of, weight, bias, x.shape[1:2], x.dtype))
    result = of("Add", of("Mul", of("Sub", x, middle), of("Mul", inverse, weight)), bias)
    found_mean, found_inverse, found_variance = (of.reshape(each, mean.shape) for each in (middle, inverse, spread))
    unbiased = of("Mul", found_variance, of("Div", count, of("Sub", count, of.constant(1, x.dtype))))
    running = (
        of(
            "Add",
            of("Mul", old, of.constant(1 - momentum, x.dtype)),
            of("Mul", new, of.constant(momentum, x.dtype)),
        )
        for old, new in ((mean, found_mean), (variance, unbiased))
    )
    return result, found_mean, found_inverse, *running


@rule("native_layer_norm.default")
def layer_norm(
    of: StepBuilder, x: Value, shape: Sequence[Any], weight: Value | None, bias: Value | None, epsilon: float
) -> tuple[Value | None, ...]:
    """Layer normalization of the last dimensions."""
    weight, bias = _affine(of, weight, bias, tuple(shape), x.dtype)
    attrs: dict[str, Any] = {"axis": -len(shape), "epsilon": epsilon}
    if any(map(of.is_read, (1, 2))):
        if 0 in shape or x.dtype == "float64":
            of.refuse("statistics of nothing, or of float64")
        return of.several("LayerNormalization", 3, x, weight, bias, **attrs)
    return of("LayerNormalization", x, weight, bias, **attrs), None, None


@rule("native_group_norm.default")
def group_norm(
    of: StepBuilder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    batch: Any,
    channels: Any,
    space: Any,
    groups: int,
    epsilon: float,
) -> tuple[Value | None, ...]:
    """Group normalization."""
    weight, bias = _affine(of, weight, bias, (channels,), x.dtype)
    shaped = x if len(x.shape) > 2 else of.reshape(x, (*x.shape, 1))
    result = of("GroupNormalization", shaped, weight, bias, num_groups=groups, epsilon=epsilon)
    if not any(map(of.is_read, (1, 2))):
        return of.reshape(result, x.shape), None, None
    if is_open([batch, channels, space]):
        of.refuse("statistics of open sizes")
    grouped = of.reshape(x, (batch, groups, channels * space // groups))
    mean = reduced(of, "ReduceMean", grouped, (2,), keep=True)
    distance = of("Sub", grouped, mean)
    variance = reduced(of, "ReduceMean", of("Mul", distance, distance), (2,), keep=True)
    inverse = of("Reciprocal", of("Sqrt", of("Add", variance, of.constant(epsilon, x.dtype))))
    return of.reshape(result, x.shape), of.reshape(mean, (batch, groups)), of.reshape(inverse, (batch, groups))


def _affine(
    of: StepBuilder, weight: Value | None, bias: Value | None, shape: tuple[Any, ...], dtype: str
) -> tuple[Value, Value]:
    """Return the scale and the shift of a normalization: ones and zeros where there are none."""
    ones, zeros = (of.constant([number] * prod(shape), dtype) for number in (1, 0))
    return (
        of.reshape(ones, shape) if weight is None else weight,
        of.reshape(zeros, shape) if bias is None else bias,
    )
