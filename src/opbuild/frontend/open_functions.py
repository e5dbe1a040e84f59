"""Operators on single numbers that are open; see ``open_values``."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from opbuild.graph.extents import SymbolicExtent
from opbuild.graph.symbolic_numbers import (
    Real,
    both,
    chosen,
    either,
    greater,
    is_equal,
    is_less,
    is_real,
    lesser,
    negated,
    quotient,
    real,
    truncated,
)

MOST_FACTORS = 4
"""The greatest exponent of a power that is multiplied out."""


def held(value: Any, dtype: str) -> Any:
    """Return a result that its type holds, which is kept as a condition."""
    if isinstance(value, SymbolicExtent) and dtype != "bool":
        limits = np.iinfo(dtype)
        return value if int(limits.min) <= value <= int(limits.max) else int(value)
    return value


def cast(elements: Sequence[Any], dtype: str) -> list[Any] | None:
    """Return numbers as those of another type; None if it is not one of those that stay open."""
    if dtype == "bool":
        return [negated(is_equal(each, 0)) for each in elements]
    if dtype in ("float32", "float64"):
        return [real(dtype, each) for each in elements]
    if dtype not in ("int32", "int64"):
        return None
    found = [truncated(each) if is_real(each) else each for each in elements]
    if not all(-(2**31) <= each < 2**31 for each in found if dtype == "int32"):
        return list(np.array([int(each) for each in found], np.int64).astype(np.int32).tolist())
    return found


def _arithmetic(name: str, of_integers: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda one, other: real(name, one, other) if is_real(one) or is_real(other) else of_integers(one, other)


def _alone(name: str, of_integer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda one: real(name, one) if is_real(one) else of_integer(one)


def _folded(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda *values: reduce(function, values)


def _less(one: Any, other: Any, *, or_equal: bool = False) -> Any:
    return negated(is_less(other, one)) if or_equal else is_less(one, other)


def _swapped(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda one, other: function(other, one)


def _power(one: Any, other: Any) -> Any:
    """Return a power of an integer; one of which the exponent is known and small."""
    if is_real(one) or not isinstance(other, int) or not 0 <= other <= MOST_FACTORS:
        raise NotImplementedError
    return reduce(operator.mul, [one] * other, 1)


def _remainder(left: Any, right: Any) -> Any:
    return left % right


_add, _multiply = _arithmetic("add", operator.add), _arithmetic("multiply", operator.mul)
_at_most = partial(_less, or_equal=True)

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": _add, "Sub": _arithmetic("subtract", operator.sub), "Mul": _multiply, "Sum": _folded(_add),
    "Div": _arithmetic("divide", quotient), "Mod": _remainder, "Pow": _power,
    "Neg": _alone("negate", operator.neg), "Abs": _alone("absolute", lambda one: greater(one, -one)),
    "Sqrt": partial(real, "square root"), "Floor": partial(real, "floor"), "Ceil": partial(real, "ceil"),
    "Round": partial(real, "round"), "Reciprocal": lambda one: real("divide", type_of(one)(1), one),
    "Max": _folded(greater), "Min": _folded(lesser), "Equal": is_equal, "Less": is_less, "LessOrEqual": _at_most,
    "Greater": _swapped(is_less), "GreaterOrEqual": _swapped(_at_most), "Where": chosen,
    "And": both, "Or": either, "Not": negated,
    "Xor": lambda one, other: either(both(one, negated(other)), both(negated(one), other)),
}  # fmt: skip
"""What is applied element by element."""

REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "ReduceProd": operator.mul, "ReduceSum": operator.add, "ReduceMax": greater, "ReduceMin": lesser,
}  # fmt: skip
"""Operations that join all elements; of integers, for which the order does not matter."""


def type_of(value: Any) -> Any:
    """Return numpy's type of a floating-point number."""
    return type(value.value if isinstance(value, Real) else value)
