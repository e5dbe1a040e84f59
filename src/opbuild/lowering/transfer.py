"""Calls that only move elements between strided places."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.families.copy import family as copies
from opbuild.families.family import Choose
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.loops import Loops, collapse
from opbuild.program import View

Made = tuple[OpDesc, tuple[View, ...]]


def copy(views: Sequence[View], dtype: str, choose: Choose) -> Made:
    """Make the call that copies a strided tensor of any rank to another of the same extents."""
    loops, itemsize = collapse(views), np.dtype(dtype).itemsize
    across = _across(loops, copies.edge(itemsize))
    if across is not None:
        loops = loops.moved(across, 1)
    loops = loops.filled(at=1 if across is None else 2) if len(loops.extents) > 1 else loops
    source, target = (steps[0] for steps in loops.strides[:2])
    adjacent = target == 1 and source in (0, 1)
    variant = choose(copies.choose, loops.extents[0], loops.size, itemsize, adjacent, across is not None)
    return copies.describe(dtype, (source, target), len(loops.extents), variant), loops.views(views)


def _across(loops: Loops, edge: int) -> int | None:
    """Return the dimension along which the source's elements are adjacent, if whole blocks are to be transposed."""
    source, target = loops.strides
    if target[0] != 1 or source[0] in (0, 1) or 1 not in source[1:]:
        return None
    other = source.index(1, 1)
    return other if min(loops.extents[0], loops.extents[other]) >= edge else None
