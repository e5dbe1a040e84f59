"""Gradients of convolutions.

The data's gradient is a transposed convolution of the outputs' with the same weights. The weights' is a product: each
tap has seen a strided window of the data, and meets the outputs' gradient in all positions of all images.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

from opbuild.graph.gradients.broadcasting import channel_sums, filled, is_empty
from opbuild.graph.graph_builder import GraphBuilder, Value

__all__ = ["channel_sums", "convolution_data", "convolution_weight", "transposed_data", "transposed_weight"]


MOST_DIMENSIONS = 3
"""Spatial dimensions from which on there are no kernels of convolutions themselves."""

GROUP_CHANNELS = 16
"""What channels of a group are a multiple of where the gradient of its weights has a kernel: those of a block."""


def _is_served(dy: Value, rank: int, group: int) -> bool:
    """Return whether kernels of gradients serve a convolution; else others are made to."""
    return group == 1 and dy.dtype == "float32" and rank < MOST_DIMENSIONS


def _is_summed(dy: Value, inner: int, rank: int, group: int) -> bool:
    """Return whether a kernel sums up the gradient of weights of so many input channels a group."""
    outer = dy.shape[1] // group
    in_groups = inner == outer == 1 or inner % GROUP_CHANNELS == outer % GROUP_CHANNELS == 0
    return _is_served(dy, rank, 1) and (group == 1 or in_groups)


def convolution_data(
    of: GraphBuilder,
    dy: Value,
    w: Value,
    shape: Sequence[int],
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    group: int,
) -> Value:
    """Return the gradient of a convolution's data.

    Args:
        of: Writes the operators.
        dy: The gradient of its output, (N, O, ...).
        w: Its weights, (O, I / group, ...).
        shape: The shape of its data, (N, I, ...).
        strides: Of each spatial axis, as the others.
        pads: Beginnings, then ends.
        dilations: Positions from one tap to the next.
        group: Groups of channels.
    """
    if is_empty(dy, w):
        return filled(of, 0.0, dy.dtype, shape)
    rank = len(shape) - 2
    taps = w if _is_served(dy, rank, group) else _taps_at_least(of, w, strides, dilations)
    before, after, beyond = [], [], []
    for axis in range(rank):
        span = (taps.shape[2 + axis] - 1) * dilations[axis] + 1
        whole = strides[axis] * (dy.shape[2 + axis] - 1) + span  # positions that the taps reach
        left, right = pads[axis], whole - pads[axis] - shape[2 + axis]
        before.append(left)
        after.append(max(right, 0))
        beyond.append(max(-right, 0))
    attrs: dict[str, Any] = {"strides": tuple(strides), "dilations": tuple(dilations), "group": group}
    return of("ConvTranspose", dy, taps, pads=(*before, *after), output_padding=tuple(beyond), **attrs)


def _taps_at_least(of: GraphBuilder, w: Value, strides: Sequence[int], dilations: Sequence[int]) -> Value:
    """Return weights with taps of 0 behind the others, so that a tap reaches each position of the data.

    Kernels of groups, of other element types and of more dimensions have no other way to write zeros between what they
    compute.
    """
    axes = zip(w.shape[2:], strides, dilations, strict=True)
    lacking = [max(0, stride - taps) if dilation == 1 else 0 for taps, stride, dilation in axes]
    return of("Pad", w, of.ints(*(0,) * len(w.shape), 0, 0, *lacking)) if any(lacking) else w


def convolution_weight(
    of: GraphBuilder,
    x: Value,
    dy: Value,
    shape: Sequence[int],
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    group: int,
) -> Value:
    """Return the gradient of a convolution's weights.

    Args:
        of: Writes the operators.
        x: Its data, (N, I, ...).
        dy: The gradient of its output, (N, O, ...).
        shape: The shape of its weights, (O, I / group, ...).
        strides: Of each spatial axis, as the others.
        pads: Beginnings, then ends.
        dilations: Positions from one tap to the next.
        group: Groups of channels.
    """
    if is_empty(x, dy):
        return filled(of, 0.0, dy.dtype, shape)
    attrs: dict[str, Any] = {"strides": tuple(strides), "pads": tuple(pads), "dilations": tuple(dilations)}
    if _is_summed(dy, shape[1], len(shape) - 2, group):
        attrs |= {"kernel_shape": tuple(shape[2:]), **({"group": group} if group > 1 else {})}
        return of("ConvWeightGradient", x, dy, domain="opbuild", **attrs)
    return _weight_by_product(of, x, dy, shape, **attrs, group=group)


def _weight_by_product(
    of: GraphBuilder,
    x: Value,
    dy: Value,
    shape: Sequence[int],
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    group: int,
) -> Value:
    """Return the gradient of a convolution's weights: one product a group of what each tap has seen."""
    out, inner, *taps = shape
    rank, images, positions = len(taps), x.shape[0], prod(dy.shape[2:])
    windows = [
        _window(of, data, tap, dy.shape[2:], strides, dilations)
        for data in (_padded(of, x, dy.shape[2:], taps, strides, pads, dilations),)
        for tap in product(*map(range, taps))
    ]
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


def _padded(
    of: GraphBuilder,
    x: Value,
    out: Sequence[int],
    taps: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
) -> Value:
    """Return the data with the padding that windows read."""
    rank = len(out)
    before = pads[:rank]
    after = [
        max(0, (out[i] - 1) * strides[i] + (taps[i] - 1) * dilations[i] + 1 - before[i] - x.shape[2 + i])
        for i in range(rank)
    ]
    return of("Pad", x, of.ints(0, 0, *before, 0, 0, *after)) if any((*before, *after)) else x


def _window(
    of: GraphBuilder, x: Value, tap: Sequence[int], out: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Value:
    """Return what one tap sees: an element of the data for each position of the output."""
    starts = [place * dilation for place, dilation in zip(tap, dilations, strict=True)]
    ends = [s + (count - 1) * stride + 1 for s, count, stride in zip(starts, out, strides, strict=True)]
    if not any(starts) and tuple(ends) == x.shape[2:] and set(strides) <= {1}:
        return x
    axes = range(2, len(x.shape))
    return of("Slice", x, of.ints(*starts), of.ints(*ends), of.ints(*axes), of.ints(*strides))


def transposed_data(
    of: GraphBuilder,
    dy: Value,
    w: Value,
    shape: Sequence[int],
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    group: int,
) -> Value:
    """Return the gradient of a transposed convolution's data of ``shape``: a convolution with the same weights."""
    if is_empty(dy, w):
        return filled(of, 0.0, dy.dtype, shape)
    found = of(
        "Conv", dy, w, strides=tuple(strides), pads=tuple(pads), dilations=tuple(dilations), group=group,
        kernel_shape=w.shape[2:],
    )  # fmt: skip
    if found.shape == tuple(shape):
        return found
    # Positions that only output_padding reached belong to no position of the data.
    axes = range(2, len(shape))
    return of("Slice", found, of.ints(*(0 for _ in axes)), of.ints(*shape[2:]), of.ints(*axes))


def transposed_weight(
    of: GraphBuilder,
    x: Value,
    dy: Value,
    shape: Sequence[int],
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    group: int,
) -> Value:
    """Return the gradient of a transposed convolution's weights: data and outputs change places."""
    return convolution_weight(of, dy, x, shape, strides=strides, pads=pads, dilations=dilations, group=group)
