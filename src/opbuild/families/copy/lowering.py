"""Copies between strided places."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.dtypes import itemsize
from opbuild.families.copy import family as copies
from opbuild.families.family import Choose
from opbuild.graph.extents import is_one, is_step, may_reach
from opbuild.lowering.implementations import serves
from opbuild.lowering.operands import Made
from opbuild.lowering.strided import Loops, collapse
from opbuild.program import View


@serves("lowering.Copy")
def copy(views: Sequence[View], dtype: str, choose: Choose) -> Made:
    """Make the call that copies a strided tensor of any rank to another of the same extents."""
    loops, size = collapse(views), itemsize(dtype)
    across = _adjacent_dimension(loops, copies.edge(size))
    column = 0 if across is None else loops.extents[across]
    if across is not None:
        loops = loops.moved(across, 1)
    loops = loops.filled(at=1 if across is None else 2) if len(loops.extents) > 1 else loops
    source, target = (steps[0] for steps in loops.strides[:2])
    adjacent = is_one(target) and is_step(source)
    variant = choose(copies.FAMILY, loops.extents[0], size, adjacent, column)
    return copies.describe(dtype, (source, target), len(loops.extents), variant), loops.views(views)


def _adjacent_dimension(loops: Loops, edge: int) -> int | None:
    """Return the dimension along which the source's elements are adjacent, if there may be blocks to be transposed."""
    source, target = loops.strides
    if not is_one(target[0]) or is_step(source[0]):
        return None
    other = next((number for number, stride in enumerate(source) if is_one(stride)), None)
    return other if other and may_reach(loops.extents[0], edge) and may_reach(loops.extents[other], edge) else None
