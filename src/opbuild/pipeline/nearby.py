"""Sizes for which templates are made ahead of the calls that ask for them: programs differ below some extents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from opbuild.kernel.opdesc import FREE
from opbuild.runtime.binding import Shapes
from opbuild.runtime.symbolic import symbolic_of

if TYPE_CHECKING:
    from opbuild.runtime.record import Record

EXTENTS = (3, 11, 37, 100, 1)
"""Programs differ below a vector of 16 elements and below half of one, and by whether attention is one kernel, which it
is where blocks of 32 rows are filled."""

BETWEEN = (15, 7)
"""Where numbers decide, some extents are one more than others, and so on the other side of such a boundary."""


def nearby(record: Record, shapes: Shapes, declared: Sequence[Sequence[int]]) -> Iterator[Shapes]:
    """Yield sizes of which one open extent is another one; where numbers decide, all are greater or less by as much.

    A number that decides is mostly an extent of an input and one more: alone it says nothing. Nothing is yielded for
    extents for which the record is not open: a number may be an axis.

    Args:
        record: What was made for a size.
        shapes: That size.
        declared: The shapes of the inputs, ``FREE`` where they are open; behind them other numbers that decide.
    """
    symbolic = symbolic_of(record)
    given = [shapes[index][axis] for index, axis in symbolic.variables]
    fixed = [symbolic.formulas.fixes(index) for index in range(len(given))]
    if symbolic.values:
        for least in () if any(fixed) else (*EXTENTS, *BETWEEN):
            more = least - min(given)
            yield tuple(
                tuple(extent + more if free == FREE else extent for extent, free in zip(shape, frees, strict=True))
                for shape, frees in zip(shapes, declared, strict=True)
            )
        return
    for (_, axis), old, is_fixed in zip(symbolic.variables, given, fixed, strict=True):
        for extent in () if is_fixed else EXTENTS:
            yield _replaced(shapes, declared, axis, old, extent)


def _replaced(
    shapes: Shapes, declared: Sequence[Sequence[int]], axis: int, old: int, new: int
) -> tuple[tuple[int, ...], ...]:
    """Return shapes in which an open extent that stands in one place of several inputs is another one."""
    return tuple(
        tuple(
            new if place == axis and extent == old and free[place] == FREE else extent
            for place, extent in enumerate(shape)
        )
        for shape, free in zip(shapes, declared, strict=True)
    )
