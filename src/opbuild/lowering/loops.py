"""Loops over strided operands of one shape: the fewest dimensions, in the order of the output's memory.

Elementwise kernels and copies may visit elements in any order, so their dimensions are dropped, sorted and merged
until what is left depends on the shapes as little as possible: fewer ranks are fewer kernels, and one long row is the
fastest loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.graph.extents import typical_value
from opbuild.lowering.strided import merge
from opbuild.platform.records import dataclass
from opbuild.program import View

Dims = tuple[tuple[int, int], ...]

RANKS = (1, 2, 4, 6)
"""Ranks that kernels are compiled for; dimensions of one element fill up to the next."""


@dataclass(frozen=True)
class Loops:
    """Dimensions shared by all operands, innermost first.

    Attributes:
        extents: Number of elements.
        strides: For each operand its strides.
    """

    extents: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.extents)

    def views(self, originals: Sequence[View]) -> tuple[View, ...]:
        """Return the operands' views with these dimensions."""
        return tuple(
            View(view.buffer, view.offset, tuple(zip(self.extents, steps, strict=True)))
            for view, steps in zip(originals, self.strides, strict=True)
        )

    def moved(self, dimension: int, to: int) -> Loops:
        """Return the loops with one dimension moved."""
        order = [index for index in range(len(self.extents)) if index != dimension]
        order.insert(to, dimension)
        return Loops(
            tuple(self.extents[index] for index in order),
            tuple(tuple(steps[index] for index in order) for steps in self.strides),
        )

    def filled(self, ranks: Sequence[int] = RANKS, at: int = 1) -> Loops:
        """Return the loops with dimensions of one element inserted at ``at``, to a number that is in ``ranks``."""
        missing = next((rank for rank in ranks if rank >= len(self.extents)), len(self.extents)) - len(self.extents)
        return Loops(
            (*self.extents[:at], *(1,) * missing, *self.extents[at:]),
            tuple((*steps[:at], *(0,) * missing, *steps[at:]) for steps in self.strides),
        )


def collapse(views: Sequence[View]) -> Loops:
    """Return the loops of operands of equal extents.

    Args:
        views: The operands; the last one is the output, whose memory decides the order.
    """
    dims = [view.dims for view in views]
    order = sorted(range(len(dims[-1])), key=lambda index: abs(typical_value(dims[-1][index][1])))[::-1]
    extents, strides = merge([dims[-1][index][0] for index in order], [[own[i][1] for i in order] for own in dims])
    if not extents:
        extents, strides = (1,), [(1,)] * len(views)
    return Loops(extents[::-1], tuple(steps[::-1] for steps in strides))
