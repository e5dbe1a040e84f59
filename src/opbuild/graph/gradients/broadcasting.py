"""The gradient of broadcasting: a sum over the broadcast axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.graph.graph_builder import GraphBuilder, Value


def channel_means(of: GraphBuilder, x: Value) -> Value:
    """Return the mean over all axes but that of channels, which keep an extent of 1.

    The mean of each image is taken first: where images lie in channel blocks, they stay there.
    """
    return of.mean(of.mean(x, range(2, len(x.shape))), (0,))


def summed_to(of: GraphBuilder, dy: Value, shape: Sequence[int]) -> Value:
    """Return the gradient of a tensor of ``shape`` that was broadcast to the shape of ``dy``."""
    shape = tuple(shape)
    if shape == dy.shape:
        return dy
    ahead = len(dy.shape) - len(shape)
    aligned = (1,) * ahead + shape
    axes = [axis for axis, (have, want) in enumerate(zip(dy.shape, aligned, strict=True)) if have != want]
    return of.reshape(of.sum(dy, axes, keepdims=True), shape)


def is_empty(*values: Value) -> bool:
    """Return whether one of some tensors has no elements."""
    return any(not prod(each.shape) for each in values)


def channel_sums(of: GraphBuilder, dy: Value, axis: int = 1) -> Value:
    """Return the gradient of a bias: the sum over all axes but one."""
    return of.sum(dy, [each for each in range(len(dy.shape)) if each != axis])


def per_channel(of: GraphBuilder, x: Value, rank: int, axis: int = 1) -> Value:
    """Return a vector so that it is broadcast along one axis of a tensor of ``rank`` dimensions."""
    return of.reshape(x, [x.shape[0] if each == axis else 1 for each in range(rank)])
