"""Pools and convolutions over any number of spatial dimensions, in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any, Literal

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.dtypes import is_float
from opbuild.graph.shape_rules import ShapeCall
from opbuild.graph.shape_rules_window import slide, transposed_range, window_pads
from opbuild.graph.types import Array, Node, TensorType
from opbuild.graph.weight_layout import plain_shape
from opbuild.platform.records import dataclass, replace


def _widened(x: Array) -> Array:
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
    total = window.taps(_widened(x), 0).sum(axes)
    return ((total / np.maximum(count, 1).astype(total.dtype)).astype(x.dtype),)


@implements("LpPool")
def _lp_pool(node: Node, inputs: Any) -> Sequence[Array]:
    x = inputs[0]
    window = window_of(node, x, node.attrs["kernel_shape"])
    p = _order(node)
    total = window.taps(_power(_widened(x), p), 0).sum(_kernel_axes(window))
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
    axes, wide = tuple(range(2, x.ndim)), _widened(x)
    if node.op_type == "GlobalMaxPool":
        return (wide.max(axes, keepdims=True, initial=-np.inf).astype(x.dtype),)
    if node.op_type == "GlobalAveragePool":
        return (wide.mean(axes, keepdims=True).astype(x.dtype),)
    p = _order(node)
    return (_root(_power(wide, p).sum(axes, keepdims=True), p).astype(x.dtype),)


@implements("LpNormalization")
def _lp_normalization(node: Node, inputs: Any) -> Sequence[Array]:
    x, wide, p = inputs[0], _widened(inputs[0]), _order(node)
    norm = _root(_power(wide, p).sum(int(node.attrs.get("axis", -1)), keepdims=True), p)
    return (np.where(norm == 0, wide.dtype.type(0), wide / norm).astype(x.dtype),)


@implements("Conv")
def _conv(node: Node, inputs: Any) -> Sequence[Array]:
    x, weights, bias = (*inputs, None)[:3]
    found = convolve(
        _widened(x), _widened(weights), int(node.attrs.get("group", 1)), window_of(node, x, weights.shape[2:])
    )
    return (_with_bias(found, bias).astype(x.dtype, copy=False),)


@implements("ConvTranspose")
def _conv_transpose(node: Node, inputs: Any) -> Sequence[Array]:
    x, weights, bias = (*inputs, None)[:3]
    types = [TensorType(str(each.dtype), each.shape) for each in (x, weights)]
    start, out = transposed_range(ShapeCall(node, types, [None, None]))
    strides, dilations = (node.attrs.get(name) or (1,) * len(out) for name in ("strides", "dilations"))
    groups = int(node.attrs.get("group", 1))
    found = convolve_transposed(_widened(x), _widened(weights), groups, strides, dilations, start, out)
    return (_with_bias(found, bias).astype(x.dtype, copy=False),)


@implements("ConvWeightGradient", domain="opbuild")
def _conv_weight_gradient(node: Node, inputs: Any) -> Sequence[Array]:
    x, dy = inputs
    kernel, count = tuple(node.attrs["kernel_shape"]), x.ndim - 2
    pads = window_pads(ShapeCall(node, [TensorType(str(x.dtype), x.shape)], [None]), x.shape[2:], kernel)
    strides, dilations = (tuple(node.attrs.get(name) or (1,) * count) for name in ("strides", "dilations"))
    window = HostWindow(kernel, strides, dilations, pads[:count], pads[count:], x.shape[2:], dy.shape[2:])
    groups = int(node.attrs.get("group", 1))
    found = weight_gradient(_widened(x), _widened(dy), groups, window).astype(x.dtype, copy=False)
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


@dataclass(frozen=True)
class HostWindow:
    """A sliding window; each tuple has one number for each spatial dimension, outermost first.

    Attributes:
        kernel: Taps.
        strides: Input positions from one output to the next.
        dilations: Input positions from one tap to the next.
        before: Padding before the first position; negative where positions are left out.
        after: Padding after the last position.
        size: Extents of the input.
        out: Extents of the output.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    size: tuple[int, ...]
    out: tuple[int, ...]

    @property
    def span(self) -> tuple[int, ...]:
        """Positions from the first tap of the first output to the last tap of the last output."""
        return tuple(
            (out - 1) * stride + (taps - 1) * dilation + 1 if out else 0
            for out, stride, taps, dilation in zip(self.out, self.strides, self.kernel, self.dilations, strict=True)
        )

    def taps(self, x: Array, fill: Any) -> Array:
        """Return a view of shape ``(N, C, *out, *kernel)``: the element that each tap of each output reads.

        Args:
            x: The input.
            fill: What taps outside the input read.
        """
        padded = _framed(x, tuple(-before for before in self.before), self.span, fill)
        steps = padded.strides[2:]
        strides = (
            *padded.strides[:2],
            *(step * stride for step, stride in zip(steps, self.strides, strict=True)),
            *(step * dilation for step, dilation in zip(steps, self.dilations, strict=True)),
        )
        shape = (*x.shape[:2], *self.out, *self.kernel)
        view: Array = np.lib.stride_tricks.as_strided(padded, shape=shape, strides=strides)
        return view

    def inside(self, padded: bool) -> Array:
        """Return a mask of each output's taps inside the input, or inside its padding, shape ``(*out, *kernel)``."""
        before, extents = self.before, self.size
        if padded:
            extents = tuple(sum(each) for each in zip(before, self.after, extents, strict=True))
            before = (0,) * len(extents)
        taps = replace(self, before=before, size=extents).taps(np.ones((1, 1, *extents), bool), False)
        return taps.reshape(taps.shape[2:])


