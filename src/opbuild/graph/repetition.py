"""Numbers that differ from one repetition to the next, by the same each time: where an image of a batch begins."""

from __future__ import annotations

from opbuild.graph.extents import SymbolicExtent, value_of
from opbuild.graph.polynomials import Polynomial


def parts(number: int | SymbolicExtent) -> tuple[int | SymbolicExtent, int | SymbolicExtent]:
    """Return a number as its value in the first repetition, and the step to each further one.

    Raises:
        ClosedError: If it grows by another number each time.
    """
    if not isinstance(number, SymbolicExtent):
        return number, 0
    owner, index = number.owner, number.owner.index().polynomial[0][0][0]
    first = tuple((monomial, factor) for monomial, factor in number.polynomial if index not in monomial)
    more: Polynomial = tuple(
        sorted((_without(monomial, index), factor) for monomial, factor in number.polynomial if index in monomial)
    )
    owner.require_sure(more)
    return owner.number(first, number.value), owner.number(more, value_of(more, owner))


def _without(monomial: tuple[int, ...], index: int) -> tuple[int, ...]:
    place = monomial.index(index)
    return (*monomial[:place], *monomial[place + 1 :])
