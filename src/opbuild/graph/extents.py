"""Extents that are open: numbers that know how they follow from the extents of a network's inputs.

A network is lowered once with such numbers, and bound to other sizes by filling in theirs. Each has a value, that of
the size at hand, and a polynomial over the inputs' extents. Arithmetic makes polynomials. Whatever decides something (a
comparison, a hash, an index, text) is answered by the value, and the answer is kept as a condition: what was made is
right for each size at which all conditions hold. So code that knows nothing of this is right too; it may only leave
fewer sizes open.

Quotients and remainders that are no polynomials are variables of their own, worked out from others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, Literal, SupportsIndex, TypeVar

import numpy as np

from opbuild.graph.polynomials import (
    OPERATIONS,
    Condition,
    Kind,
    Monomial,
    Polynomial,
    Rules,
    Variable,
    add_rule,
    added,
    constant,
    divided,
    evaluated,
    multiplied,
    reduced,
    scaled,
    simplified,
    without,
)

T = TypeVar("T")

MOST_TERMS = 64
"""Terms of a polynomial; an extent that would have more is no longer open."""

MOST_VALUES = 4
"""Values of a number that are told apart; one that may have more is no longer open."""

TYPICAL = (419, 431, 401, 443, 409, 433, 421, 439, 461)
"""Extents of inputs in a size that is like most."""


class ClosedError(Exception):
    """An extent decided something after the conditions were taken: that would be lost."""


class Extents:
    """The open extents of one lowering, and the conditions under which it is right.

    Attributes:
        variables: What polynomials are over; those of inputs come first.
        conditions: What must hold.
        closed: Whether the conditions were taken.
    """

    def __init__(self) -> None:
        self.variables: list[Variable] = []
        self.conditions: dict[Condition, None] = {}
        self.closed = False
        self._known: dict[tuple[str, Polynomial, Polynomial], int] = {}
        self._decided: dict[Any, Any] = {}
        self._index: int | None = None
        self._bounds: dict[int, int] = {}  # of variables, from below, by the conditions
        self._rules: Rules = {}  # what is equal, by the conditions

    def input(self, value: int) -> SymbolicExtent:
        """Return an extent of an input, which is ``value`` in the size at hand."""
        self.variables.append(Variable("input", (), (), value, True))
        return SymbolicExtent(self, (((len(self.variables) - 1,), 1),), value)

    def index(self) -> SymbolicExtent:
        """Return the number of a repetition, 0 in the first: the same is done in each, so it decides nothing."""
        if self._index is None:
            self.variables.append(Variable("index", (), (), 0, True))
            self._index = len(self.variables) - 1
        return SymbolicExtent(self, (((self._index,), 1),), 0)

    def require_sure(self, polynomial: Polynomial) -> None:
        """Raise ``ClosedError`` for a polynomial that is not the same in each repetition."""
        if self._index is not None and any(self._index in monomial for monomial, _ in polynomial):
            raise ClosedError("the number of a repetition decides something")

    def require(self, kind: Kind, polynomial: Polynomial) -> None:
        """Keep a condition, unless it holds at any size.

        Raises:
            ClosedError: If the conditions were taken, or the number of a repetition decides.
        """
        polynomial = self.simplified(polynomial)
        if not any(monomial for monomial, _ in polynomial) or (kind == "positive" and self.least(polynomial) > 0):
            return
        self.require_sure(polynomial)
        condition = Condition(kind, reduced(polynomial, either_sign=kind != "positive"))
        if condition in self.conditions:
            return
        if self.closed:
            raise ClosedError("an open extent was looked at when its network was lowered already")
        self.conditions[condition] = None
        self._learn(condition)
        if kind == "zero":
            add_rule(self._rules, condition.polynomial)

    def least_conditions(self) -> list[Condition]:
        """Return the conditions without those that follow from others."""
        found: dict[tuple[Kind, Polynomial], int] = {}
        for given, polynomial in self.conditions:
            known = polynomial if given == "zero" else self.simplified(polynomial)
            rest, number = tuple(term for term in known if term[0]), dict(known).get((), 0)
            is_above = given == "not zero" and not number and len(rest) == 1 and self._is_natural(rest[0])
            kind: Kind = "positive" if is_above else given
            key = kind, rest if kind == "positive" else known
            if rest:
                found[key] = min(number, found.get(key, number))
        return [
            Condition(kind, added(terms, constant(number)) if kind == "positive" else terms)
            for (kind, terms), number in found.items()
        ]

    def _is_natural(self, term: tuple[Monomial, int]) -> bool:
        return term[1] > 0 and all(self.variables[each].natural for each in term[0])

    def simplified(self, polynomial: Polynomial) -> Polynomial:
        """Return the polynomial that one equals where the conditions hold: the same for all that are equal."""
        return simplified(polynomial, self._rules) if self._rules else polynomial

    def _learn(self, condition: Condition) -> None:
        """Note the least value that a condition on one variable leaves it."""
        terms = dict(condition.polynomial)
        known = terms.pop((), 0)
        ((monomial, factor),) = terms.items() if len(terms) == 1 else [((), 0)]
        if len(monomial) != 1 or factor < 0:
            return
        (variable,) = monomial
        if condition.kind == "positive":
            bound = -known // factor + 1
        elif condition.kind == "zero":
            bound = -known // factor
        else:
            bound = int(self.variables[variable].natural and known == 0)
        if bound > 0:
            self._bounds[variable] = max(bound, self._bounds.get(variable, 0))

    def least(self, polynomial: Polynomial) -> float:
        """Return a number that a polynomial is never below where the conditions hold."""
        least = 0
        for monomial, factor in polynomial:
            if any(not self.variables[each].natural and each not in self._bounds for each in monomial):
                return self._least_without_quotient(polynomial)
            if factor < 0 and monomial:
                return self._least_without_quotient(polynomial)
            least += factor * prod(self._bounds.get(each, 0) for each in monomial)
        return least

    def _least_without_quotient(self, polynomial: Polynomial) -> float:
        """Return the result of ``least`` by a divisor, below which its remainder lies, or by both of two."""
        single = [(monomial[0], factor) for monomial, factor in polynomial if len(monomial) == 1]
        alone = [(variable, factor) for variable, factor in single
                 if self._divisor(variable) > 0 or self.variables[variable].operation in ("max", "min")]  # fmt: skip
        if not alone:
            return float("-inf")
        variable, factor = max(alone)  # what is divided is made of earlier ones
        found, divisor = self.variables[variable], self._divisor(variable)
        others = added(polynomial, scaled((((variable,), 1),), -factor))
        if found.operation in ("max", "min"):
            bounds = [self.least(added(others, scaled(side, factor))) for side in (found.left, found.right)]
            return min(bounds) if (found.operation == "max") == (factor < 0) else max(bounds)
        if found.operation == "%":
            return self.least(others) + min(0, factor * (divisor - 1))
        times = added(scaled(others, divisor), scaled(found.left, factor))  # and less factor * a remainder
        least = self.least(times) + min(0, -factor * (divisor - 1))
        return least if isinstance(least, float) else -(-least // divisor)

    def _divisor(self, variable: int) -> int:
        """Return the number by which a variable is a quotient or a remainder; 0 if there is none."""
        found = self.variables[variable]
        right = found.right if found.operation in ("//", "%") else ()
        return right[0][1] if len(right) == 1 and not right[0][0] else 0

    def typical_value(self, polynomial: Polynomial) -> int:
        """Return a polynomial's value where no extent of the inputs is 1, nor as great as another one."""
        values: list[Any] = []
        for number, each in enumerate(self.variables):
            if each.operation in ("input", "index"):
                values.append(TYPICAL[number % len(TYPICAL)] if each.operation == "input" else 0)
                continue
            left, right = (evaluated(side, values) for side in (each.left, each.right))
            try:
                values.append(OPERATIONS[each.operation](left, right))
            except (ArithmeticError, ValueError):
                values.append(each.value)
        return int(evaluated(polynomial, values))

    def _is_never_zero(self, polynomial: Polynomial) -> bool:
        polynomial = self.simplified(polynomial)
        return self.least(polynomial) > 0 or self.least(scaled(polynomial, -1)) > 0

    def always(self, decide: Callable[[], T]) -> T | None:
        """Return a decision if it is the same wherever the conditions hold; None if that is not sure."""
        closed, count, known, bounds = self.closed, len(self.variables), dict(self._known), dict(self._bounds)
        self.closed = True
        try:
            return decide()
        except ClosedError:
            return None
        finally:
            self.closed, self._known, self._bounds = closed, known, bounds
            del self.variables[count:]

    def once(self, question: Any, decide: Callable[[], T]) -> T:
        """Return the answer to a question about polynomials, decided when it is first asked.

        The conditions of the first answer are kept, so that a further one has none. While they are closed nothing is
        remembered: variables that are made then may be taken back.
        """
        if question in self._decided:
            known: T = self._decided[question]
            return known
        answer = decide()
        if not self.closed:
            self._decided[question] = answer
        return answer

    def number(self, polynomial: Polynomial, value: int) -> int | SymbolicExtent:
        """Return a polynomial as a number."""
        polynomial = self.simplified(polynomial)
        if not polynomial:
            return 0
        if len(polynomial) == 1 and not polynomial[0][0]:
            return polynomial[0][1]
        found = SymbolicExtent(self, polynomial, value)
        return int(found) if len(polynomial) > MOST_TERMS else found

    def divided(
        self, operation: Literal["//", "%"], left: Polynomial, right: Polynomial, value: int
    ) -> int | SymbolicExtent:
        """Return a quotient or a remainder as a variable of its own."""
        natural = self.least(right) >= 0 and (operation == "%" or self.least(left) >= 0)
        return SymbolicExtent(self, self.variable(operation, left, right, value, natural=natural), value)

    def variable(
        self, operation: str, left: Polynomial, right: Polynomial, value: Any, *, natural: bool = False, least: int = 0
    ) -> Polynomial:
        """Return the result of an operation (``polynomials.OPERATIONS``) on two polynomials, as a variable of its own.

        It is ``value`` in the size at hand, surely not negative if it is ``natural``, and then never below ``least``.
        """
        self.require_sure((*left, *right))
        known = self._known.get((operation, left, right))
        if known is None:
            self.variables.append(Variable(operation, left, right, value, natural))
            known = self._known[operation, left, right] = len(self.variables) - 1
            if least > 0:
                self._bounds[known] = least
            if operation in ("<", "==", "positive"):  # it is 0 or 1, and so its own square
                add_rule(self._rules, (((known,), -1), ((known, known), 1)))
        return (((known,), 1),)


