"""Arithmetic and rounding.

Integers wrap; their quotient is rounded towards zero, and by zero it is 0. The greater and the smaller of two numbers
are NaN if either is.
"""

from __future__ import annotations

from typing import Any

from opbuild.operations.record import Cost, Onnx, Operation


def _modulo(m: Any, a: Any, b: Any) -> Any:
    """Return the remainder with the sign of the divisor."""
    rest = m.remainder(a, b)
    return m.select((rest != m.zero(rest)) & ((rest < m.zero(rest)) != (b < m.zero(b))), rest + b, rest)


def _saturate(m: Any, x: Any, low: Any, high: Any) -> Any:
    """Return the nearest number from ``low`` to ``high``; NaN, which is greater than none, becomes ``low``."""
    x = m.select(x > low, x, low)
    return m.select(x < high, x, high)


OPERATIONS = (
    Operation("add", 2, "add", "numbers", "Add", commutative=True, repeats=False, cost=Cost.CHEAP),
    Operation("sub", 2, "subtract", "numbers", "Sub", repeats=False, cost=Cost.CHEAP),
    Operation("mul", 2, "multiply", "numbers", "Mul", commutative=True, repeats=False, cost=Cost.CHEAP),
    Operation("div", 2, "quotient", "numbers", "Div", repeats=False),
    Operation("pow", 2, "power", "numbers", cost=Cost.HEAVY),
    # A quotient of two float64 has up to 2,098 bits, which a kernel would take a hundred steps for.
    Operation(
        "mod", 2, _modulo, "numbers", Onnx("Mod", when=("fmod", 0, 0)), numpy="modulo", cost=Cost.HEAVY, float64=False
    ),
    Operation("fmod", 2, "remainder", "numbers", Onnx("Mod"), cost=Cost.HEAVY, float64=False),
    Operation("max", 2, "maximum", "numbers", Onnx("Max", variadic=True), cost=Cost.CHEAP, exact=True),
    Operation("min", 2, "minimum", "numbers", Onnx("Min", variadic=True), cost=Cost.CHEAP, exact=True),
    Operation("neg", 1, "negate", "numbers", "Neg", cost=Cost.CHEAP, exact=True),
    Operation("abs", 1, "absolute", "numbers", "Abs", cost=Cost.CHEAP, exact=True),
    Operation("sign", 1, "sign", "numbers", "Sign", exact=True),
    Operation("reciprocal", 1, lambda m, x: m.quotient(m.one(x), x), "numbers", "Reciprocal"),
    Operation("square", 1, lambda m, x: m.multiply(x, x), "numbers", cost=Cost.CHEAP),
    Operation("sqrt", 1, "sqrt", onnx="Sqrt"),
    Operation("rsqrt", 1, lambda m, x: m.quotient(m.one(x), m.sqrt(x))),
    Operation("floor_div", 2, "floor_quotient", "numbers"),
    Operation("squared_difference", 2, lambda m, a, b: m.multiply(m.subtract(a, b), m.subtract(a, b)), "numbers"),
    Operation("floor", 1, "floor", "numbers", "Floor", exact=True),
    Operation("ceil", 1, "ceil", "numbers", "Ceil", exact=True),
    Operation("round", 1, "round_to_even", "numbers", "Round", exact=True),
    Operation("trunc", 1, "trunc", "numbers", exact=True),
    Operation("saturate", 3, _saturate, cost=Cost.CHEAP),
)