def window_of(node: Node, x: Array, kernel: Sequence[int]) -> HostWindow:
    """Return the window of a convolution or pooling node over an input of shape ``(N, C, ...)``."""
    call = ShapeCall(node, [TensorType(str(x.dtype), x.shape)], [None])
    kernel, size = tuple(int(taps) for taps in kernel), x.shape[2:]
    pads = window_pads(call, size, kernel)
    strides, dilations = (tuple(node.attrs.get(name) or (1,) * len(size)) for name in ("strides", "dilations"))
    count = len(size)
    return HostWindow(kernel, strides, dilations, pads[:count], pads[count:], size, slide(call, size, kernel))


def _framed(x: Array, start: Sequence[int], extents: Sequence[int], fill: Any) -> Array:
    """Return the positions from ``start`` on of each spatial dimension; those outside ``x`` hold ``fill``."""
    found = np.full((*x.shape[:2], *extents), fill, x.dtype)
    source, target = [slice(None)] * 2, [slice(None)] * 2
    for first, extent, size in zip(start, extents, x.shape[2:], strict=True):
        low, high = max(first, 0), min(first + extent, size)
        source.append(slice(low, max(high, low)))
        target.append(slice(low - first, max(high, low) - first))
    found[tuple(target)] = x[tuple(source)]
    return found


def convolve(x: Array, weights: Array, groups: int, window: HostWindow) -> Array:
    """Return a convolution in the operands' element type.

    Args:
        x: Shape ``(N, C, ...)``.
        weights: Shape ``(M, C / groups, *kernel)``.
        groups: Into how many groups the channels divide.
        window: The geometry.
    """
    images, channels = x.shape[:2]
    outs, positions = weights.shape[0], prod(window.out)
    taps = window.taps(x, 0)
    columns = weights.reshape(groups, outs // groups, channels // groups, prod(window.kernel)).transpose(3, 0, 1, 2)
    found = np.zeros((images, groups, outs // groups, positions), x.dtype)
    for column, tap in zip(columns, product(*map(range, window.kernel)), strict=True):
        place: list[Any] = [..., *tap]
        read = taps[tuple(place)].reshape(images, groups, channels // groups, positions)
        found += np.matmul(column, read)
    return found.reshape(images, outs, *window.out)


def weight_gradient(x: Array, dy: Array, groups: int, window: HostWindow) -> Array:
    """Return the gradient of a convolution's weights, ``(M, C / groups, *kernel)``, in the operands' element type.

    Args:
        x: Its data, ``(N, C, ...)``.
        dy: The gradient of its output, ``(N, M, ...)``.
        groups: Into how many groups the channels divide.
        window: The geometry; its outputs are the positions of ``dy``.
    """
    images, outs, inner, positions = x.shape[0], dy.shape[1], x.shape[1] // groups, prod(window.out)
    taps, rows = window.taps(x, 0), dy.reshape(images, groups, -1, positions)
    found = np.zeros((outs, inner, *window.kernel), x.dtype)
    for tap in product(*map(range, window.kernel)):
        place: list[Any] = [..., *tap]
        read = taps[tuple(place)].reshape(images, groups, inner, positions)
        found[tuple(place)] = np.matmul(rows, read.transpose(0, 1, 3, 2)).sum(0).reshape(outs, inner)
    return found


def convolve_transposed(
    x: Array,
    weights: Array,
    groups: int,
    strides: Sequence[int],
    dilations: Sequence[int],
    start: Sequence[int],
    out: Sequence[int],
) -> Array:
    """Return a transposed convolution in the operands' element type.

    Args:
        x: Shape ``(N, C, ...)``.
        weights: Shape ``(C, M / groups, *kernel)``.
        groups: Into how many groups the channels divide.
        strides: Output positions from one input to the next.
        dilations: Output positions from one tap to the next.
        start: Position of the whole result at which the output begins; may be negative.
        out: Extents of the output.
    """
    images, channels, *size = x.shape
    _, outs, *kernel = weights.shape
    whole = [
        max((extent - 1) * stride + (taps - 1) * dilation + 1, 0)
        for extent, stride, taps, dilation in zip(size, strides, kernel, dilations, strict=True)
    ]
    result = np.zeros((images, groups * outs, *whole), x.dtype)
    points = x.reshape(images, groups, channels // groups, prod(size))
    factors = weights.reshape(groups, channels // groups, outs, prod(kernel)).transpose(3, 0, 2, 1)
    for factor, tap in zip(factors, product(*map(range, kernel)), strict=True):
        places: list[Any] = [slice(None)] * 2
        for index, dilation, extent, stride in zip(tap, dilations, size, strides, strict=True):
            places.append(slice(index * dilation, index * dilation + (extent - 1) * stride + 1, stride))
        result[tuple(places)] += np.matmul(factor, points).reshape(images, groups * outs, *size)
    return _framed(result, start, out, 0)
