"""Expressions: how a number follows from symbols, as plain data, apart from the lowering in which it was worked out.

A ``SymbolicExtent`` belongs to one lowering. What a later one is to know of it is an expression over the numbers with
which the earlier one began; filled in, it is an integer, or open again where those numbers are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opbuild.graph.extents import Extents, SymbolicExtent, as_extent, is_at_least, is_open
from opbuild.graph.polynomials import Polynomial
from opbuild.graph.symbolic_numbers import greater, is_equal, is_less, lesser, quotient
from opbuild.graph.types import Array
from opbuild.platform.records import NamedTuple

Expression = int | tuple[Any, ...]
"""An integer; or a polynomial: terms of factors and a coefficient, a factor being a symbol's index, or what an
operation makes of two operands: its name and these."""

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "quotient": quotient,
    "min": lesser,
    "max": greater,
    "positive": lambda one, _: is_at_least(one, 1),
    "<": lambda one, other: as_extent(is_less(one, other)),
    "==": lambda one, other: as_extent(is_equal(one, other)),
}
"""What makes integers of others, open or not, as ``polynomials.OPERATIONS`` does of known ones."""


class DerivedValue(NamedTuple):
    """A small array of integers that follows from symbols.

    Attributes:
        dtype: Its element type.
        shape: Its shape.
        elements: Its elements in order.
    """

    dtype: str
    shape: tuple[int, ...]
    elements: tuple[Expression, ...]

    def value(self, symbols: Sequence[Any]) -> Array:
        """Return the array for these symbols: of objects if one of its elements is open."""
        found = [filled(each, symbols) for each in self.elements]
        made = np.empty(len(found), object if is_open(found) else self.dtype)
        for index, each in enumerate(found):
            made[index] = each
        return made.reshape(self.shape)


def derived(value: Array, dtype: str, symbol_of: Callable[[int], int]) -> DerivedValue:
    """Return an open value apart from its lowering, given the symbol of each variable.

    Raises:
        NotImplementedError: If it follows from floating-point numbers.
        KeyError: If it follows from something else.
    """
    elements = tuple(expression(each, symbol_of) for each in value.reshape(-1).tolist())
    return DerivedValue(dtype, value.shape, elements)


def expression(number: Any, symbol_of: Callable[[int], int]) -> Expression:
    """Return a number apart from its lowering, given the symbol of each variable; raises as ``derived``."""
    return (
        _expression(number.owner, number.polynomial, symbol_of) if isinstance(number, SymbolicExtent) else int(number)
    )


def _expression(owner: Extents, polynomial: Polynomial, symbol_of: Callable[[int], int]) -> Expression:
    return tuple((tuple(_factor(owner, each, symbol_of) for each in monomial), int(n)) for monomial, n in polynomial)


def _factor(owner: Extents, variable: int, symbol_of: Callable[[int], int]) -> Any:
    found = owner.variables[variable]
    if found.operation in ("input", "index"):
        return symbol_of(variable)
    if found.operation not in _OPERATIONS:
        raise NotImplementedError(f"no expression has the operation {found.operation}")
    return found.operation, *(_expression(owner, side, symbol_of) for side in (found.left, found.right))


def filled(given: Expression, symbols: Sequence[Any]) -> Any:
    """Return an expression's number for these symbols."""
    if isinstance(given, int):
        return given
    total: Any = 0
    for factors, coefficient in given:
        product: Any = coefficient
        for factor in factors:
            if isinstance(factor, int):
                product = product * symbols[factor]
            else:
                operation, left, right = factor
                product = product * _OPERATIONS[operation](filled(left, symbols), filled(right, symbols))
        total = total + product
    return total
