"""Floating-point numbers that are open: worked out from extents, as ``SymbolicExtent`` is, by exact operations.

Scales and sizes of images are often computed so. Whatever is no such operation takes the value in the size at hand, and
that it is this one is kept as a condition.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.graph.extents import ClosedError, Extents, SymbolicExtent
from opbuild.graph.number_operations import OPERATIONS, to_bits
from opbuild.graph.polynomials import Polynomial, constant


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
    if not isinstance(value, Real):
        return int(value)
    found = int(value.value)
    return SymbolicExtent(value.owner, value.owner.variable("truncate", value.polynomial, (), found), found)


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
    """Return the bits of a floating-point number (``number_operations.to_bits``) as an integer, open if it is."""
    if not isinstance(value, Real):
        return to_bits(value)
    bits = to_bits(value.value)
    return SymbolicExtent(value.owner, value.owner.variable("bits", value.polynomial, (), bits), bits)


def _constant(owner: Extents, value: Any) -> Polynomial:
    made = f"{np.asarray(value).dtype.name} of bits"
    return owner.variable(made, constant(to_bits(value)), (), value)
