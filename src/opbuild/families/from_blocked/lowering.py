"""Copies of channel blocks into plain images."""

from __future__ import annotations

from opbuild.dtypes import itemsize
from opbuild.families.blocked import BLOCK
from opbuild.families.family import Choose
from opbuild.families.from_blocked import family as from_blocks
from opbuild.graph.extents import is_one, may_reach
from opbuild.lowering.implementations import call_of, serves
from opbuild.lowering.operands import Made
from opbuild.lowering.strided import constant_step, merged_rows
from opbuild.program import View


@serves("lowering.FromBlocked")
def from_blocked(views: tuple[View, ...], dtype: str, choose: Choose, *, transposes: bool = True) -> Made:
    """Make the call that copies blocks ``(16, W, H, C1)`` into a plain image ``(W, H, C)``.

    Whole blocks whose planes leave the first-level cache are transposed: else each channel would read its block again.

    Args:
        views: The blocks, and the image.
        dtype: The type of the elements.
        choose: Chooses variants.
        transposes: Whether planes are large (``lowering.context.LARGE``).
    """
    source, target = views
    plain, blocked = merged_rows(target.dims, source.dims)
    step = constant_step(plain[0][1])
    row, column, (channels, plane) = plain
    is_whole = is_one(step) and channels % BLOCK == 0 and itemsize(dtype) == 4
    if is_whole and transposes and may_reach(row[0], BLOCK):
        lane, *places, block = blocked
        rows, lanes = (places[0], lane, places[1], block), (row, (BLOCK, plane), column, (block[0], BLOCK * plane))
        both = (View(source.buffer, source.offset, rows), View(target.buffer, target.offset, lanes))
        made: Made = call_of("Copy")(both, dtype, choose)
        return made
    desc = from_blocks.describe(dtype, step, choose(from_blocks.FAMILY, plain[0][0], step == 1))
    return desc, (View(source.buffer, source.offset, blocked), View(target.buffer, target.offset, plain))
