"""Packing of convolution weights: from ONNX's ``(co, ci, kh, kw)`` to the layout of each family.

Weights may come with a factor for each output channel, by which they are multiplied on the way: folded steps by channel
cost no pass of their own. Lanes beyond the channels hold zero weights. A weight that is one number throughout (a
broadcast view) is packed as one, so that a network of generated weights costs no time.

Those of integers are taken less their zero points. Groups of which several fill channel blocks
together become one convolution whose weights between groups are 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, lcm

import numpy as np
from numpy.typing import DTypeLike

from opbuild.dtypes import numpy_dtype
from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.layouts import TRANSFORMS
from opbuild.graph.constants import scaled
from opbuild.graph.types import Array
from opbuild.platform.arrange import arrange
from opbuild.platform.files.held import new_pages
from opbuild.platform.records import dataclass

_COLUMNS = 768
"""Columns of a product of 36 x 9 by 9 x n below OpenBLAS's 4 * 65536 multiplications for more than one thread."""


def four_dimensional(weights: Array) -> Array:
    """Return weights of rank 3 (one spatial dimension) as rank 4, with height 1."""
    return weights if weights.ndim == 4 else weights[:, :, None, :]


def pack_direct(weights: Array, factors: Array | None = None) -> Array:
    """Return ``(C1 out, C1 in, ky, kx, 16 in, 16 out)``."""
    co, ci, kh, kw = weights.shape
    shape = (blocks(co), blocks(ci), kh, kw, BLOCK, BLOCK)
    if _uniform(weights, factors) and co % BLOCK == 0 and ci % BLOCK == 0:
        return np.broadcast_to(np.float32(weights.flat[0]), shape)
    packed = new_pages(shape, np.float32)
    _arrange(weights, factors, packed.reshape(*shape[:2], kh * kw, BLOCK, BLOCK).transpose(0, 4, 1, 3, 2))
    return packed


