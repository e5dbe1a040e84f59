"""Integers that follow from sizes: SymInts as numbers or open extents."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

_BITS = 64
"""Of the integers that sizes lead to: a product of products, or a power, would fill the memory."""


def _of_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes no texts and lists, which some operators of Python's repeat, and stays small."""

    def call(*args: Any) -> Any:
        if any(isinstance(each, (str, bytes, list, tuple, dict)) for each in args):
            raise TypeError(f"{function.__name__} is of numbers")
        found = function(*args)
        if isinstance(found, int) and found.bit_length() > _BITS:
            raise OverflowError(f"a size is beyond {_BITS} bits")
        return found

    return call


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and exponent * base.bit_length() > 2 * _BITS:
        raise OverflowError(f"a size is beyond {_BITS} bits")
    return base**exponent


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{
        f"sym.{name}": _of_numbers(getattr(operator, name))
        for name in ("add", "sub", "mul", "floordiv", "mod", "neg", "eq", "ne", "lt", "le", "gt", "ge")
    },
    "sym.pow": _of_numbers(_power),
    "sym.sym_max": _of_numbers(max),
    "sym.sym_min": _of_numbers(min),
    "sym.sym_not": operator.not_,
    "sym.sym_sum": sum,
    "aten.sym_size.int": lambda value, axis: value.shape[axis],
    "aten.sym_numel.default": lambda value: prod(value.shape),
}
"""What is evaluated while a program is bound to sizes, by the step's target."""
