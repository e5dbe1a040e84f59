"""Normalization in numpy, accumulated in the input's type, at least float32."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.graph.types import Array, Node


def _standardised(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    """Return ``(x - mean) / sqrt(variance + epsilon)``, the mean and the inverse deviation."""
    wide = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
    mean = wide.mean(axes, keepdims=True)
    centred = wide - mean
    inverse = 1 / np.sqrt(np.square(centred).mean(axes, keepdims=True) + wide.dtype.type(epsilon))
    return centred * inverse, mean, inverse


@implements("LayerNormalization")
def _layer(node: Node, inputs: Any) -> Sequence[Array]:
    x = inputs[0]
    axis = int(node.attrs.get("axis", -1)) % x.ndim
    found, mean, inverse = _standardised(x, tuple(range(axis, x.ndim)), float(node.attrs.get("epsilon", 1e-5)))
    found = found.astype(x.dtype) * inputs[1]
    if len(inputs) > 2 and inputs[2] is not None:
        found = found + inputs[2]
    return (found.astype(x.dtype, copy=False), mean, inverse)[: len(node.outputs)]


@implements("InstanceNormalization", "GroupNormalization")
def _group(node: Node, inputs: Any) -> Sequence[Array]:
    x, scale, bias = inputs
    groups = int(node.attrs.get("num_groups", x.shape[1]))
    rows = x.reshape(x.shape[0], groups, prod(x.shape[1:]) // groups if groups else 0)
    found, _, _ = _standardised(rows, (2,), float(node.attrs.get("epsilon", 1e-5)))
    column = (1, -1, *(1 for _ in x.shape[2:]))
    found = found.reshape(x.shape).astype(x.dtype) * scale.reshape(column) + bias.reshape(column)
    return (found.astype(x.dtype, copy=False),)


@implements("BatchNormalization")
def _batch(node: Node, inputs: Any) -> Sequence[Array]:
    x = inputs[0]
    column = (1, -1, *(1 for _ in x.shape[2:])) if x.ndim > 1 else (-1,)
    scale, bias, mean, variance = (each.astype(np.float64).reshape(column) for each in inputs[1:5])
    factor = scale / np.sqrt(variance + float(node.attrs.get("epsilon", 1e-5)))  # beyond float32's range perhaps
    found = (x - mean) * factor + bias
    return (found.astype(x.dtype, copy=False),)


@implements("RMSNormalization")
def _rms(node: Node, inputs: Any) -> Sequence[Array]:
    x, scale = inputs
    wide = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
    axes = tuple(range(int(node.attrs.get("axis", -1)) % x.ndim, x.ndim))
    mean = np.square(wide).mean(axes, keepdims=True) + wide.dtype.type(node.attrs.get("epsilon", 1e-5))
    return (((wide / np.sqrt(mean)).astype(x.dtype) * scale).astype(x.dtype, copy=False),)


@implements("LRN")
def _local_response(node: Node, inputs: Any) -> Sequence[Array]:
    x, size = inputs[0], int(node.attrs["size"])
    wide = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
    alpha, beta, bias = (float(node.attrs.get(name, default)) for name, default in _LRN)
    squares = np.square(wide)
    before, after = (size - 1) // 2, size // 2
    total = np.zeros_like(wide)
    for channel in range(x.shape[1]):
        total[:, channel] = squares[:, max(channel - before, 0) : channel + after + 1].sum(1)
    return ((wide / np.power(bias + alpha / size * total, wide.dtype.type(beta))).astype(x.dtype),)


_LRN = (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
"""The attributes of LRN and their defaults."""
