"""Copies of channel blocks whose channels lie in another order."""

from __future__ import annotations

from opbuild.families.family import Choose
from opbuild.families.shuffle import family as shuffle
from opbuild.lowering.implementations import serves
from opbuild.lowering.operands import Made
from opbuild.program import View


@serves("lowering.InOrder")
def in_order(views: tuple[View, ...], dtype: str, choose: Choose) -> Made:
    """Make the call that copies blocks whose channels lie in another order; operands x, channel, out."""
    return shuffle.describe(dtype), views