def pack_pairs(weights: Array) -> Array:
    """Return ``(C1 out, C1 in, ky, kx, 8 in, 16 out, 2 in)`` of bfloat16, whose numbers the weights have."""
    direct = pack_direct(weights)
    paired = direct.reshape(*direct.shape[:4], BLOCK // 2, 2, BLOCK).swapaxes(-1, -2)
    return np.ascontiguousarray(paired.astype(numpy_dtype("bfloat16")))


def pack_first(weights: Array, factors: Array | None = None) -> Array:
    """Return ``(C1 out, C in, ky, kx, 16 out)``."""
    return np.ascontiguousarray(_outputs_split(weights, factors).transpose(0, 2, 3, 4, 1))


def pack_depthwise(
    weights: Array, factors: Array | None = None, order: Array | None = None, dtype: DTypeLike = np.float32
) -> Array:
    """Return ``(C1, ky, kx, 16)``; with an ``order``, the weights of channel c at ``order[c]``."""
    c, _, kh, kw = weights.shape
    weights = scaled(weights, factors)
    if order is not None:
        weights = weights[np.argsort(order)]
    split = _padded(weights, 0, dtype=dtype).reshape(blocks(c), BLOCK, kh, kw)
    return np.ascontiguousarray(split.transpose(0, 2, 3, 1))


def pack_winograd(weights: Array, factors: Array | None = None, *, tile: int) -> Array:
    """Return ``(n * n, C1 out, C in, 16 out)``, transformed, for tiles of ``tile`` outputs in each direction.

    All transforms are one matrix product, in the order of its result: no large transpose follows. It is done in pieces
    for which OpenBLAS uses the calling thread: its own would wait for more work by spinning, on a core that compiles.
    """
    co, ci = weights.shape[:2]
    transform = np.array(TRANSFORMS[tile])
    both = np.einsum("ak,bl->abkl", transform, transform).reshape(transform.shape[0] ** 2, 9).astype(np.float32)
    shape = (both.shape[0], blocks(co), blocks(ci) * BLOCK, BLOCK)
    if _uniform(weights, factors) and co % BLOCK == 0 and ci % BLOCK == 0:
        column = both.sum(1) * np.float32(weights.flat[0])
        return np.broadcast_to(column[:, None, None, None], shape)
    taps = np.empty((9, blocks(ci), BLOCK, BLOCK), np.float32)
    columns, product = taps.reshape(9, -1), new_pages((both.shape[0], shape[1], taps[0].size), np.float32)
    for block in range(shape[1]):
        own = slice(block * BLOCK, (block + 1) * BLOCK)
        by = factors[own] if factors is not None and factors.size == co else factors
        _arrange(weights[own], by, taps[:, None].transpose(1, 4, 2, 3, 0))
        for start in range(0, columns.shape[1], _COLUMNS):
            piece = slice(start, start + _COLUMNS)
            np.matmul(both, columns[:, piece], out=product[:, block, piece])
    return product.reshape(shape)


def group_lanes(outputs: int, groups: int) -> tuple[Array, Array]:
    """Return the group of each lane, ``(C1 out, 16)``, -1 beyond the channels, and the number of groups in a block."""
    flat = np.full(blocks(outputs) * BLOCK, -1, np.int32)
    flat[:outputs] = np.arange(outputs, dtype=np.int32) // (outputs // groups)
    lanes = flat.reshape(-1, BLOCK)
    return lanes, (lanes.max(1) - lanes[:, 0] + 1).astype(np.int32)


def pack_grouped(weights: Array, factors: Array | None = None) -> Array:
    """Return ``(C1 out, ky, kx, C in of a group, 16 out)``."""
    return np.ascontiguousarray(_outputs_split(weights, factors).transpose(0, 3, 4, 2, 1))


def _outputs_split(weights: Array, factors: Array | None) -> Array:
    """Return weights as ``(C1 out, 16, ci, kh, kw)``."""
    return _padded(scaled(weights, factors), 0).reshape(blocks(len(weights)), BLOCK, *weights.shape[1:])


def _uniform(weights: Array, factors: Array | None) -> bool:
    """Return whether the weights are a broadcast view of one number."""
    return factors is None and weights.size > 0 and not any(weights.strides)


def _arrange(weights: Array, factors: Array | None, places: Array) -> None:
    """Write weights, filled up, to the places of ``(C1 out, 16, C1 in, 16, taps)``: blocks stay in the first cache."""
    co, ci = weights.shape[:2]
    if weights.dtype != np.float32 or co % BLOCK or ci % BLOCK or (factors is not None and factors.size != co):
        weights, factors = _padded(scaled(weights, factors), 0, 1), None
    by_channel = None if factors is None else factors.reshape(-1, 1, BLOCK, 1, 1)
    arrange(weights.reshape(places.shape).swapaxes(1, 2), places.swapaxes(1, 2), by_channel)


def _padded(weights: Array, *axes: int, dtype: DTypeLike = np.float32) -> Array:
    """Return the weights in a type, with the given axes filled up with zeros to whole blocks."""
    extra = [(-weights.shape[axis]) % BLOCK if axis in axes else 0 for axis in range(weights.ndim)]
    if not any(extra):
        return np.asarray(weights, dtype)
    return np.pad(np.asarray(weights, dtype), [(0, count) for count in extra])


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
    taps = weights.transpose(2, 3, 0, 1)
    dense = np.zeros((kh, kw, blocks(count) * BLOCK, depth * width), dtype)
    for group in range(part.count):
        rows, columns = slice(group * outs, (group + 1) * outs), slice(group * per_group, (group + 1) * per_group)
        dense[:, :, rows, columns] = taps[:, :, start + group * outs : start + (group + 1) * outs]
    neighbours = dense.view(f"u{adjacent * dense.itemsize}")  # they are moved as one number
    split = neighbours.reshape(kh, kw, -1, BLOCK, depth, steps)
    packed = np.ascontiguousarray(split.transpose(2, 4, 0, 1, 5, 3))
    return packed.view(dtype).reshape(*packed.shape, adjacent)


def pack_integer_winograd(weights: Array) -> Array:
    """Return ``(16, C1 out, C1 in, 8, 16 out, 2)`` int16: weights transformed by twice the matrix of F(2 x 2)."""
    co, ci = weights.shape[:2]
    taps = np.ascontiguousarray(weights.transpose(2, 3, 0, 1), np.int16)
    padded = np.zeros((16, blocks(co) * BLOCK, blocks(ci) * BLOCK), np.int16)
    for row, three in enumerate(_transformed(taps)):
        for column, point in enumerate(_transformed(three)):
            padded[4 * row + column, :co, :ci] = point
    pairs = padded.view(np.uint32).reshape(16, blocks(co), BLOCK, blocks(ci), BLOCK // 2)
    packed = np.ascontiguousarray(pairs.transpose(0, 1, 3, 4, 2))
    return packed.view(np.int16).reshape(*packed.shape, 2)


def _transformed(taps: Array) -> tuple[Array, ...]:
    """Return twice Winograd's transform of three taps, along the first axis."""
    first, second, third = taps
    ends = first + third
    return 2 * first, ends + second, ends - second, 2 * third


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
