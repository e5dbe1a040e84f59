"""Weights that are known only at run time, brought into the layouts of kernels by copies at each call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import numpy as np

from opbuild.families.blocked import BLOCK, blocks
from opbuild.graph.types import TensorType
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import call_of
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import broadcast, narrowed, viewed_as

Place = tuple[str, int]
"""A dimension of a layout: ``block``, ``lane`` or ``all`` of an axis of the weights."""

DIRECT: tuple[Place, ...] = (("block", 0), ("block", 1), ("all", 2), ("all", 3), ("lane", 1), ("lane", 0))
FIRST: tuple[Place, ...] = (("block", 0), ("all", 1), ("all", 2), ("all", 3), ("lane", 0))
DEPTHWISE: tuple[Place, ...] = (("block", 0), ("all", 2), ("all", 3), ("lane", 0))
GROUPED: tuple[Place, ...] = (("block", 0), ("all", 2), ("all", 3), ("all", 1), ("lane", 0))
CHANNELS: tuple[Place, ...] = (("block", 0), ("lane", 0))
"""Layouts of weights ``(co, ci, kh, kw)``, and of one value a channel, as ``conv_weights`` packs constants."""


def packed(lowering: Lowering, value: Plain, layout: Sequence[Place], name: str, fill: float = 0.0) -> Plain:
    """Emit the copies that bring a value into a layout, and return it.

    Args:
        lowering: The lowering.
        value: The value; its axes are those that the layout names.
        layout: The dimensions of the result, outermost first.
        name: The node, for reports.
        fill: What lanes beyond the channels hold.
    """
    shape = tuple(_extent(value.shape[axis], kind) for kind, axis in layout)
    target = lowering.temporary(TensorType(value.storage.dtype, shape))
    split = sorted({axis for kind, axis in layout if kind == "lane"})
    if any(value.shape[axis] % BLOCK for axis in split):
        lowering.copy(broadcast(_number(lowering, fill), shape), target, name)
    for parts in product(*(_block_parts(value.shape[axis]) for axis in split)):
        source, place = value, target
        for axis, (start, count, lanes) in zip(split, parts, strict=True):
            source = narrowed(source, axis, start, count * lanes)
            place = narrowed(place, layout.index(("block", axis)), start // BLOCK, count)
            place = narrowed(place, layout.index(("lane", axis)), 0, lanes)
        lanes_of = {axis: lanes for axis, (_, _, lanes) in zip(split, parts, strict=True)}
        lowering.copy(_split(source, layout, lanes_of), place, name)
    return target


def in_blocks(lowering: Lowering, name: str, node: str, *, turned: bool = False, tile: int = 0) -> Plain | None:
    """Emit the kernel that brings weights into ``DIRECT``, or transforms them, and return them; None if none serves.

    It serves weights whose channels are whole blocks, and those that lie in blocks already.

    Args:
        lowering: The lowering.
        name: The weights: ``(co, ci, ...)``.
        node: The node, for reports.
        turned: Whether they are a transposed convolution's, ``(ci, co, ...)``, all of whose taps are read in reverse;
            without ``tile``, they lie in no blocks.
        tile: Winograd's tile, for which they are transformed; 0 for none.
    """
    found: Plain | None = call_of("WeightBlocks")(lowering, name, node, turned=turned, tile=tile)
    return found


def turned_blocks(lowering: Lowering, blocks_: Plain, node: str, down: Sequence[int], across: Sequence[int]) -> Plain:
    """Emit the kernel that changes inputs and outputs of blocks over and takes some of their taps, in any order.

    Args:
        lowering: The lowering.
        blocks_: Weights in blocks.
        node: The node, for reports.
        down: The taps of a column, at one distance from each other.
        across: Those of a row.
    """
    found: Plain = call_of("TurnedBlocks")(lowering, blocks_, node, down, across)
    return found


def _extent(extent: int, kind: str) -> int:
    return {"block": blocks(extent), "lane": BLOCK}.get(kind, extent)


def _block_parts(extent: int) -> Iterator[tuple[int, int, int]]:
    """Yield the start, the blocks and the lanes of the whole blocks of an axis, and of the last one."""
    whole, rest = divmod(extent, BLOCK)
    if whole:
        yield 0, whole, BLOCK
    if rest:
        yield whole * BLOCK, 1, rest


def _split(value: Plain, layout: Sequence[Place], lanes: dict[int, int]) -> Plain:
    """Return a part of the value with the dimensions of a layout."""
    extents, strides = [], []
    for kind, axis in layout:
        extent, stride = value.shape[axis], value.strides[axis]
        if kind == "block":
            extent, stride = extent // lanes[axis], stride * lanes[axis]
        elif kind == "lane":
            extent = lanes[axis]
        extents.append(extent)
        strides.append(stride)
    return viewed_as(value, extents, strides)


def _number(lowering: Lowering, number: float) -> Plain:
    return lowering.packed((), f"number {number!r}", (), "float32", lambda: np.array(number, np.float32))


def by_group(lowering: Lowering, value: Plain, groups: int, name: str) -> Plain:
    """Return weights ``(ci, co of a group, kh, kw)`` of a transposed convolution as ``(co, ci of a group, kh, kw)``."""
    ci, outs, *taps = value.shape
    step = value.strides[0]
    shape = (groups, outs, ci // groups, *taps)
    strides = (step * (ci // groups), value.strides[1], step, *value.strides[2:])
    turned = viewed_as(value, shape, strides)
    if groups == 1:
        return viewed_as(value, shape[1:], strides[1:])
    target = lowering.dense_copy(turned, name)
    inner = prod(shape[2:])
    return viewed_as(target, (groups * outs, *shape[2:]), (inner, *target.strides[2:]))
