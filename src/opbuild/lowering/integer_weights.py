"""Packing of the weights of integer convolutions, and their addends to the bias.

Weights are taken less their zero points; lanes beyond the channels hold 0. Groups of which several fill channel blocks
together become one convolution whose weights between groups are 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, lcm

import numpy as np

from opbuild.families.blocked import BLOCK, blocks
from opbuild.graph.types import Array
from opbuild.platform.records import dataclass


@dataclass(frozen=True)
class WeightSlice:
    """Groups that are computed by one call, and where they lie.

    Attributes:
        first: Index of the first group.
        count: Number of groups.
        inputs: First input channel and number of input channels.
        outputs: First output channel and number of output channels.
    """

    first: int
    count: int
    inputs: tuple[int, int]
    outputs: tuple[int, int]


def parts(inputs: int, outputs: int, groups: int) -> Iterator[WeightSlice]:
    """Yield the parts of a grouped convolution that begin at channel blocks, each with as few groups as possible.

    Args:
        inputs: Input channels.
        outputs: Output channels.
        groups: Groups.
    """
    ins, outs = inputs // groups, outputs // groups
    together = min(groups, lcm(BLOCK // gcd(BLOCK, ins), BLOCK // gcd(BLOCK, outs)))
    for first in range(0, groups, together):
        count = min(together, groups - first)
        yield WeightSlice(first, count, (first * ins, count * ins), (first * outs, count * outs))


def shifted(weights: Array, zero: Array | None) -> Array:
    """Return ``(co, ci, kh, kw)`` weights less their zero point, one for all or one an output channel, in int16."""
    wide = weights.astype(np.int16)
    wide = wide if wide.ndim == 4 else wide[:, :, None, :]
    return wide if zero is None else wide - zero.astype(np.int16).reshape(-1, 1, 1, 1)


def element_type(shifted_weights: Array) -> str:
    """Return the narrowest type of kernels' weights that holds them: int8 or int16."""
    narrow = shifted_weights.size == 0 or (shifted_weights.min() >= -128 and shifted_weights.max() <= 127)
    return "int8" if narrow else "int16"


def largest(shifted_weights: Array) -> int:
    """Return the greatest distance of the weights from 0."""
    return 0 if shifted_weights.size == 0 else max(-int(shifted_weights.min()), int(shifted_weights.max()))


def pack_dense(weights: Array, part: WeightSlice, adjacent: int, steps: int, dtype: str) -> Array:
    """Return a part's weights as ``(C1 out, C1 in, ky, kx, steps, 16 out, adjacent)``.

    Args:
        weights: All, less their zero points.
        part: The groups.
        adjacent: Neighbouring input channels whose products are added up at once.
        steps: So many of them are taken of a block.
        dtype: The element type.
    """
    (_, per_group, kh, kw), (start, count) = weights.shape, part.outputs
    outs, width = count // part.count, adjacent * steps
    depth = -(-part.inputs[1] // width)
    dense = np.zeros((blocks(count) * BLOCK, depth * width, kh, kw), dtype)
    for group in range(part.count):
        rows, columns = slice(group * outs, (group + 1) * outs), slice(group * per_group, (group + 1) * per_group)
        dense[rows, columns] = weights[start + group * outs : start + (group + 1) * outs]
    split = dense.reshape(-1, BLOCK, depth, steps, adjacent, kh, kw)
    return np.ascontiguousarray(split.transpose(0, 2, 5, 6, 3, 1, 4))


def pack_winograd(weights: Array) -> Array:
    """Return ``(16, C1 out, C1 in, 8, 16 out, 2)`` int16: weights transformed by twice the matrix of F(2 x 2)."""
    co, ci = weights.shape[:2]
    taps = np.ascontiguousarray(weights.transpose(2, 3, 0, 1), np.int16)
    padded = np.zeros((16, blocks(co) * BLOCK, blocks(ci) * BLOCK), np.int16)
    for row, three in enumerate(_transformed(taps)):
        for column, point in enumerate(_transformed(three)):
            padded[4 * row + column, :co, :ci] = point
    split = padded.reshape(16, blocks(co), BLOCK, blocks(ci), BLOCK // 2, 2)
    return np.ascontiguousarray(split.transpose(0, 1, 3, 4, 2, 5))


def _transformed(taps: Array) -> tuple[Array, ...]:
    """Return twice Winograd's transform of three taps, along the first axis."""
    first, second, third = taps
    ends = first + third
    return 2 * first, ends + second, ends - second, 2 * third


def pack_depthwise(weights: Array) -> Array:
    """Return ``(C1, ky, kx, 16)`` in int16."""
    count, _, kh, kw = weights.shape
    padded = np.zeros((blocks(count) * BLOCK, kh, kw), np.int16)
    padded[:count] = weights[:, 0]
    return np.ascontiguousarray(padded.reshape(-1, BLOCK, kh, kw).transpose(0, 2, 3, 1))


def sums(weights: Array) -> Array:
    """Return the sum of each output channel's weights, in int32."""
    return np.asarray(weights.sum((1, 2, 3), dtype=np.int32))


def pack_bias(weights: Array, bias: Array | None, zero: int) -> Array:
    """Return ``(C1, 16)`` int32: the bias, less the input's zero point's share of each sum; it wraps as sums do.

    Args:
        weights: All, less their zero points.
        bias: One number for all channels or one a channel; None for 0.
        zero: The zero point of the input.
    """
    packed = np.zeros(blocks(len(weights)) * BLOCK, np.int64)
    packed[: len(weights)] = -zero * sums(weights).astype(np.int64)
    packed[: len(weights)] += 0 if bias is None else bias.reshape(-1)
    return packed.astype(np.int32).reshape(-1, BLOCK)
