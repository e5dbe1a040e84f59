"""Polynomials of integers over numbered variables, and the questions that they answer."""

from __future__ import annotations

from math import gcd
from typing import Literal

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
        operation: ``input``; ``index``, the number of a repetition; or one of ``number_operations.OPERATIONS``.
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
            others = _without(monomial, divisor)
            if others is None or factor % by:
                rest[monomial] = factor
            else:
                quotient[others] = factor // by
        return _ordered(quotient), _ordered(rest)
    (lead, by), (other, factor) = right[-1], left[-1]
    others = _without(other, lead)
    if others is not None and not factor % by and len(left) % len(right) == 0:
        quotient = {others: factor // by}
        for monomial, each in left[:-1]:
            cofactor = _without(monomial, lead)
            if cofactor is not None and not each % by:
                quotient[cofactor] = each // by
        found = _ordered(quotient)
        if multiplied(found, right) == left:
            return found, ()
    return (), left


def _without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
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
                others = _without(term[0], lead)
                if others is not None:
                    return term, others, instead
    return None


def reduced(polynomial: Polynomial, *, either_sign: bool) -> Polynomial:
    """Return the simplest polynomial that has the same sign everywhere; with ``either_sign``, or the other one."""
    divisor = gcd(*(factor for _, factor in polynomial)) or 1
    if either_sign and polynomial and polynomial[-1][1] < 0:
        divisor = -divisor
    return tuple((monomial, factor // divisor) for monomial, factor in polynomial)
