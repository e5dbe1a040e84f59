"""Conversions between plain and blocked layout, and between orders of channels; one image a call."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from opbuild.graph.types import Array
from opbuild.kernel.opdesc import FREE, Dim, OpDesc, Operand
from opbuild.lowering.operands import BLOCK
from opbuild.program import View

Made = tuple[OpDesc, tuple[View, ...]]
Dims = tuple[tuple[int, int], ...]

PARALLEL_ELEMENTS = 32768
"""From here on waking a second thread costs less than it saves."""

_BLOCKED = (Dim(BLOCK, 1), Dim(stride=BLOCK), Dim(), Dim())


def to_blocked(views: tuple[View, ...], dtype: str = "float32", threads: int = 2) -> Made:
    """Make the call that copies a plain image ``(W, H, C)`` into blocks ``(16, W, H, C1)``."""
    source, target = views
    plain, blocked = _merged(source.dims, target.dims)
    channels = plain[2][0]
    whole = channels % BLOCK == 0
    dims = (Dim(stride=_step(plain[0])), Dim(), Dim(min=0 if whole else 1, multiple=BLOCK if whole else 1))
    desc = OpDesc(
        op_types=("ToBlocked",),
        family="to_blocked",
        attrs={"whole": whole},
        inputs=(Operand("x", dtype, dims, "NCHW"),),
        outputs=(Operand("out", dtype, _BLOCKED, "NC1HWC0"),),
        variant={"parallel": _parallel(plain, threads)},
    )
    return desc, (View(source.buffer, source.offset, plain), View(target.buffer, target.offset, blocked))


def from_blocked(views: tuple[View, ...], dtype: str = "float32", threads: int = 2) -> Made:
    """Make the call that copies blocks ``(16, W, H, C1)`` into a plain image ``(W, H, C)``."""
    source, target = views
    plain, blocked = _merged(target.dims, source.dims)
    width = next(w for w in (16, 8, 4, 1) if w == 1 or w <= plain[0][0])
    step = _step(plain[0])
    if step == FREE:
        width = 1
    dims = (Dim(stride=step, min=width if width > 1 else 0), Dim(), Dim())
    desc = OpDesc(
        op_types=("FromBlocked",),
        family="from_blocked",
        inputs=(Operand("x", dtype, _BLOCKED, "NC1HWC0"),),
        outputs=(Operand("out", dtype, dims, "NCHW"),),
        variant={"width": width, "parallel": _parallel(plain, threads)},
    )
    return desc, (View(source.buffer, source.offset, blocked), View(target.buffer, target.offset, plain))


def in_order(views: tuple[View, ...], dtype: str = "float32", threads: int = 2) -> Made:
    """Make the call that copies blocks whose channels lie in another order; operands x, channel, out."""
    desc = OpDesc(
        op_types=("ChannelShuffle",),
        family="shuffle",
        inputs=(Operand("x", dtype, _BLOCKED, "NC1HWC0"), Operand("channel", "int32", (Dim(stride=1),))),
        outputs=(Operand("out", dtype, _BLOCKED, "NC1HWC0"),),
        variant={"divide": "blocks", "parts": threads if _parallel(views[2].dims, threads) else 1},
    )
    return desc, views


def channel_table(order: Array) -> Array:
    """Return the place of each channel, and of each lane beyond them, which stay where they are."""
    table = np.arange(-(-len(order) // BLOCK) * BLOCK, dtype=np.int32)
    table[: len(order)] = order
    return table


def for_type(make: Callable[..., Made], dtype: str, threads: int) -> Callable[[tuple[View, ...]], Made]:
    """Return one of the functions above for an element type and a number of threads."""
    return lambda views: make(views, dtype, threads)


def _merged(plain: Dims, blocked: Dims) -> tuple[Dims, Dims]:
    """Return both dims with rows merged into one long row where no halo lies between them."""
    (width, step), (height, row), channels = plain
    lane, (_, blocked_step), (_, blocked_row), block = blocked
    if height > 1 and row == width * step and blocked_row == width * blocked_step:
        long = width * height
        return ((long, step), (1, long * step), channels), (lane, (long, blocked_step), (1, long * blocked_step), block)
    return plain, blocked


def _step(dim: tuple[int, int]) -> int:
    """Return stride 1 as a constant of the code (also where there is one element, whose stride means nothing)."""
    return 1 if dim[1] == 1 else FREE


def _parallel(plain: Dims, threads: int) -> bool:
    return threads > 1 and prod(extent for extent, _ in plain) >= PARALLEL_ELEMENTS
