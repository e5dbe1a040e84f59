"""Reductions, running sums and normalisations along one axis, in numpy.

Floats are accumulated in their own type, at least float32; integers wrap in theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.dtypes import NARROW_FLOATS, is_float
from opbuild.graph.types import Array, Node
from opbuild.operations.evaluation import cast

Reducer = Callable[..., Any]


def _ends(x: Array) -> tuple[Any, Any]:
    """Return the neutral elements of maximum and minimum for a type: its least and its greatest value."""
    if x.dtype == np.bool_:
        return False, True
    limits = np.iinfo(x.dtype) if np.issubdtype(x.dtype, np.integer) else None
    return (-np.inf, np.inf) if limits is None else (limits.min, limits.max)


def _sum(x: Array, **how: Any) -> Any:
    return x.sum(dtype=x.dtype, **how)


def _mean(x: Array, axis: tuple[int, ...], keepdims: bool) -> Any:
    count = int(np.prod([x.shape[each] for each in axis], dtype=np.int64))
    total = x.sum(axis=axis, keepdims=keepdims)
    return total / x.dtype.type(count) if is_float(x.dtype.name) else _quotient(total, count)


def _quotient(total: Array, count: int) -> Any:
    """Return an integer mean, towards zero; 0 of nothing, as integer division by zero gives here."""
    return np.sign(total) * (np.abs(total) // count) if count else np.zeros_like(total)


def _log_sum_exp(x: Array, **how: Any) -> Any:
    """Return the logarithm of the sum of exponentials; shifted, so that they do not overflow."""
    if not is_float(x.dtype.name):
        return cast(_log_sum_exp(x.astype(np.float64), **how), str(x.dtype))
    top = x.max(axis=how["axis"], keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, x.dtype.type(0))
    return np.log(np.exp(x - top).sum(**how)) + (top if how["keepdims"] else top.squeeze(how["axis"]))


def _in_float64(function: Callable[[Array], Array]) -> Reducer:
    """Return a sum followed by a function that integers have no own form of."""

    def reduce(x: Array, **how: Any) -> Any:
        if is_float(x.dtype.name):
            return function(_sum(x, **how))
        return cast(function(np.asarray(x.astype(np.float64).sum(**how))), str(x.dtype))

    return reduce


def _l2(x: Array, **how: Any) -> Any:
    return _in_float64(np.sqrt)(np.square(x if is_float(x.dtype.name) else x.astype(np.float64)), **how)


_REDUCERS: dict[str, Reducer] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceMax": lambda x, **how: x.max(initial=_ends(x)[0], **how),
    "ReduceMin": lambda x, **how: x.min(initial=_ends(x)[1], **how),
    "ReduceProd": lambda x, **how: x.prod(dtype=x.dtype, **how),
    "ReduceL1": lambda x, **how: _sum(np.abs(x), **how),
    "ReduceL2": _l2,
    "ReduceLogSum": _in_float64(np.log),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceSumSquare": lambda x, **how: _sum(np.square(x), **how),
}


@implements(*_REDUCERS)
def _reduce(node: Node, inputs: Any) -> Sequence[Array]:
    x, given = inputs[0], inputs[1] if len(inputs) > 1 else None
    axes = () if given is None else tuple(int(axis) for axis in given.reshape(-1))
    if not axes:
        axes = () if node.attrs.get("noop_with_empty_axes", 0) else tuple(range(x.ndim))
    wide = x.astype(np.float32) if x.dtype.name in NARROW_FLOATS else x
    found = _REDUCERS[node.op_type](wide, axis=axes, keepdims=bool(node.attrs.get("keepdims", 1)))
    return (cast(np.asarray(found), str(x.dtype)),)


@implements("ArgMax", "ArgMin")
def _arg_extreme(node: Node, inputs: Any) -> Sequence[Array]:
    x, axis = inputs[0], int(node.attrs.get("axis", 0))
    find: Reducer = np.argmax if node.op_type == "ArgMax" else np.argmin
    if node.attrs.get("select_last_index", 0):
        found = x.shape[axis] - 1 - find(np.flip(x, axis), axis=axis)
    else:
        found = find(x, axis=axis)
    found = np.expand_dims(found, axis % x.ndim) if node.attrs.get("keepdims", 1) else found
    return (np.asarray(found, np.int64),)


@implements("CumSum")
def _cumsum(node: Node, inputs: Any) -> Sequence[Array]:
    x, axis = inputs[0], int(inputs[1].reshape(-1)[0])
    x = np.flip(x, axis) if node.attrs.get("reverse", 0) else x
    found = np.cumsum(x, axis, dtype=x.dtype)
    if node.attrs.get("exclusive", 0):
        found = np.roll(found, 1, axis)
        first: list[Any] = [slice(None)] * x.ndim
        first[axis] = slice(0, 1)
        found[tuple(first)] = 0
    return (np.flip(found, axis) if node.attrs.get("reverse", 0) else found,)


@implements("Softmax", "LogSoftmax")
def _softmax(node: Node, inputs: Any) -> Sequence[Array]:
    x, axis = inputs[0], int(node.attrs.get("axis", -1))
    shifted = x - x.max(axis, keepdims=True, initial=-np.inf)  # the axis may be empty
    total = np.exp(shifted).sum(axis, keepdims=True)
    if node.op_type == "LogSoftmax":
        return (shifted - np.log(total),)
    zeros, weights = node.attrs.get("zeros"), np.exp(shifted) / total
    if zeros is None:
        return (weights,)
    is_zero = np.isnan(weights) if zeros == "nan" else (x == -np.inf).all(axis, keepdims=True)
    return (np.where(is_zero, x.dtype.type(0), weights),)


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
    stash = np.float64 if int(node.attrs.get("stash_type", 1)) == 11 else np.float32
    moments = (each.astype(stash, copy=False) for each in (mean, inverse))
    return (found.astype(x.dtype, copy=False), *moments)[: len(node.outputs)]


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
