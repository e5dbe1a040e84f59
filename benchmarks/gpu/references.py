"""What the kernels compute, by numpy in float64."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def erf(x: Array) -> Array:
    """Return the error function to 1.5e-7 (Abramowitz and Stegun, 7.1.26)."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    factors = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592, 0.0)
    return np.asarray(np.sign(x) * (1 - np.polyval(factors, t) * np.exp(-x * x)))


def activate(x: Array, activation: str) -> Array:
    """Return values behind an activation, ``none`` or ``gelu``."""
    return 0.5 * x * (1 + erf(x / sqrt(2))) if activation == "gelu" else x


def matmul(a: Array, b: Array, bias: Array, activation: str = "none") -> Array:
    """Return ``activation(a @ b + bias)``."""
    return activate(a @ b + bias, activation)


def softmax(x: Array) -> Array:
    """Return the softmax of each row."""
    if not x.size:
        return x
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def add_layer_norm(x: Array, other: Array, scale: Array, bias: Array, epsilon: float) -> Array:
    """Return the layer normalization of each row of a sum."""
    total = x + other
    if not total.size:
        return total
    normal = (total - total.mean(-1, keepdims=True)) / np.sqrt(total.var(-1, keepdims=True) + epsilon)
    return np.asarray(normal * scale + bias)


def attention(q: Array, k: Array, v: Array, scale: float, causal: bool) -> Array:
    """Return attention of arrays ``[batch, heads, rows, features]``; a query without keys gets 0."""
    if not k.shape[2]:
        return np.zeros_like(q)
    scores = q @ np.swapaxes(k, 2, 3) * scale
    if causal:
        scores = np.where(np.tri(q.shape[2], k.shape[2], dtype=bool), scores, -np.inf)
    return np.asarray(softmax(scores) @ v)


def gather(table: Array, indices: Array) -> tuple[Array, bool]:
    """Return the rows, zeros for those that there are not, and whether there were such."""
    rows = len(table)
    valid = (indices >= -rows) & (indices < rows)
    found = np.zeros((len(indices), table.shape[1]))
    found[valid] = table[indices[valid]]
    return found, not valid.all()
