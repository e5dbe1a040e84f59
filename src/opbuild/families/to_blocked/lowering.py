"""Copies of plain images into channel blocks."""

from __future__ import annotations

from opbuild.families.family import Choose
from opbuild.families.to_blocked import family as to_blocks
from opbuild.lowering.implementations import serves
from opbuild.lowering.operands import Made
from opbuild.lowering.strided import constant_step, merged_rows
from opbuild.program import View


@serves("lowering.ToBlocked")
def to_blocked(views: tuple[View, ...], dtype: str, choose: Choose) -> Made:
    """Make the call that copies a plain image ``(W, H, C)`` into blocks ``(16, W, H, C1)``."""
    source, target = views
    plain, blocked = merged_rows(source.dims, target.dims)
    desc = to_blocks.describe(dtype, constant_step(plain[0][1]), plain[2][0])
    return desc, (View(source.buffer, source.offset, plain), View(target.buffer, target.offset, blocked))
