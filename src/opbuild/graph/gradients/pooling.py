"""Gradients of pools.

The greatest element of a window gets all of what its output gets: the first one if several are equal, as in torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from opbuild.graph.gradients.broadcasting import expanded, filled, is_empty
from opbuild.graph.gradients.convolution import convolution_data
from opbuild.graph.graph_builder import GraphBuilder, Value
from opbuild.graph.types import Array
from opbuild.graph.windows import Axis


def max_pool_data(of: GraphBuilder, dy: Value, indices: Value, shape: Sequence[int]) -> Value:
    """Return the gradient of a max pool's data.

    Args:
        of: Writes the operators.
        dy: The gradient of its output.
        indices: Where in the data of ``shape`` each output's element stood, counted over all of it, as ONNX does.
        shape: The shape of its data.
    """
    if is_empty(dy):
        return filled(of, 0.0, dy.dtype, shape)
    places, parts = (of.reshape(each, (prod(each.shape),)) for each in (indices, dy))
    zeros = filled(of, 0.0, dy.dtype, (prod(shape),))
    return of.reshape(of("ScatterElements", zeros, places, parts, axis=0, reduction="add"), shape)


def max_pool_planes(of: GraphBuilder, dy: Value, indices: Value, shape: Sequence[int], axes: int = 2) -> Value:
    """Return what ``max_pool_data`` does, by places that are counted in the plane of the last ``axes``, as in torch."""
    if is_empty(dy):
        return filled(of, 0.0, dy.dtype, shape)
    planes, plane = prod(shape[: len(shape) - axes]), prod(shape[len(shape) - axes :])
    places, parts = (of.reshape(each, (planes, prod(each.shape) // planes)) for each in (indices, dy))
    zeros = filled(of, 0.0, dy.dtype, (planes, plane))
    return of.reshape(of("ScatterElements", zeros, places, parts, axis=1, reduction="add"), shape)


def average_pool_data(
    of: GraphBuilder,
    dy: Value,
    shape: Sequence[int],
    *,
    kernel_shape: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int] = (),
    count_include_pad: bool = False,
    divisor: int | None = None,
) -> Value:
    """Return the gradient of an average pool's data.

    Args:
        of: Writes the operators.
        dy: The gradient of its output, (N, C, ...).
        shape: The shape of its data.
        kernel_shape: Taps of each spatial axis, as the others.
        strides: Positions from one output to the next.
        pads: Beginnings, then ends, as the node says.
        dilations: Positions from one tap to the next; 1 if empty.
        count_include_pad: Whether the padding counts.
        divisor: What sums were divided by, if not by the number of elements.
    """
    if is_empty(dy):
        return filled(of, 0.0, dy.dtype, shape)
    rank, channels = len(kernel_shape), shape[1]
    steps = tuple(dilations) or (1,) * rank
    axes = [
        Axis(shape[2 + i], dy.shape[2 + i], kernel_shape[i], strides[i], steps[i], pads[i], pads[rank + i])
        for i in range(rank)
    ]
    counts: Array = np.ones((), np.int64)
    for axis in axes:
        counts = counts[..., None] * axis.counts(count_include_pad)
    counts = np.full_like(counts, divisor) if divisor is not None else np.maximum(counts, 1)
    if (counts == counts.reshape(-1)[0]).all():
        counts = counts.reshape(-1)[:1].reshape(())
    parts = of("Div", dy, of.constant(counts, dy.dtype))
    ones = expanded(of, of.constant(1.0, dy.dtype), (channels, 1, *kernel_shape))
    return convolution_data(of, parts, ones, shape, strides=strides, pads=pads, dilations=steps, group=channels)


def global_average_data(of: GraphBuilder, dy: Value, shape: Sequence[int]) -> Value:
    """Return the gradient of a mean over all positions, (N, C, 1, ...) to ``shape``."""
    return expanded(of, of("Div", dy, of.constant(max(prod(shape[2:]), 1), dy.dtype)), shape)
