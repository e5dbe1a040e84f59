"""Pools and convolutions over any number of spatial dimensions, in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.backend.host.windows import HostWindow, convolve, convolve_transposed, weight_gradient, window_of
from opbuild.dtypes import is_float
from opbuild.graph.shape_rules import ShapeCall
from opbuild.graph.shape_rules_window import transposed_range, window_pads
from opbuild.graph.types import Array, Node, TensorType
from opbuild.graph.weight_layout import plain_shape


def _wide(x: Array) -> Array:
    """Return the values in the type that sums are kept in."""
    return x.astype(np.float32) if x.dtype == np.float16 else x


def _kernel_axes(window: HostWindow) -> tuple[int, ...]:
    return tuple(range(-len(window.kernel), 0))


@implements("MaxPool")
def _max_pool(node: Node, inputs: Any) -> Sequence[Array]:
    x = inputs[0]
    window = window_of(node, x, node.attrs["kernel_shape"])
    least = -np.inf if is_float(x.dtype.name) else np.iinfo(x.dtype).min
    taps = window.taps(x, least)
    found = taps.max(_kernel_axes(window), initial=least)
    if len(node.outputs) < 2 or not node.outputs[1]:
        return (found, np.empty(0, np.int64))[: len(node.outputs)]
    return (found, _indices(window, taps, found, bool(node.attrs.get("storage_order", 0))))


def _indices(window: HostWindow, taps: Array, found: Array, columns_first: bool) -> Array:
    """Return the places in the input of the greatest elements, counted over all of it; the first of equal ones."""
    images, channels = taps.shape[:2]
    rank = len(window.kernel)
    order: Literal["F", "C"] = "F" if columns_first else "C"
    places = np.arange(int(np.prod(window.size))).reshape((1, 1, *window.size), order=order)
    read = window.taps(places, -1)[0, 0].reshape(*window.out, prod(window.kernel))
    flat = taps.reshape(*taps.shape[: 2 + rank], prod(window.kernel))
    greatest = found[..., None]
    hit = ((flat == greatest) | (np.isnan(flat) & np.isnan(greatest))) & (read >= 0)
    chosen = np.take_along_axis(np.broadcast_to(read, flat.shape), hit.argmax(-1)[..., None], -1)[..., 0]
    plane = np.arange(images * channels).reshape(images, channels, *(1 for _ in window.out)) * places.size
    return np.asarray(chosen + plane, np.int64)


@implements("AveragePool")
def _average_pool(node: Node, inputs: Any) -> Sequence[Array]:
    x = inputs[0]
    window = window_of(node, x, node.attrs["kernel_shape"])
    axes = _kernel_axes(window)
    count = window.inside(bool(node.attrs.get("count_include_pad", 0))).sum(axes)
    total = window.taps(_wide(x), 0).sum(axes)
    return ((total / np.maximum(count, 1).astype(total.dtype)).astype(x.dtype),)


@implements("LpPool")
def _lp_pool(node: Node, inputs: Any) -> Sequence[Array]:
    x = inputs[0]
    window = window_of(node, x, node.attrs["kernel_shape"])
    p = _order(node)
    total = window.taps(_power(_wide(x), p), 0).sum(_kernel_axes(window))
    return (_root(total, p).astype(x.dtype),)


def _order(node: Node) -> int:
    """Return the order of a node's norm."""
    p = int(node.attrs.get("p", 2))
    if p < 1:
        raise ValueError(f"p is {p}; a norm has p of at least 1")
    return p


def _power(x: Array, p: int) -> Array:
    return np.asarray(np.power(np.abs(x), x.dtype.type(p)) if p > 2 else np.square(x) if p == 2 else np.abs(x))


def _root(total: Array, p: int) -> Array:
    return np.asarray(np.power(total, total.dtype.type(1 / p)) if p > 2 else np.sqrt(total) if p == 2 else total)


@implements("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool")
def _global_pool(node: Node, inputs: Any) -> Sequence[Array]:
    x = inputs[0]
    axes, wide = tuple(range(2, x.ndim)), _wide(x)
    if node.op_type == "GlobalMaxPool":
        return (wide.max(axes, keepdims=True, initial=-np.inf).astype(x.dtype),)
    if node.op_type == "GlobalAveragePool":
        return (wide.mean(axes, keepdims=True).astype(x.dtype),)
    p = _order(node)
    return (_root(_power(wide, p).sum(axes, keepdims=True), p).astype(x.dtype),)


@implements("LpNormalization")
def _lp_normalization(node: Node, inputs: Any) -> Sequence[Array]:
    x, wide, p = inputs[0], _wide(inputs[0]), _order(node)
    norm = _root(_power(wide, p).sum(int(node.attrs.get("axis", -1)), keepdims=True), p)
    return (np.where(norm == 0, wide.dtype.type(0), wide / norm).astype(x.dtype),)


