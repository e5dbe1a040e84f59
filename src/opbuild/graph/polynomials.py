"""Polynomials of integers over numbered variables, their comparisons, and terms that make variables."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import gcd, prod
from typing import Any, Literal

import numpy as np

from opbuild.platform.records import NamedTuple

Monomial = tuple[int, ...]
"""Variables, in order, each as often as it is a factor; none: the constant term."""
Polynomial = tuple[tuple[Monomial, int], ...]
"""Monomials in order with their factors, none of which is 0."""
Kind = Literal["zero", "not zero", "positive"]


class Condition(NamedTuple):
    """A condition on a polynomial."""

    kind: Kind
    polynomial: Polynomial


class Variable(NamedTuple):
    """A variable of polynomials.

    Attributes:
        operation: ``input``; ``index``, the number of a repetition; or one of ``OPERATIONS``.
        left: What it is made of.
        right: The other operand; 0 where there is none.
        value: Its value in the size at hand.
        natural: Whether it is surely not negative.
    """

    operation: str
    left: Polynomial
    right: Polynomial
    value: int
    natural: bool


def constant(value: int) -> Polynomial:
    """Return a number as a polynomial."""
    return (((), value),) if value else ()


def _ordered(terms: dict[Monomial, int]) -> Polynomial:
    return tuple(sorted((monomial, factor) for monomial, factor in terms.items() if factor))


def added(left: Polynomial, right: Polynomial) -> Polynomial:
    """Return a sum."""
    terms = dict(left)
    for monomial, factor in right:
        terms[monomial] = terms.get(monomial, 0) + factor
    return _ordered(terms)


def scaled(polynomial: Polynomial, by: int) -> Polynomial:
    """Return a polynomial times a number."""
    return tuple((monomial, factor * by) for monomial, factor in polynomial) if by else ()


def evaluated(polynomial: Polynomial, values: Sequence[Any]) -> Any:
    """Return a polynomial's value, given those of all variables."""
    return sum([factor * prod([values[each] for each in monomial]) for monomial, factor in polynomial])


def multiplied(left: Polynomial, right: Polynomial) -> Polynomial:
    """Return a product."""
    terms: dict[Monomial, int] = {}
    for one, a in left:
        for two, b in right:
            monomial = tuple(sorted((*one, *two)))
            terms[monomial] = terms.get(monomial, 0) + a * b
    return _ordered(terms)


def divided(left: Polynomial, right: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Return polynomials of which the first, times ``right``, and the second make up ``left``.

    A divisor of one term takes each term that it divides; another one only a multiple of itself.
    """
    if not left:
        return (), ()
    if len(right) == 1:
        ((divisor, by),) = right
        quotient, rest = {}, {}
        for monomial, factor in left:
            others = without(monomial, divisor)
            if others is None or factor % by:
                rest[monomial] = factor
            else:
                quotient[others] = factor // by
        return _ordered(quotient), _ordered(rest)
    (lead, by), (other, factor) = right[-1], left[-1]
    others = without(other, lead)
    if others is not None and not factor % by and len(left) % len(right) == 0:
        quotient = {others: factor // by}
        for monomial, each in left[:-1]:
            cofactor = without(monomial, lead)
            if cofactor is not None and not each % by:
                quotient[cofactor] = each // by
        found = _ordered(quotient)
        if multiplied(found, right) == left:
            return found, ()
    return (), left


def without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """Return a monomial divided by another one; None if that does not divide it."""
    rest = list(monomial)
    for variable in divisor:
        if variable not in rest:
            return None
        rest.remove(variable)
    return tuple(rest)


Rules = dict[int, list[tuple[Monomial, Polynomial]]]
"""Monomials that equal polynomials of smaller ones, by the greatest variable of each."""


def add_rule(rules: Rules, polynomial: Polynomial) -> None:
    """Add the rule that a polynomial is 0: its greatest monomial equals the rest, if its factor is 1 or -1."""
    lead, factor = max(polynomial, key=lambda term: (len(term[0]), term[0][::-1]))
    if lead and abs(factor) == 1:
        rest = tuple(term for term in polynomial if term[0] != lead)
        rules.setdefault(lead[-1], []).append((lead, scaled(rest, -factor)))


def simplified(polynomial: Polynomial, rules: Rules) -> Polynomial:
    """Return a polynomial without the monomials that equal others."""
    found = _next_rule(polynomial, rules)
    while found is not None:
        term, others, instead = found
        rest = tuple(each for each in polynomial if each is not term)
        polynomial = added(rest, multiplied(((others, term[1]),), instead))
        found = _next_rule(polynomial, rules)
    return polynomial


def _next_rule(polynomial: Polynomial, rules: Rules) -> tuple[tuple[Monomial, int], Monomial, Polynomial] | None:
    for term in polynomial:
        for variable in term[0]:
            for lead, instead in rules.get(variable, ()):
                others = without(term[0], lead)
                if others is not None:
                    return term, others, instead
    return None


def reduced(polynomial: Polynomial, *, either_sign: bool) -> Polynomial:
    """Return the simplest polynomial that has the same sign everywhere; with ``either_sign``, or the other one."""
    divisor = gcd(*(factor for _, factor in polynomial)) or 1
    if either_sign and polynomial and polynomial[-1][1] < 0:
        divisor = -divisor
    return tuple((monomial, factor // divisor) for monomial, factor in polynomial)


def to_bits(value: Any) -> int:
    """Return the bits of a floating-point number as one of 64 bits: it keeps its value as an integer."""
    return int(np.float64(value).view(np.int64))


def from_bits(bits: int) -> np.float64:
    """Return the number of which ``to_bits`` returned the bits."""
    found: np.float64 = np.int64(bits).view(np.float64)
    return found


def scaled_extent(extent: int, scale: Any) -> int:
    """Return an extent times a scale, both of float32, rounded down, as ONNX Runtime does: 5 times 2.6 is 13."""
    return int(np.floor(np.float32(extent) * np.float32(scale)))


def quotient(left: int, right: int) -> int:
    """Return a quotient of integers, rounded towards zero."""
    found = abs(left) // abs(right)
    return found if (left < 0) == (right < 0) else -found


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "quotient": quotient,
    "min": min,
    "max": max,
    "index": lambda one, other: 0,
    "positive": lambda one, _: int(one > 0),
    "<": lambda one, other: int(one < other),
    "==": lambda one, other: int(one == other),
    "float32": lambda one, _: np.float32(one),
    "float64": lambda one, _: np.float64(one),
    "float32 of bits": lambda one, _: np.float32(from_bits(one)),
    "float64 of bits": lambda one, _: from_bits(one),
    "bits": lambda one, _: to_bits(one),
    "minimum": np.minimum,
    "maximum": np.maximum,
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": np.true_divide,
    "negate": lambda one, _: -one,
    "absolute": lambda one, _: abs(one),
    "square root": lambda one, _: np.sqrt(one),
    "floor": lambda one, _: np.floor(one),
    "ceil": lambda one, _: np.ceil(one),
    "round": lambda one, _: np.rint(one),
    "truncate": lambda one, _: int(one),
    "scaled": scaled_extent,
}
"""By name. What is of floating-point numbers is what IEEE 754 defines to the last bit, so that a size gives what
folding gives. An operation of one operand gets 0 as the other one."""
