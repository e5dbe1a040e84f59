"""Numbers that follow from open extents, worked out for a size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from opbuild.graph.extents import Extents, SymbolicExtent
from opbuild.graph.polynomials import OPERATIONS, Condition, Monomial, Polynomial, Variable, constant, evaluated
from opbuild.graph.types import Array

Number = int | Polynomial
"""A number that is the same at each size, or one that follows from open extents."""
_KINDS = ("zero", "not zero", "positive")
_MOST = 2**63 - 1
_FITS = 2.0**62
"""Numbers below it are exact in 64 bits, and so are the sums that they are made of."""


class Formulas:
    """Numbers by index, for any size at which some conditions hold; ``count`` is how many there are.

    Polynomials are over ``variables``, of which those of inputs come first.
    """

    def __init__(
        self, variables: Sequence[Variable], conditions: Sequence[Condition], numbers: Sequence[Number]
    ) -> None:
        self._given = tuple(variables), tuple(conditions), tuple(numbers)
        self.count = len(numbers)
        self._inputs = sum(each.operation == "input" for each in variables)
        self._divided = [(each.operation, each.left, each.right) for each in variables[self._inputs :]]
        alone = {index for index, each in enumerate(variables) if each.operation == "bits"}
        polynomials = [constant(each) if isinstance(each, int) else each for each in numbers]
        self._large = {index: each for index, each in enumerate(polynomials) if _is_large(each, alone)}
        self._large_conditions = [each for each in conditions if _is_large(each.polynomial, alone)]
        others = [each for each in conditions if not _is_large(each.polynomial, alone)]
        others.sort(key=lambda each: _KINDS.index(each.kind))
        self._ends = [*accumulate(sum(each.kind == kind for each in others) for kind in _KINDS)]
        rest = [() if index in self._large else each for index, each in enumerate(polynomials)]
        self._alone = alone
        self._sums = _Sums([*(polynomial for _, polynomial in others), *rest], len(variables))

    def __call__(self, extents: Sequence[int]) -> Array | None:
        """Return all numbers for these open extents of the inputs; None if a condition does not hold.

        None too where a number would not fit into 64 bits.
        """
        values = self._values(extents)
        found = None if values is None else self._sums(self._integers(values))
        if values is None or found is None:
            return None
        zeros, others, count = self._ends
        if found[:zeros].any() or not found[zeros:others].all() or found[others:count].min(initial=1) < 1:
            return None
        numbers = found[count:]
        if not all(_holds(kind, evaluated(each, values)) for kind, each in self._large_conditions):
            return None
        for index, polynomial in self._large.items():
            number = evaluated(polynomial, values)
            if abs(number) > _MOST:
                return None
            numbers[index] = number
        return numbers

    def _values(self, extents: Sequence[int]) -> list[Any] | None:
        """Return the values of all variables; None if something is divided by zero, or is no number."""
        if len(extents) != self._inputs:
            return None
        values: list[Any] = list(extents)
        if not self._divided:
            return values
        try:
            with np.errstate(all="ignore"):
                for operation, left, right in self._divided:
                    values.append(OPERATIONS[operation](_operand(left, values), _operand(right, values)))
        except (ArithmeticError, ValueError):
            return None
        return values

    def _integers(self, values: Sequence[Any]) -> list[int]:
        """Return the values that sums are over; 0 in place of those that are no integers, or stand alone."""
        return [each if isinstance(each, int) and index not in self._alone else 0 for index, each in enumerate(values)]

    def known(self, index: int) -> int:
        """Return a number that is the same at each size; -1 for another one."""
        number = self._given[2][index]
        return number if isinstance(number, int) else -1

    def text(self, index: int, inputs: Sequence[str]) -> str:
        """Return a number as text, given the names of the open extents of inputs."""
        variables, _, numbers = self._given
        names = list(inputs)
        for each in variables[len(names) :]:
            operands = [_text(operand, names) for operand in (each.left, each.right) if operand]
            if each.operation.isidentifier() or len(operands) == 1:
                names.append(f"{each.operation}({', '.join(operands)})")
            else:
                left, right = (f"({operand})" if " " in operand else operand for operand in operands)
                names.append(f"({left} {each.operation} {right})")
        number = numbers[index]
        return str(number) if isinstance(number, int) else _text(number, names)

    def hold_where(self, other: Formulas) -> bool:
        """Return whether the conditions are those of others, written alike."""
        (own, conditions, _), (its, others, _) = self._given, other._given
        return {*conditions} == {*others} and [each[:3] for each in own] == [each[:3] for each in its]

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
        known = {"input", "index", *OPERATIONS}
        if not known.issuperset(kinds) or kinds != sorted(kinds, key=lambda kind: kind != "input"):
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


class _Sums:
    """Polynomials over so many variables that are worked out together."""

    def __init__(self, polynomials: Sequence[Polynomial], variables: int) -> None:
        monomials: dict[Monomial, int] = {}
        terms = [each or (((), 0),) for each in polynomials]
        flat = [(monomials.setdefault(monomial, len(monomials)), factor) for each in terms for monomial, factor in each]
        self._monomial, self._factor = np.array(flat, np.int64).reshape(-1, 2).T.copy()
        self._starts = np.array([0, *accumulate(map(len, terms))][:-1], np.int64)
        self._degree = max(map(len, monomials), default=0)
        padded = [(*each, *(variables,) * (self._degree - len(each))) for each in monomials]
        self._variables = np.array(padded, np.int64).reshape(len(monomials), self._degree)
        self._most = max((sum(abs(factor) for _, factor in each) for each in terms), default=0)

    def __call__(self, values: Sequence[int]) -> Array | None:
        """Return all of them, None if one does not fit into 64 bits."""
        if not len(self._starts):
            return np.zeros(0, np.int64)
        largest = max(map(abs, values), default=0)
        if max(largest, 1) ** self._degree * self._most >= _FITS and not self._fit(values):
            return None
        own = np.array([*values, 1], np.int64)[self._variables].prod(axis=1)
        found: Array = np.add.reduceat(self._factor * own[self._monomial], self._starts)
        return found

    def _fit(self, values: Sequence[int]) -> bool:
        """Return whether no sum or product, whatever the signs, leaves 64 bits."""
        own = np.abs(np.array([*values, 1], np.float64))[self._variables].prod(axis=1)
        sums = np.add.reduceat(np.abs(self._factor.astype(np.float64)) * own[self._monomial], self._starts)
        return bool(max(sums.max(), own.max(), *map(abs, values)) < _FITS)


def _text(polynomial: Polynomial, names: Sequence[str]) -> str:
    """Return a polynomial as text, terms of more variables first."""
    terms = []
    for monomial, factor in sorted(polynomial, key=lambda term: (-len(term[0]), term[0])):
        factors = [names[each] for each in monomial]
        terms.append("·".join(factors if factors and factor == 1 else [str(factor), *factors]))
    return " + ".join(terms).replace("+ -", "- ") or "0"


def _is_large(polynomial: Polynomial, alone: set[int]) -> bool:
    """Return whether it is worked out by itself: bits, and ends that are none, are as large as an int64."""
    return any(abs(factor) >= _FITS / 4 or not alone.isdisjoint(monomial) for monomial, factor in polynomial)


def _operand(polynomial: Polynomial, values: Sequence[Any]) -> Any:
    """Return an operand of an operation: a variable, which may be no integer, or a sum."""
    if len(polynomial) == 1 and len(polynomial[0][0]) == 1 and polynomial[0][1] == 1:
        return values[polynomial[0][0][0]]
    return evaluated(polynomial, values)


def _holds(kind: str, value: int) -> bool:
    return value > 0 if kind == "positive" else (value == 0) is (kind == "zero")


class Numbers:
    """Collects the numbers of a lowering, each once."""

    def __init__(self, extents: Extents) -> None:
        self._extents = extents
        self._places: dict[Number, int] = {}

    def place(self, number: int | SymbolicExtent) -> int:
        """Return the index of a number.

        Raises:
            ClosedError: If it is not the same in each repetition.
        """
        if isinstance(number, SymbolicExtent):
            self._extents.require_sure(number.polynomial)
            number = self._extents.number(number.polynomial, number.value)
        found: Number = number.polynomial if isinstance(number, SymbolicExtent) else int(number)
        return self._places.setdefault(found, len(self._places))

    def formulas(self) -> Formulas:
        """Return all numbers; from now on nothing can be decided by an open extent."""
        self._extents.closed = True
        return _without_unused(self._extents.variables, self._extents.least_conditions(), list(self._places))


def _without_unused(
    variables: Sequence[Variable], conditions: Sequence[Condition], numbers: Sequence[Number]
) -> Formulas:
    """Return the formulas without the variables that nothing follows from, which decisions leave behind."""
    polynomials = [each for each in numbers if not isinstance(each, int)]
    used = _variables_of([*polynomials, *(polynomial for _, polynomial in conditions)])
    for index in range(len(variables) - 1, -1, -1):  # what one is made of comes before it
        if index in used:
            used |= _variables_of([variables[index].left, variables[index].right])
    kept = [index for index, each in enumerate(variables) if each.operation == "input" or index in used]
    places = {old: new for new, old in enumerate(kept)}

    def renamed(polynomial: Polynomial) -> Polynomial:
        return tuple((tuple(places[each] for each in monomial), factor) for monomial, factor in polynomial)

    own = [variables[index] for index in kept]
    return Formulas(
        [each._replace(left=renamed(each.left), right=renamed(each.right)) for each in own],
        [Condition(kind, renamed(polynomial)) for kind, polynomial in conditions],
        [each if isinstance(each, int) else renamed(each) for each in numbers],
    )


def _variables_of(polynomials: Iterable[Polynomial]) -> set[int]:
    return {each for polynomial in polynomials for monomial, _ in polynomial for each in monomial}


def _require_known(polynomials: Sequence[Polynomial], count: int) -> None:
    if any(not 0 <= each < count for each in _variables_of(polynomials)):
        raise ValueError("a number follows from an extent that there is not")


def _plain(polynomial: Polynomial) -> list[Any]:
    return [[list(monomial), factor] for monomial, factor in polynomial]


def _read(parts: Any) -> Polynomial:
    return tuple((tuple(int(variable) for variable in monomial), int(factor)) for monomial, factor in parts)
