"""Numbers that follow from open extents, worked out for a size."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from opbuild.graph.extents import Extent, Extents
from opbuild.graph.polynomials import Condition, Monomial, Polynomial, Variable

Number = int | Polynomial
"""A number that is the same at each size, or one that follows from open extents."""
Terms = list[tuple[int, int]]
"""A polynomial: factors, and the indices of the monomials that they belong to."""

_KINDS = ("zero", "not zero", "positive")


class Formulas:
    """Numbers by index, for any size at which some conditions hold.

    Args:
        variables: What polynomials are over; those of inputs come first.
        conditions: What must hold.
        numbers: The numbers.

    Attributes:
        count: How many numbers there are.
    """

    def __init__(
        self, variables: Sequence[Variable], conditions: Sequence[Condition], numbers: Sequence[Number]
    ) -> None:
        self._given = tuple(variables), tuple(conditions), tuple(numbers)
        self.count = len(numbers)
        self._monomials: dict[Monomial, int] = {}
        self._inputs = sum(each.operation == "input" for each in variables)
        self._worked_out = [
            (each.operation, self._terms(each.left), self._terms(each.right)) for each in variables[self._inputs :]
        ]
        self._conditions = [(kind, self._terms(polynomial)) for kind, polynomial in conditions]
        self._numbers = [each if isinstance(each, int) else self._terms(each) for each in numbers]
        self._ordered = list(self._monomials)

    def __call__(self, extents: Sequence[int]) -> list[int] | None:
        """Return all numbers for these open extents of the inputs; None if a condition does not hold."""
        values = self._values(extents)
        if values is None:
            return None
        monomials = [prod([values[each] for each in monomial]) for monomial in self._ordered]
        for kind, terms in self._conditions:
            value = sum([factor * monomials[index] for factor, index in terms])
            if not (value > 0 if kind == "positive" else (value == 0) is (kind == "zero")):
                return None
        return [
            each if isinstance(each, int) else sum([factor * monomials[index] for factor, index in each])
            for each in self._numbers
        ]

    def _values(self, extents: Sequence[int]) -> list[int] | None:
        """Return the values of all variables; None if something is divided by zero."""
        if len(extents) != self._inputs:
            return None
        values = list(extents)
        for operation, left, right in self._worked_out:
            if operation == "index":  # numbers are those of the first repetition
                values.append(0)
                continue
            dividend, divisor = (
                sum([factor * prod([values[each] for each in self._ordered[index]]) for factor, index in terms])
                for terms in (left, right)
            )
            if operation == "positive":
                values.append(int(dividend > 0))
                continue
            if not divisor:
                return None
            values.append(dividend // divisor if operation == "//" else dividend % divisor)
        return values

    def fixes(self, variable: int) -> bool:
        """Return whether a condition leaves an open extent of the inputs only one value."""
        only = {(variable,), ()}
        return any(
            kind == "zero" and {monomial for monomial, _ in polynomial} <= only for kind, polynomial in self._given[1]
        )

    def to_json(self) -> dict[str, Any]:
        """Return the formulas as JSON values."""
        variables, conditions, numbers = self._given
        return {
            "variables": [[each.operation, _plain(each.left), _plain(each.right)] for each in variables],
            "conditions": [[kind, _plain(polynomial)] for kind, polynomial in conditions],
            "numbers": [number if isinstance(number, int) else _plain(number) for number in numbers],
        }

    @staticmethod
    def from_json(parts: Any) -> Formulas:
        """Return the formulas that ``to_json`` wrote.

        Raises:
            ValueError: If they are none; or ``KeyError``, ``TypeError``.
        """
        variables = [Variable(kind, _read(left), _read(right), 0, False) for kind, left, right in parts["variables"]]
        kinds = [each.operation for each in variables]
        known = {"input", "//", "%", "positive", "index"}
        if not set(kinds) <= known or kinds != sorted(kinds, key=lambda kind: kind != "input"):
            raise ValueError(f"open extents are made by {kinds}")
        conditions = [Condition(kind, _read(polynomial)) for kind, polynomial in parts["conditions"]]
        if not {kind for kind, _ in conditions} <= set(_KINDS):
            raise ValueError("a condition is of no known kind")
        numbers = [number if isinstance(number, int) else _read(number) for number in parts["numbers"]]
        for index, one in enumerate(variables):
            _require_known((one.left, one.right), index)
        _require_known([each for _, each in conditions], len(variables))
        _require_known([number for number in numbers if not isinstance(number, int)], len(variables))
        return Formulas(variables, conditions, numbers)

    def _terms(self, polynomial: Polynomial) -> Terms:
        known = self._monomials
        return [(factor, known.setdefault(monomial, len(known))) for monomial, factor in polynomial]


class Numbers:
    """Collects the numbers of a lowering, each once.

    Args:
        extents: Its open extents.
    """

    def __init__(self, extents: Extents) -> None:
        self._extents = extents
        self._places: dict[Number, int] = {}

    def place(self, number: int | Extent) -> int:
        """Return the index of a number.

        Raises:
            ClosedError: If it is not the same in each repetition.
        """
        if isinstance(number, Extent):
            self._extents.require_sure(number.polynomial)
            number = self._extents.number(number.polynomial, number.value)
        found: Number = number.polynomial if isinstance(number, Extent) else int(number)
        return self._places.setdefault(found, len(self._places))

    def formulas(self) -> Formulas:
        """Return all numbers; from now on nothing can be decided by an open extent."""
        self._extents.closed = True
        return Formulas(self._extents.variables, self._extents.least_conditions(), list(self._places))


def _require_known(polynomials: Sequence[Polynomial], count: int) -> None:
    if any(not 0 <= each < count for one in polynomials for monomial, _ in one for each in monomial):
        raise ValueError("a number follows from an extent that there is not")


def _plain(polynomial: Polynomial) -> list[Any]:
    return [[list(monomial), factor] for monomial, factor in polynomial]


def _read(parts: Any) -> Polynomial:
    return tuple((tuple(int(variable) for variable in monomial), int(factor)) for monomial, factor in parts)
