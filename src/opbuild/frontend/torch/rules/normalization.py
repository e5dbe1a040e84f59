"""Normalizations, as the operators that ONNX has for them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.writing import Value, Writing


@rule("_native_batch_norm_legit_no_training.default")
def batch_norm(
    of: Writing,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    momentum: float,
    epsilon: float,
) -> tuple[Value | None, ...]:
    """Batch normalization by running statistics."""
    weight, bias = _affine(of, weight, bias, x.shape[1:2], mean.dtype)
    operands = [of.cast(each, x.dtype) for each in (weight, bias, mean, variance)]
    return of("BatchNormalization", x, *operands, epsilon=epsilon), None, None


@rule("native_layer_norm.default")
def layer_norm(
    of: Writing, x: Value, shape: Sequence[Any], weight: Value | None, bias: Value | None, epsilon: float
) -> tuple[Value | None, ...]:
    """Layer normalization of the last dimensions."""
    weight, bias = _affine(of, weight, bias, tuple(shape), x.dtype)
    return of("LayerNormalization", x, weight, bias, axis=-len(shape), epsilon=epsilon), None, None


@rule("native_group_norm.default")
def group_norm(
    of: Writing,
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
    return of.reshape(result, x.shape), None, None


def _affine(
    of: Writing, weight: Value | None, bias: Value | None, shape: tuple[Any, ...], dtype: str
) -> tuple[Value, Value]:
    """Return what is multiplied and added: ones and zeros where nothing is."""
    ones, zeros = (of.constant([number] * prod(shape), dtype) for number in (1, 0))
    return (
        of.reshape(ones, shape) if weight is None else weight,
        of.reshape(zeros, shape) if bias is None else bias,
    )