@implements("Conv")
def _conv(node: Node, inputs: Any) -> Sequence[Array]:
    x, weights, bias = (*inputs, None)[:3]
    found = convolve(_wide(x), _wide(weights), int(node.attrs.get("group", 1)), window_of(node, x, weights.shape[2:]))
    return (_with_bias(found, bias).astype(x.dtype, copy=False),)


@implements("ConvTranspose")
def _conv_transpose(node: Node, inputs: Any) -> Sequence[Array]:
    x, weights, bias = (*inputs, None)[:3]
    types = [TensorType(str(each.dtype), each.shape) for each in (x, weights)]
    start, out = transposed_range(ShapeCall(node, types, [None, None]))
    strides, dilations = (node.attrs.get(name) or (1,) * len(out) for name in ("strides", "dilations"))
    groups = int(node.attrs.get("group", 1))
    found = convolve_transposed(_wide(x), _wide(weights), groups, strides, dilations, start, out)
    return (_with_bias(found, bias).astype(x.dtype, copy=False),)


@implements("ConvWeightGradient", domain="opbuild")
def _conv_weight_gradient(node: Node, inputs: Any) -> Sequence[Array]:
    x, dy = inputs
    kernel, count = tuple(node.attrs["kernel_shape"]), x.ndim - 2
    pads = window_pads(ShapeCall(node, [TensorType(str(x.dtype), x.shape)], [None]), x.shape[2:], kernel)
    strides, dilations = (tuple(node.attrs.get(name) or (1,) * count) for name in ("strides", "dilations"))
    window = HostWindow(kernel, strides, dilations, pads[:count], pads[count:], x.shape[2:], dy.shape[2:])
    groups = int(node.attrs.get("group", 1))
    found = weight_gradient(_wide(x), _wide(dy), groups, window).astype(x.dtype, copy=False)
    block = node.attrs.get("block")
    if not block:
        return (found,)
    outer, inner = found.shape[0] // block, found.shape[1] // block
    parts = found.reshape(outer, block, inner, block, *kernel)
    return (np.ascontiguousarray(parts.transpose(0, 2, *range(4, parts.ndim), 3, 1)),)


@implements("PlainWeights", domain="opbuild")
def _plain_weights(node: Node, inputs: Any) -> Sequence[Array]:
    blocks, last = inputs[0], inputs[0].ndim - 1
    parts = blocks.transpose(0, last, 1, last - 1, *range(2, last - 1))
    return (np.ascontiguousarray(parts).reshape(plain_shape(blocks.shape)),)


def _with_bias(x: Array, bias: Array | None) -> Array:
    return x if bias is None else np.asarray(x + bias.reshape(1, -1, *(1 for _ in x.shape[2:])))


@implements("ConvInteger")
def _conv_integer(node: Node, inputs: Any) -> Sequence[Array]:
    x, weights, x_zero, w_zero = (*inputs, None, None)[:4]
    groups, window = int(node.attrs.get("group", 1)), window_of(node, x, weights.shape[2:])
    return (convolve(_shifted(x, x_zero), _shifted_rows(weights, w_zero), groups, window),)


@implements("QLinearConv")
def _quantized_conv(node: Node, inputs: Any) -> Sequence[Array]:
    x, x_scale, x_zero, weights, w_scale, w_zero, y_scale, y_zero, bias = (*inputs, None)[:9]
    groups, window = int(node.attrs.get("group", 1)), window_of(node, x, weights.shape[2:])
    total = _with_bias(convolve(_shifted(x, x_zero), _shifted_rows(weights, w_zero), groups, window), bias)
    factor = (x_scale.reshape(-1) * w_scale.reshape(-1) / y_scale.reshape(-1)).reshape(-1, *(1 for _ in window.out))
    limits = np.iinfo(y_zero.dtype)
    moved = np.rint(total.astype(np.float32) * factor) + y_zero.reshape(-1)[0]
    return (np.clip(moved, limits.min, limits.max).astype(y_zero.dtype),)


def _shifted(x: Array, zero: Array | None) -> Array:
    """Return integers less their zero point, in int32; padding with 0 then is padding with the zero point."""
    return x.astype(np.int32) if zero is None else x.astype(np.int32) - zero.astype(np.int32).reshape(-1)[0]


def _shifted_rows(weights: Array, zero: Array | None) -> Array:
    if zero is None:
        return weights.astype(np.int32)
    return np.asarray(weights.astype(np.int32) - zero.astype(np.int32).reshape(-1, *(1 for _ in weights.shape[1:])))