class SymbolicExtent:
    """An integer that is open; see the module. It is no ``int``, so that nothing takes its value unseen."""

    __slots__ = ("owner", "polynomial", "value")
    __array_ufunc__ = None  # numpy's numbers leave arithmetic to it

    def __init__(self, owner: Extents, polynomial: Polynomial, value: int) -> None:
        self.owner = owner
        self.polynomial = polynomial
        self.value = value

    # -- what stays open ----------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        right = self._operand(other)
        if right is None:
            return self._fixed(operator.add, other)
        return self.owner.number(added(self.polynomial, right.polynomial), self.value + right.value)

    def __sub__(self, other: Any) -> Any:
        right = self._operand(other)
        if right is None:
            return self._fixed(operator.sub, other)
        return self.owner.number(added(self.polynomial, scaled(right.polynomial, -1)), self.value - right.value)

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        right = self._operand(other)
        if right is None:
            return self._fixed(operator.mul, other)
        return self.owner.number(multiplied(self.polynomial, right.polynomial), self.value * right.value)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self.owner.number(scaled(self.polynomial, -1), -self.value)

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __floordiv__(self, other: Any) -> Any:
        return self._divided("//", other)

    def __mod__(self, other: Any) -> Any:
        return self._divided("%", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._from(other) // self if _is_integer(other) else other // int(self)

    def __rmod__(self, other: Any) -> Any:
        return self._from(other) % self if _is_integer(other) else other % int(self)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    # -- what decides -------------------------------------------------------------------------------------------------

    def __lt__(self, other: Any) -> bool:
        return self._exceeds(other, self, 0) if _is_open_or_integer(other) else int(self) < other

    def __gt__(self, other: Any) -> bool:
        return self._exceeds(self, other, 0) if _is_open_or_integer(other) else int(self) > other

    def __le__(self, other: Any) -> bool:
        return self._exceeds(other, self, 1) if _is_open_or_integer(other) else int(self) <= other

    def __ge__(self, other: Any) -> bool:
        return self._exceeds(self, other, 1) if _is_open_or_integer(other) else int(self) >= other

    def __eq__(self, other: object) -> bool:
        if not _is_open_or_integer(other):
            return isinstance(other, (float, np.floating)) and bool(int(self) == other)
        difference = self - other
        return difference._is_zero() if isinstance(difference, SymbolicExtent) else difference == 0

    def __bool__(self) -> bool:
        return not self._is_zero()

    def __index__(self) -> int:
        self.owner.require("zero", added(self.polynomial, constant(-self.value)))
        return self.value

    __int__ = __index__

    def __hash__(self) -> int:
        return hash(int(self))

    def __str__(self) -> str:
        return str(int(self))

    def __format__(self, spec: str) -> str:
        return format(int(self), spec)

    def __truediv__(self, other: Any) -> Any:
        right = self._operand(other)
        if right is not None and right:
            quotient, rest = divided(self.polynomial, right.polynomial)
            if not rest and len(quotient) == 1 and not quotient[0][0]:
                return float(quotient[0][1])
        return int(self) / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / int(self)

    def __pow__(self, other: Any) -> Any:
        return int(self) ** other

    def __rpow__(self, other: Any) -> Any:
        return other ** int(self)

    def __round__(self, digits: SupportsIndex | None = None) -> Any:
        return self if digits is None else round(int(self), digits)

    def __ceil__(self) -> SymbolicExtent:
        return self

    __pos__ = __floor__ = __trunc__ = __ceil__

    def __repr__(self) -> str:
        return f"Extent({self.value}: {self.polynomial})"

    # -- inside -------------------------------------------------------------------------------------------------------

    def _from(self, number: Any) -> SymbolicExtent:
        return SymbolicExtent(self.owner, constant(int(number)), int(number))

    def _operand(self, other: Any) -> SymbolicExtent | None:
        """Return another operand as an extent; None if it is no integer."""
        if isinstance(other, SymbolicExtent):
            if other.owner is not self.owner:
                raise ClosedError("extents of two lowerings meet")
            return other
        return self._from(other) if _is_integer(other) else None

    def _fixed(self, function: Callable[[Any, Any], Any], other: Any) -> Any:
        return function(int(self), other) if isinstance(other, (float, np.floating)) else NotImplemented

    def _divided(self, operation: Literal["//", "%"], other: Any) -> Any:
        right = self._operand(other)
        if right is None:
            return int(self) // other if operation == "//" else int(self) % other
        if right._is_zero():
            raise ZeroDivisionError("an extent is divided by zero")
        quotient, rest = divided(self.polynomial, right.polynomial)
        owner, divisor = self.owner, right.value
        if operation == "%":
            return owner.divided("%", rest, right.polynomial, self.value % divisor) if rest else 0
        value = value_of(rest, owner)
        whole = owner.number(quotient, (self.value - value) // divisor)
        return whole + owner.divided("//", rest, right.polynomial, value // divisor) if rest else whole

    def _exceeds(self, left: Any, right: Any, slack: int) -> bool:
        """Return whether left + slack > right, and keep the answer."""
        question = (">", polynomial_of(left), polynomial_of(right), slack)
        return self.owner.once(question, lambda: self._is_positive(left - right + slack))

    def _is_positive(self, number: Any) -> bool:
        if not isinstance(number, SymbolicExtent):
            return bool(number > 0)
        answer, polynomial = number.value > 0, number.polynomial
        self.owner.require("positive", polynomial if answer else added(scaled(polynomial, -1), constant(1)))
        return answer

    def _is_zero(self) -> bool:
        answer = self.value == 0
        if answer or not self.owner._is_never_zero(self.polynomial):
            self.owner.require("zero" if answer else "not zero", self.polynomial)
        return answer


def is_open(extents: Iterable[Any]) -> bool:
    """Return whether any of these extents is open."""
    return any(isinstance(extent, SymbolicExtent) for extent in extents)


def polynomial_of(number: Any) -> Any:
    """Return the polynomial of an extent that is open, another number as it is: a key that decides nothing."""
    return number.polynomial if isinstance(number, SymbolicExtent) else number


def decided_once(shape: Sequence[Any], decide: Callable[[], T]) -> T:
    """Return a decision about a shape; it is made once for all shapes that are equal to it at each size."""
    owner = next((each.owner for each in shape if isinstance(each, SymbolicExtent)), None)
    return decide() if owner is None else owner.once(("shape", *map(polynomial_of, shape)), decide)


def example_value(extent: int | SymbolicExtent) -> int:
    """Return the example value of an extent, that of the size at hand, which decides nothing that lasts."""
    return extent.value if isinstance(extent, SymbolicExtent) else int(extent)


def example_dims(dims: Sequence[tuple[Any, Any]]) -> tuple[tuple[int, int], ...]:
    """Return the example values of an operand's extents and strides."""
    for extent, stride in dims:
        if type(extent) is not int or type(stride) is not int:
            return tuple((example_value(extent), example_value(stride)) for extent, stride in dims)
    return tuple(dims)


def always_equal(one: Any, other: Any) -> bool:
    """Return whether two numbers are surely equal, at each size: for code that is only faster if they are."""
    if type(one) is int and type(other) is int:
        return one == other
    difference = one - other
    return not isinstance(difference, SymbolicExtent) and bool(difference == 0)


def is_at_least(extent: int | SymbolicExtent, least: int) -> Any:
    """Return 1 where an extent is at least so great, else 0: a number that decides nothing."""
    if not isinstance(extent, SymbolicExtent):
        return int(extent >= least)
    owner, above = extent.owner, added(extent.polynomial, constant(1 - least))
    if owner.least(above) > 0:
        return 1
    if owner.least(scaled(above, -1)) >= 0:
        return 0
    value = int(extent.value >= least)
    return owner.number(owner.variable("positive", above, (), value, natural=True), value)


def may_reach(extent: int | SymbolicExtent, least: int) -> bool:
    """Return whether an extent may be so great at some size."""
    if not isinstance(extent, SymbolicExtent):
        return extent >= least
    return extent.owner.least(added(scaled(extent.polynomial, -1), constant(least))) <= 0


def is_one(extent: int | SymbolicExtent) -> bool:
    """Return whether an extent is surely 1, at each size."""
    return extent == 1 if type(extent) is int else always_equal(extent, 1)


def is_step(stride: int | SymbolicExtent) -> bool:
    """Return whether a stride is surely that of elements that are adjacent, or one."""
    return always_equal(stride, 0) or is_one(stride)


def same_shape(one: Sequence[int | SymbolicExtent], other: Sequence[int | SymbolicExtent]) -> bool:
    """Return whether two shapes, or strides, are surely equal, at each size."""
    return len(one) == len(other) and all(map(always_equal, one, other))


def divides(one: int | SymbolicExtent, other: int | SymbolicExtent) -> bool:
    """Return whether a number, which is not 0, surely divides another one, at each size."""
    if not isinstance(one, SymbolicExtent) and not isinstance(other, SymbolicExtent):
        return other % one == 0
    left, right = (each.polynomial if isinstance(each, SymbolicExtent) else constant(each) for each in (other, one))
    return not divided(left, right)[1]


def typical_value(number: int | SymbolicExtent) -> int:
    """Return the value of a number in a size like most: whoever asks is right in any order, and fast in this one."""
    return number.owner.typical_value(number.polynomial) if isinstance(number, SymbolicExtent) else int(number)


def at_most(extent: int | SymbolicExtent) -> Any:
    """Return a number that an extent never exceeds at any size: itself if none is known."""
    if not isinstance(extent, SymbolicExtent):
        return extent
    least = extent.owner.least(scaled(extent.polynomial, -1))
    return -least if isinstance(least, int) else extent


def values_of(number: int | SymbolicExtent) -> Sequence[int]:
    """Return the values that a number may have at any size, if its bounds are known; else its one here, a condition."""
    most = at_most(number)
    if not isinstance(number, SymbolicExtent) or isinstance(most, SymbolicExtent):
        return (int(number),)
    least = number.owner.least(number.polynomial)
    return range(int(least), most + 1) if most - least < MOST_VALUES else (int(number),)


def as_extent(number: Any) -> int:
    """Return an integer, open or not, from one that may be one of numpy's."""
    return number if isinstance(number, SymbolicExtent) else int(number)  # type: ignore[return-value]  # it stands for one


def _is_integer(value: Any) -> bool:
    return isinstance(value, (int, np.integer, np.bool_))


def _is_open_or_integer(value: Any) -> bool:
    return isinstance(value, SymbolicExtent) or _is_integer(value)


def value_of(polynomial: Polynomial, owner: Extents) -> int:
    """Return a polynomial's value in the size at hand."""
    return sum(factor * prod(owner.variables[each].value for each in monomial) for monomial, factor in polynomial)


def parts(number: int | SymbolicExtent) -> tuple[int | SymbolicExtent, int | SymbolicExtent]:
    """Return a number as its value in the first repetition, and the step to each further one.

    Raises:
        ClosedError: If it grows by another number each time.
    """
    if not isinstance(number, SymbolicExtent):
        return number, 0
    owner, index = number.owner, number.owner.index().polynomial[0][0][0]
    first = tuple((monomial, factor) for monomial, factor in number.polynomial if index not in monomial)
    grown = ((without(monomial, (index,)), factor) for monomial, factor in number.polynomial)
    more: Polynomial = tuple(sorted((monomial, factor) for monomial, factor in grown if monomial is not None))
    owner.require_sure(more)
    return owner.number(first, number.value), owner.number(more, value_of(more, owner))
