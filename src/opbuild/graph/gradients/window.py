"""Gradients of convolutions and pools.

The data's gradient is a transposed convolution of the outputs' with the same weights. The weights' is a product: each
tap has seen a strided window of the data, and meets the outputs' gradient in all positions of all images.

The greatest element of a window gets all of what its output gets: the first one if several are equal, as in torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from opbuild.graph.gradients.reduction import reduced_extreme
from opbuild.graph.gradients.registry import Backward, Parts, channel_sums, gradient, is_empty
from opbuild.graph.graph_builder import GraphBuilder, Value
from opbuild.graph.shape_rules_window import transposed_range, window_pads
from opbuild.graph.tables import PooledAxis
from opbuild.graph.types import Array
from opbuild.platform.records import NamedTuple

MOST_DIMENSIONS = 3
"""Spatial dimensions from which on there are no kernels of convolutions themselves."""

GROUP_CHANNELS = 16
"""What channels of a group are a multiple of where the gradient of its weights has a kernel: those of a block."""


class TapWindow(NamedTuple):
    """The window of a convolution's taps: strides, padding and dilations.

    Attributes:
        strides: Of each spatial axis, as the others.
        pads: Beginnings, then ends.
        dilations: Positions from one tap to the next.
        group: Groups of channels.
    """

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int = 1


def _is_served(dy: Value, rank: int, group: int) -> bool:
    """Return whether kernels of gradients serve a convolution; else others are made to."""
    return group == 1 and dy.dtype == "float32" and rank < MOST_DIMENSIONS


def _is_summed(dy: Value, inner: int, rank: int, group: int) -> bool:
    """Return whether a kernel sums up the gradient of weights of so many input channels a group."""
    outer = dy.shape[1] // group
    in_groups = inner == outer == 1 or inner % GROUP_CHANNELS == outer % GROUP_CHANNELS == 0
    return _is_served(dy, rank, 1) and (group == 1 or in_groups)


def convolution_data(of: GraphBuilder, dy: Value, w: Value, shape: Sequence[int], window: TapWindow) -> Value:
    """Return the gradient of a convolution's data, of the shape ``(N, I, ...)``, given its output's and its weights."""
    if is_empty(dy, w):
        return of.filled(0.0, dy.dtype, shape)
    rank, (strides, pads, dilations, group) = len(shape) - 2, window
    taps = w if _is_served(dy, rank, group) else _taps_at_least(of, w, strides, dilations)
    before, after, beyond = [], [], []
    for axis in range(rank):
        span = (taps.shape[2 + axis] - 1) * dilations[axis] + 1
        whole = strides[axis] * (dy.shape[2 + axis] - 1) + span  # positions that the taps reach
        left, right = pads[axis], whole - pads[axis] - shape[2 + axis]
        before.append(left)
        after.append(max(right, 0))
        beyond.append(max(-right, 0))
    attrs: dict[str, Any] = {"strides": strides, "dilations": dilations, "group": group}
    return of("ConvTranspose", dy, taps, pads=(*before, *after), output_padding=tuple(beyond), **attrs)


def _taps_at_least(of: GraphBuilder, w: Value, strides: Sequence[int], dilations: Sequence[int]) -> Value:
    """Return weights with taps of 0 behind the others, so that a tap reaches each position of the data.

    Kernels of groups, of other element types and of more dimensions have no other way to write zeros between what they
    compute.
    """
    axes = zip(w.shape[2:], strides, dilations, strict=True)
    lacking = [max(0, stride - taps) if dilation == 1 else 0 for taps, stride, dilation in axes]
    return of("Pad", w, of.ints(*(0,) * len(w.shape), 0, 0, *lacking)) if any(lacking) else w


def convolution_weight(of: GraphBuilder, x: Value, dy: Value, shape: Sequence[int], window: TapWindow) -> Value:
    """Return the gradient of a convolution's weights, of the shape ``(O, I / group, ...)``, given its output's."""
    if is_empty(x, dy):
        return of.filled(0.0, dy.dtype, shape)
    if not _is_summed(dy, shape[1], len(shape) - 2, window.group):
        return _weight_by_product(of, x, dy, shape, window)
    attrs: dict[str, Any] = {"strides": window.strides, "pads": window.pads, "dilations": window.dilations}
    attrs |= {"kernel_shape": tuple(shape[2:]), **({"group": window.group} if window.group > 1 else {})}
    return of("ConvWeightGradient", x, dy, domain="opbuild", **attrs)


def _weight_by_product(of: GraphBuilder, x: Value, dy: Value, shape: Sequence[int], window: TapWindow) -> Value:
    """Return the gradient of a convolution's weights: one product a group of the elements that each tap has seen."""
    (out, inner, *taps), group = shape, window.group
    rank, images, positions = len(taps), x.shape[0], prod(dy.shape[2:])
    data = _padded(of, x, dy.shape[2:], taps, window)
    windows = [_tap_elements(of, data, tap, dy.shape[2:], window) for tap in product(*map(range, taps))]
    seen = [of.reshape(each, (images, group, 1, inner, positions)) for each in windows]
    columns = of("Concat", *seen, axis=2) if len(seen) > 1 else seen[0]
    columns = of.reshape(columns, (images, group, len(seen) * inner, positions))
    columns = of.transpose(columns, (1, 0, 3, 2))  # group, images, positions, taps and channels
    columns = of.reshape(columns, (group, images * positions, len(seen) * inner))
    rows = of.reshape(dy, (images, group, out // group, positions))
    rows = of.reshape(of.transpose(rows, (1, 2, 0, 3)), (group, out // group, images * positions))
    if group == 1:
        rows, columns = of.reshape(rows, rows.shape[1:]), of.reshape(columns, columns.shape[1:])
    found = of.reshape(of("MatMul", rows, columns), (out, len(seen), inner))
    return of.reshape(of.transpose(found, (0, 2, 1)), (out, inner, *taps)) if rank else of.reshape(found, shape)


def _padded(of: GraphBuilder, x: Value, out: Sequence[int], taps: Sequence[int], window: TapWindow) -> Value:
    """Return the data with the padding that windows read."""
    rank, (strides, pads, dilations, _) = len(out), window
    before = pads[:rank]
    after = [
        max(0, (out[i] - 1) * strides[i] + (taps[i] - 1) * dilations[i] + 1 - before[i] - x.shape[2 + i])
        for i in range(rank)
    ]
    return of("Pad", x, of.ints(0, 0, *before, 0, 0, *after)) if any((*before, *after)) else x


def _tap_elements(of: GraphBuilder, x: Value, tap: Sequence[int], out: Sequence[int], window: TapWindow) -> Value:
    """Return the elements that one tap reads: one of the data for each position of the output."""
    strides = window.strides
    starts = [place * dilation for place, dilation in zip(tap, window.dilations, strict=True)]
    ends = [s + (count - 1) * stride + 1 for s, count, stride in zip(starts, out, strides, strict=True)]
    if not any(starts) and tuple(ends) == x.shape[2:] and set(strides) <= {1}:
        return x
    axes = range(2, len(x.shape))
    return of("Slice", x, of.ints(*starts), of.ints(*ends), of.ints(*axes), of.ints(*strides))


def transposed_data(of: GraphBuilder, dy: Value, w: Value, shape: Sequence[int], window: TapWindow) -> Value:
    """Return the gradient of a transposed convolution's data of ``shape``: a convolution with the same weights."""
    if is_empty(dy, w):
        return of.filled(0.0, dy.dtype, shape)
    found = of("Conv", dy, w, **window._asdict(), kernel_shape=w.shape[2:])
    if found.shape == tuple(shape):
        return found
    # Positions that only output_padding reached belong to no position of the data.
    axes = range(2, len(shape))
    return of("Slice", found, of.ints(*(0 for _ in axes)), of.ints(*shape[2:]), of.ints(*axes))


def convolution_gradients(
    of: GraphBuilder,
    x: Value,
    w: Value,
    dy: Value,
    window: TapWindow,
    wanted: Sequence[bool],
    *,
    transposed: bool = False,
) -> tuple[Value | None, ...]:
    """Return the gradients of a convolution's data, weights and bias, or of a transposed one's, that are wanted.

    For the weights of a transposed one data and outputs change places.
    """
    of_data, sides = (transposed_data, (dy, x)) if transposed else (convolution_data, (x, dy))
    return (
        of_data(of, dy, w, x.shape, window) if wanted[0] else None,
        convolution_weight(of, *sides, w.shape, window) if wanted[1] else None,
        channel_sums(of, dy) if wanted[2] else None,
    )


def max_pool_data(of: GraphBuilder, dy: Value, indices: Value, shape: Sequence[int], axes: int | None = None) -> Value:
    """Return the gradient of a max pool's data, given its output's.

    Indices are where in the data each output's element stood, counted over all of it, as ONNX does, or in the plane of
    the last ``axes``, as torch does.
    """
    if is_empty(dy):
        return of.filled(0.0, dy.dtype, shape)
    outer = () if axes is None else (prod(shape[: len(shape) - axes]),)
    places, parts = (of.reshape(each, (*outer, prod(each.shape) // prod(outer))) for each in (indices, dy))
    zeros = of.filled(0.0, dy.dtype, (*outer, prod(shape) // prod(outer)))
    return of.reshape(of("ScatterElements", zeros, places, parts, axis=len(outer), reduction="add"), shape)


def average_pool_data(
    of: GraphBuilder, dy: Value, shape: Sequence[int], taps: Sequence[int], window: TapWindow, *,
    count_include_pad: bool = False, divisor: int | None = None,
) -> Value:  # fmt: skip
    """Return the gradient of an average pool's data, given its output's, ``(N, C, ...)``.

    The group of its window does not count; ``divisor`` is what sums were divided by, if not by the number of elements.
    """
    if is_empty(dy):
        return of.filled(0.0, dy.dtype, shape)
    (strides, pads, steps, _), rank, channels = window, len(taps), shape[1]
    sides = pads[:rank], pads[rank:]
    axes = map(PooledAxis, shape[2:], dy.shape[2:], taps, strides, steps, *sides)
    counts: Array = np.ones((), np.int64)
    for axis in axes:
        counts = counts[..., None] * axis.counts(count_include_pad)
    counts = np.full_like(counts, divisor) if divisor is not None else np.maximum(counts, 1)
    if (counts == counts.reshape(-1)[0]).all():
        counts = counts.reshape(-1)[:1].reshape(())
    parts = of("Div", dy, of.constant(counts, dy.dtype))
    ones = of.filled(1.0, dy.dtype, (channels, 1, *taps))
    return convolution_data(of, parts, ones, shape, TapWindow(strides, pads, steps, channels))


@gradient("Conv")
def convolution(of: Backward) -> Parts:
    """Differentiate a convolution: data, weights and bias."""
    x, w, dy = of.input(0), of.input(1), of.gradient()
    window = _attributes(of, window_pads(of.shapes(), x.shape[2:], w.shape[2:]))
    return convolution_gradients(of, x, w, dy, window, [of.wants(index) for index in range(3)])


@gradient("ConvTranspose")
def transposed_convolution(of: Backward) -> Parts:
    """Differentiate a transposed convolution: data, weights and bias."""
    x, w, dy = of.input(0), of.input(1), of.gradient()
    begins, _ = transposed_range(of.shapes())
    spatial = zip(x.shape[2:], w.shape[2:], dy.shape[2:], _per_axis(of, "strides"), _per_axis(of, "dilations"),
                  begins, strict=True)  # fmt: skip
    reach = [
        (size - 1) * stride + (taps - 1) * step + 1 - out - begin for size, taps, out, stride, step, begin in spatial
    ]
    window = _attributes(of, (*begins, *(max(0, each) for each in reach)))
    return convolution_gradients(of, x, w, dy, window, [of.wants(index) for index in range(3)], transposed=True)


@gradient("ConvWeightGradient", domain="opbuild")
def weight_gradient(of: Backward) -> Parts:
    """Differentiate the gradient of a convolution's weights, which is linear in its data and in that of its output."""
    x, dy, dw = of.input(0), of.input(1), of.gradient()
    window = _attributes(of, of.listed("pads", (0,) * (2 * len(x.shape) - 4)))
    return (
        convolution_data(of, dy, dw, x.shape, window) if of.wants(0) else None,
        transposed_data(of, x, dw, dy.shape, window) if of.wants(1) else None,
    )


@gradient("MaxPool")
def greatest(of: Backward) -> Parts:
    """Give each window's part to the first of its greatest elements; where they stand is asked of the pool again."""
    x = of.input(0)
    by_columns = int(of.node.attrs.get("storage_order", 0))
    places = of.outputs[1] if len(of.outputs) > 1 and not by_columns else None
    if places is None:
        places = of.several("MaxPool", 2, x, **{**of.node.attrs, "storage_order": 0})[1]
    return (max_pool_data(of, of.gradient(), places, x.shape),)


@gradient("AveragePool")
def average(of: Backward) -> Parts:
    """Divide each window's part among its elements."""
    x, kernel = of.input(0), of.listed("kernel_shape", ())
    window, counted = _attributes(of, window_pads(of.shapes(), x.shape[2:], kernel)), of.flag("count_include_pad")
    return (average_pool_data(of, of.gradient(), x.shape, kernel, window, count_include_pad=counted),)


@gradient("LpPool")
def norm_of_window(of: Backward) -> Parts:
    """Differentiate the norms of windows of the first or second order; others are made of powers."""
    x, dy, kernel = of.input(0), of.gradient(), of.listed("kernel_shape", ())
    order, zero = int(of.node.attrs.get("p", 2)), of.constant(0.0, x.dtype)
    window = _attributes(of, window_pads(of.shapes(), x.shape[2:], kernel))
    if order == 2:  # a norm of 0 gives nothing
        none = of("Equal", of.output(), zero)
        dy = of("Where", none, zero, of("Div", dy, of("Where", none, of.constant(1.0, x.dtype), of.output())))
    elif order != 1:
        of.refuse(f"its order is {order}")
    parts = average_pool_data(of, dy, x.shape, kernel, window, divisor=1)
    return (of("Mul", parts, x if order == 2 else of("Sign", x)),)


@gradient("GlobalAveragePool")
def global_average(of: Backward) -> Parts:
    """Divide each channel's part among its elements."""
    shape, dy = of.input(0).shape, of.gradient()
    return (of.expand(of("Div", dy, of.constant(max(prod(shape[2:]), 1), dy.dtype)), shape),)


@gradient("GlobalMaxPool")
def global_greatest(of: Backward) -> Parts:
    """Divide each channel's part among its greatest elements."""
    inputs = (of.node.inputs[0], of.ints(*range(2, len(of.input(0).shape))))
    node = of.node.with_(op_type="ReduceMax", inputs=inputs, attrs={"keepdims": 1})
    return reduced_extreme(Backward(of.name, of.scope, node, of.gradients, of.wanted))


def _attributes(of: Backward, pads: Sequence[int]) -> TapWindow:
    group = int(of.node.attrs.get("group", 1))
    return TapWindow(_per_axis(of, "strides"), tuple(pads), _per_axis(of, "dilations"), group)


def _per_axis(of: Backward, name: str) -> tuple[int, ...]:
    return of.listed(name, (1,) * (len(of.input(0).shape) - 2))
