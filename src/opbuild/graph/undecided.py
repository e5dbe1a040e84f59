"""Decisions that are left to the size: the lesser of two numbers, whether they are equal, and results of these.

Whoever asks with Python's operators gets the answer of the size at hand, which is kept as a condition. Here the answer
is a number of its own, 0 or 1, unless it is the same at each size; it decides only where somebody asks for its truth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opbuild.graph.extents import SymbolicExtent
from opbuild.graph.number_operations import OPERATIONS
from opbuild.graph.reals import is_real, owner_of, polynomial_of, real, value_of


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
