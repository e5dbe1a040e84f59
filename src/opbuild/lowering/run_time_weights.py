"""Weights that are known only at run time, brought into the layouts of kernels by copies at each call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

import numpy as np

from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.weight_blocks import family as weight_blocks
from opbuild.graph.types import TensorType
from opbuild.lowering.context import Lowering
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import broadcast, dense_as, narrowed, viewed_as

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
    for parts in product(*(_parts(value.shape[axis]) for axis in split)):
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
    outer, inner, *kernel = lowering.type(name).shape
    taps, own = prod(kernel), lowering.weight_blocks.get(name)
    if own is None and not _is_whole(lowering.plain(name)):
        return None
    if own is not None and not tile:
        return own
    if turned and taps == 1 and not tile:
        return None  # rows of 16 elements that are copied as they lie
    desc = weight_blocks.describe(taps, turned, tile, blocked=own is not None)
    first, second = (inner, outer) if turned else (outer, inner)
    if tile:
        shape: tuple[int, ...] = ((tile + 2) ** 2, first // BLOCK, second, BLOCK)
        target = written = lowering.temporary(TensorType("float32", shape))
    else:
        target = lowering.temporary(
            TensorType("float32", (first // BLOCK, second // BLOCK, *_two(kernel), BLOCK, BLOCK))
        )
        written = dense_as(target, (*target.shape[:2], taps, BLOCK, BLOCK))
    source = dense_as(lowering.plain(name), (outer, inner * taps)) if own is None else own
    lowering.emit(desc, (source, written), (node,))
    return target


def turned_blocks(
    lowering: Lowering, blocks_: Plain, node: str, down: Sequence[int], across: Sequence[int]
) -> Plain | None:
    """Emit the kernel that changes inputs and outputs of blocks over and takes some of their taps, in any order.

    Args:
        lowering: The lowering.
        blocks_: Weights in blocks.
        node: The node, for reports.
        down: The taps of a column, at one distance from each other.
        across: Those of a row.
    """
    desc = weight_blocks.describe(0, True, blocked=True)
    outer, inner = blocks_.shape[:2]
    target = lowering.temporary(TensorType("float32", (inner, outer, len(down), len(across), BLOCK, BLOCK)))
    source, written = blocks_, target
    for axis, taps in ((2, down), (3, across)):
        step = taps[1] - taps[0] if len(taps) > 1 else 1
        if step < 0:  # written in reverse: memory is read ahead where addresses go up
            written = narrowed(written, axis, len(taps) - 1, len(taps), -1)
        source = narrowed(source, axis, min(taps), len(taps), abs(step))
    lowering.emit(desc, (source, written), (node,))
    return target


def _is_whole(value: Plain) -> bool:
    """Return whether weights are dense, and their channels whole blocks."""
    outer, inner = value.shape[:2]
    whole = not (outer % BLOCK or inner % BLOCK) and prod(value.shape) > 0
    return whole and value.dense and value.storage.dtype == "float32"


def _two(kernel: Sequence[int]) -> tuple[int, int]:
    """Return the taps of one or two dimensions as height and width."""
    return (1, kernel[0]) if len(kernel) == 1 else (kernel[0], kernel[1])


def _extent(extent: int, kind: str) -> int:
    return {"block": blocks(extent), "lane": BLOCK}.get(kind, extent)


def _parts(extent: int) -> Iterator[tuple[int, int, int]]:
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
    target = lowering.temporary(TensorType(value.storage.dtype, shape))
    lowering.copy(turned, target, name)
    inner = prod(shape[2:])
    return viewed_as(target, (groups * outs, *shape[2:]), (inner, *target.strides[2:]))
