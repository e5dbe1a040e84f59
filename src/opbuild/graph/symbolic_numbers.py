"""Numbers of any kind that are open: worked out from extents, and decisions about them that are left to the size.

Floating-point numbers are, as ``SymbolicExtent`` is, results of exact operations: scales and sizes of images are often
computed so. Whatever is no such operation takes the value in the size at hand, and that it is this one is kept as a
condition.

Whoever asks with Python's operators which of two numbers is the lesser, or whether they are equal, gets the answer of
the size at hand, which is kept as a condition. Here the answer is a number of its own, 0 or 1, unless it is the same at
each size; it decides only where somebody asks for its truth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.graph.extents import ClosedError, Extents, SymbolicExtent
from opbuild.graph.polynomials import OPERATIONS, Polynomial, constant, to_bits


class Real:
    """A floating-point number that is open.

    Attributes:
        owner: What it belongs to.
        polynomial: A variable.
        value: Its value in the size at hand, of numpy's type.
    """

    __slots__ = ("owner", "polynomial", "value")
    __array_ufunc__ = None

    def __init__(self, owner: Extents, polynomial: Polynomial, value: Any) -> None:
        self.owner = owner
        self.polynomial = polynomial
        self.value = value

    def __float__(self) -> float:
        value = float(self.value)
        if not np.isnan(value):
            same = self.owner.variable("==", self.polynomial, _constant(self.owner, self.value), 1, natural=True)
            self.owner.require("not zero", same)
            return value
        raise ClosedError("what is no number decides something")

    def __lt__(self, other: Any) -> bool:
        return float(self) < float(other)

    def __gt__(self, other: Any) -> bool:
        return float(self) > float(other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Real, float, int)) and float(self) == float(other)

    def __hash__(self) -> int:
        return hash(float(self))

    def __repr__(self) -> str:
        return f"Real({self.value}: {self.polynomial})"


def is_real(value: Any) -> bool:
    """Return whether a number is a floating-point one."""
    return isinstance(value, (Real, float, np.floating))


def owner_of(*values: Any) -> Extents | None:
    """Return the extents that open ones of some numbers belong to; None if none is open."""
    return next((each.owner for each in values if isinstance(each, (SymbolicExtent, Real))), None)


def polynomial_of(owner: Extents, value: Any) -> Polynomial:
    """Return any number as the operand of an operation."""
    if isinstance(value, (SymbolicExtent, Real)):
        return value.polynomial
    return _constant(owner, value) if isinstance(value, np.floating) else constant(int(value))


def value_of(number: Any) -> Any:
    """Return a number, that of the size at hand if it is open, which decides nothing that lasts."""
    return number.value if isinstance(number, (SymbolicExtent, Real)) else number


def real(operation: str, *values: Any) -> Any:
    """Return the result of an operation on one or two numbers: a floating-point number."""
    operands = *map(value_of, values), *[0] * (2 - len(values))
    with np.errstate(all="ignore"):
        found = OPERATIONS[operation](*operands)
    owner = owner_of(*values)
    if owner is None:
        return found
    left, right = (*(polynomial_of(owner, each) for each in values), *[constant(0)] * (2 - len(values)))
    return Real(owner, owner.variable(operation, left, right, found), found)


def truncated(value: Any) -> Any:
    """Return a floating-point number as an integer, rounded towards 0."""
    return _integer("truncate", value, int)


_MOST_EXACT = 64
"""Greatest numerator of a scale (of binary fractions) whose product with any extent of up to 2 ** 18 float32 holds."""


def scaled(extent: Any, scale: Any) -> Any:
    """Return an extent times a scale, both of float32, rounded down."""
    owner = owner_of(extent, scale)
    if owner is None:
        return OPERATIONS["scaled"](extent, scale)
    if not isinstance(scale, Real):
        above, below = float(scale).as_integer_ratio()
        if abs(above) <= _MOST_EXACT:
            return extent * above // below
    number = value_of(scale)
    found = OPERATIONS["scaled"](value_of(extent), number)
    natural = bool(number >= 0 and owner.least(polynomial_of(owner, extent)) >= 0)
    factor = polynomial_of(owner, scale if isinstance(scale, Real) else np.float32(scale))
    if natural and isinstance(scale, Real):
        owner.require("zero", owner.variable("<", factor, constant(0), 0, natural=True))
    made = owner.variable("scaled", polynomial_of(owner, extent), factor, found, natural=natural)
    return SymbolicExtent(owner, made, found)


def bits_of(value: Any) -> Any:
    """Return the bits of a floating-point number (``polynomials.to_bits``) as an integer, open if it is."""
    return _integer("bits", value, to_bits)


def _integer(operation: str, value: Any, function: Callable[[Any], int]) -> Any:
    found = function(value_of(value))
    if not isinstance(value, Real):
        return found
    return SymbolicExtent(value.owner, value.owner.variable(operation, value.polynomial, (), found), found)


def _constant(owner: Extents, value: Any) -> Polynomial:
    made = f"{np.asarray(value).dtype.name} of bits"
    return owner.variable(made, constant(to_bits(value)), (), value)


def is_less(one: Any, other: Any) -> Any:
    """Return whether a number is less than another one."""
    return _compared("<", one, other, lambda: one < other)


def is_equal(one: Any, other: Any) -> Any:
    """Return whether two numbers are equal."""
    return _compared("==", one, other, lambda: one == other)


def negated(truth: Any) -> Any:
    """Return the opposite of a truth value."""
    return 1 - truth if isinstance(truth, SymbolicExtent) else not truth


def both(one: Any, other: Any) -> Any:
    """Return whether two truth values hold."""
    return one * other if _is_open(one, other) else one and other


def either(one: Any, other: Any) -> Any:
    """Return whether one of two truth values holds."""
    return negated(both(negated(one), negated(other)))


def chosen(truth: Any, one: Any, other: Any) -> Any:
    """Return one of two numbers; floating-point ones are chosen in the size at hand."""
    if isinstance(truth, SymbolicExtent) and not is_real(one) and not is_real(other):
        return other + truth * (one - other)
    return one if truth else other


def lesser(one: Any, other: Any) -> Any:
    """Return the lesser of two numbers."""
    return _extreme("min", one, other, is_less(one, other))


def greater(one: Any, other: Any) -> Any:
    """Return the greater of two numbers."""
    return _extreme("max", one, other, is_less(other, one))


def quotient(left: Any, right: Any) -> Any:
    """Return a quotient of integers, rounded towards zero.

    Raises:
        ZeroDivisionError: If the divisor is 0 in the size at hand, which then decides.
    """
    owner = owner_of(left, right)
    if owner is None:
        return OPERATIONS["quotient"](left, right)
    if value_of(right) == 0 and right == 0:
        raise ZeroDivisionError("a number is divided by zero")
    if owner.always(lambda: bool(left >= 0 and right > 0)):
        return left // right
    value = OPERATIONS["quotient"](value_of(left), value_of(right))
    made = owner.variable("quotient", polynomial_of(owner, left), polynomial_of(owner, right), value)
    return SymbolicExtent(owner, made, value)


def _extreme(operation: str, one: Any, other: Any, is_first: Any) -> Any:
    if not isinstance(is_first, SymbolicExtent):
        return one if is_first else other
    owner = is_first.owner
    left, right = polynomial_of(owner, one), polynomial_of(owner, other)
    if is_real(one) or is_real(other):
        return real(f"{operation}imum", one, other)
    value = OPERATIONS[operation](value_of(one), value_of(other))
    least = OPERATIONS[operation](owner.least(left), owner.least(right))
    natural = least >= 0
    made = owner.variable(operation, left, right, value, natural=natural, least=int(least) if natural else 0)
    return SymbolicExtent(owner, made, value)


def _compared(operation: str, one: Any, other: Any, decide: Callable[[], bool]) -> Any:
    owner = owner_of(one, other)
    if owner is None:
        return bool(decide())
    sure = None if is_real(one) or is_real(other) else owner.always(decide)
    if sure is not None:
        return sure
    value = OPERATIONS[operation](value_of(one), value_of(other))
    left, right = polynomial_of(owner, one), polynomial_of(owner, other)
    return SymbolicExtent(owner, owner.variable(operation, left, right, value, natural=True), value)


def _is_open(*values: Any) -> bool:
    return any(isinstance(each, SymbolicExtent) for each in values)
