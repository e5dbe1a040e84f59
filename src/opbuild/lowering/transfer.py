"""Calls that only move elements: between strided places, plain and blocked layout, and orders of channels.

What concerns blocks takes one image a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from opbuild.dtypes import itemsize
from opbuild.families.blocked import BLOCK
from opbuild.families.copy import family as copies
from opbuild.families.family import Choose
from opbuild.families.from_blocked import family as from_blocks
from opbuild.families.shuffle import family as shuffle
from opbuild.families.to_blocked import family as to_blocks
from opbuild.graph.extents import always_equal, is_at_least, is_one, is_step, may_reach
from opbuild.graph.types import Array
from opbuild.lowering.loops import Dims, Loops, collapse
from opbuild.lowering.pending import Made
from opbuild.lowering.strided import constant_step
from opbuild.program import View

LARGE = 512
"""Positions of a block's plane that fill the first-level cache, roughly."""


def copy(views: Sequence[View], dtype: str, choose: Choose) -> Made:
    """Make the call that copies a strided tensor of any rank to another of the same extents."""
    loops, size = collapse(views), itemsize(dtype)
    across = _across(loops, copies.edge(size))
    column = 0 if across is None else loops.extents[across]
    if across is not None:
        loops = loops.moved(across, 1)
    loops = loops.filled(at=1 if across is None else 2) if len(loops.extents) > 1 else loops
    source, target = (steps[0] for steps in loops.strides[:2])
    adjacent = is_one(target) and is_step(source)
    variant = choose(copies.choose, loops.extents[0], size, adjacent, column)
    return copies.describe(dtype, (source, target), len(loops.extents), variant), loops.views(views)


def _across(loops: Loops, edge: int) -> int | None:
    """Return the dimension along which the source's elements are adjacent, if there may be blocks to be transposed."""
    source, target = loops.strides
    if not is_one(target[0]) or is_step(source[0]):
        return None
    other = next((number for number, stride in enumerate(source) if is_one(stride)), None)
    return other if other and may_reach(loops.extents[0], edge) and may_reach(loops.extents[other], edge) else None


def to_blocked(views: tuple[View, ...], dtype: str, choose: Choose) -> Made:
    """Make the call that copies a plain image ``(W, H, C)`` into blocks ``(16, W, H, C1)``."""
    source, target = views
    plain, blocked = _merged(source.dims, target.dims)
    desc = to_blocks.describe(dtype, constant_step(plain[0][1]), plain[2][0])
    return desc, (View(source.buffer, source.offset, plain), View(target.buffer, target.offset, blocked))


def is_large(plane: Sequence[int]) -> Any:
    """Return 1 where the planes of a block leave the first-level cache, else 0."""
    return is_at_least(prod(plane), LARGE)


def from_blocked(
    views: tuple[View, ...],
    dtype: str,
    choose: Choose,
    *,
    transposes: bool = True,
) -> Made:
    """Make the call that copies blocks ``(16, W, H, C1)`` into a plain image ``(W, H, C)``.

    Whole blocks whose planes leave the first-level cache are transposed: else each channel would read its block again.

    Args:
        views: The blocks, and the image.
        dtype: The type of the elements.
        choose: Chooses variants.
        transposes: Whether planes are large (``is_large``).
    """
    source, target = views
    plain, blocked = _merged(target.dims, source.dims)
    step = constant_step(plain[0][1])
    row, column, (channels, plane) = plain
    is_whole = is_one(step) and channels % BLOCK == 0 and itemsize(dtype) == 4
    if is_whole and transposes and may_reach(row[0], BLOCK):
        lane, *places, block = blocked
        rows, lanes = (places[0], lane, places[1], block), (row, (BLOCK, plane), column, (block[0], BLOCK * plane))
        return copy(
            (View(source.buffer, source.offset, rows), View(target.buffer, target.offset, lanes)), dtype, choose
        )
    desc = from_blocks.describe(dtype, step, choose(from_blocks.choose, plain[0][0], step == 1))
    return desc, (View(source.buffer, source.offset, blocked), View(target.buffer, target.offset, plain))


def in_order(views: tuple[View, ...], dtype: str, choose: Choose) -> Made:
    """Make the call that copies blocks whose channels lie in another order; operands x, channel, out."""
    return shuffle.describe(dtype), views


def channel_table(order: Array) -> Array:
    """Return the place of each channel, and of each lane beyond them, which stay where they are."""
    table = np.arange(-(-len(order) // BLOCK) * BLOCK, dtype=np.int32)
    table[: len(order)] = order
    return table


def _merged(plain: Dims, blocked: Dims) -> tuple[Dims, Dims]:
    """Return both dims with rows merged into one long row where no halo lies between them."""
    (width, step), (height, row), channels = plain
    lane, (_, blocked_step), (_, blocked_row), block = blocked
    is_long = always_equal(row, width * step) and always_equal(blocked_row, width * blocked_step)
    if is_long and not is_one(height):
        long = width * height
        return ((long, step), (1, long * step), channels), (lane, (long, blocked_step), (1, long * blocked_step), block)
    return plain, blocked
