"""What was broadcast is summed on the way back."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.graph.graph_builder import GraphBuilder, Value


def total(of: GraphBuilder, x: Value, axes: Sequence[int], keepdims: bool = False) -> Value:
    """Return a sum over some axes, none of them if ``axes`` is empty."""
    return of("ReduceSum", x, of.ints(*axes), keepdims=int(keepdims)) if axes else x


def mean(of: GraphBuilder, x: Value, axes: Sequence[int]) -> Value:
    """Return a mean over some axes, which keep an extent of 1."""
    return of("ReduceMean", x, of.ints(*axes), keepdims=1) if axes else x


def channel_means(of: GraphBuilder, x: Value) -> Value:
    """Return the mean over all axes but that of channels, which keep an extent of 1.

    The mean of each image is taken first: where images lie in channel blocks, they stay there.
    """
    return mean(of, mean(of, x, range(2, len(x.shape))), (0,))


def summed_to(of: GraphBuilder, dy: Value, shape: Sequence[int]) -> Value:
    """Return the gradient of a tensor of ``shape`` that was broadcast to the shape of ``dy``."""
    shape = tuple(shape)
    if shape == dy.shape:
        return dy
    ahead = len(dy.shape) - len(shape)
    aligned = (1,) * ahead + shape
    axes = [axis for axis, (have, want) in enumerate(zip(dy.shape, aligned, strict=True)) if have != want]
    return of.reshape(total(of, dy, axes, keepdims=True), shape)


def expanded(of: GraphBuilder, x: Value, shape: Sequence[int]) -> Value:
    """Return a tensor broadcast to ``shape``."""
    return x if x.shape == tuple(shape) else of("Expand", x, of.ints(*shape))


def filled(of: GraphBuilder, number: float, dtype: str, shape: Sequence[int]) -> Value:
    """Return a tensor of one number."""
    return expanded(of, of.constant(number, dtype), shape)


def is_empty(*values: Value) -> bool:
    """Return whether one of some tensors has no elements."""
    return any(not prod(each.shape) for each in values)


def channel_sums(of: GraphBuilder, dy: Value, axis: int = 1) -> Value:
    """Return the gradient of a bias: the sum over all axes but one."""
    return total(of, dy, [each for each in range(len(dy.shape)) if each != axis])


def per_channel(of: GraphBuilder, x: Value, rank: int, axis: int = 1) -> Value:
    """Return a vector so that it is broadcast along one axis of a tensor of ``rank`` dimensions."""
    return of.reshape(x, [x.shape[0] if each == axis else 1 for each in range(rank)])


def cut(of: GraphBuilder, x: Value, axis: int, start: int, end: int) -> Value:
    """Return the positions of an axis from ``start`` on, below ``end``."""
    if (start, end) == (0, x.shape[axis]):
        return x
    return of("Slice", x, of.ints(start), of.ints(end), of.ints(axis), of.ints(1))
