"""Calls that only move elements: between strided places, plain and blocked layout, and orders of channels.

What concerns blocks takes one image a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from opbuild.families.blocked import BLOCK
from opbuild.families.family import Choose
from opbuild.graph.extents import always_equal, is_at_least, is_one
from opbuild.graph.types import Array
from opbuild.lowering.implementations import call_of
from opbuild.lowering.operands import Made
from opbuild.lowering.strided import Dims
from opbuild.program import View

LARGE = 512
"""Positions of a block's plane that fill the first-level cache, roughly."""


def copy(views: Sequence[View], dtype: str, choose: Choose) -> Made:
    """Make the call that copies a strided tensor of any rank to another of the same extents."""
    made: Made = call_of("Copy")(views, dtype, choose)
    return made


def to_blocked(views: tuple[View, ...], dtype: str, choose: Choose) -> Made:
    """Make the call that copies a plain image ``(W, H, C)`` into blocks ``(16, W, H, C1)``."""
    made: Made = call_of("ToBlocked")(views, dtype, choose)
    return made


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
    made: Made = call_of("FromBlocked")(views, dtype, choose, transposes=transposes)
    return made


def in_order(views: tuple[View, ...], dtype: str, choose: Choose) -> Made:
    """Make the call that copies blocks whose channels lie in another order; operands x, channel, out."""
    made: Made = call_of("InOrder")(views, dtype, choose)
    return made


def is_large(plane: Sequence[int]) -> Any:
    """Return 1 where the planes of a block leave the first-level cache, else 0."""
    return is_at_least(prod(plane), LARGE)


def channel_table(order: Array) -> Array:
    """Return the place of each channel, and of each lane beyond them, which stay where they are."""
    table = np.arange(-(-len(order) // BLOCK) * BLOCK, dtype=np.int32)
    table[: len(order)] = order
    return table


def merged_rows(plain: Dims, blocked: Dims) -> tuple[Dims, Dims]:
    """Return both dims with rows merged into one long row where no halo lies between them."""
    (width, step), (height, row), channels = plain
    lane, (_, blocked_step), (_, blocked_row), block = blocked
    is_long = always_equal(row, width * step) and always_equal(blocked_row, width * blocked_step)
    if is_long and not is_one(height):
        long = width * height
        return ((long, step), (1, long * step), channels), (lane, (long, blocked_step), (1, long * blocked_step), block)
    return plain, blocked
