"""Integers that follow from sizes: what SymInts become, numbers or open extents."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{
        f"sym.{name}": getattr(operator, name)
        for name in ("add", "sub", "mul", "floordiv", "mod", "neg", "eq", "ne", "lt", "le", "gt", "ge", "pow")
    },
    "sym.sym_max": max,
    "sym.sym_min": min,
    "sym.sym_not": operator.not_,
    "sym.sym_sum": sum,
    "aten.sym_size.int": lambda value, axis: value.shape[axis],
    "aten.sym_numel.default": lambda value: prod(value.shape),
}
"""What is evaluated while a program is bound to sizes, by the step's target."""
