"""Exponentials, logarithms, the error function and trigonometry.

The precise formulas compute a float32 in float64 between limits beyond which the value is known: ``limited`` takes the
least and the greatest argument, then what the value is below and above.
"""

from __future__ import annotations

import math

from opbuild.operations.record import Cost, Formula, Operation

EXP_LOW, EXP_HIGH = -104.0, 88.72283172607422
"""Beyond these the exponential of a float32 rounds to 0 and to infinity."""

COSH_HIGH = 89.41598510742188
"""Above it the hyperbolic cosine rounds to infinity."""

NEAREST_ONE = 0.99999994
"""The greatest float32 below 1."""


def limited(name: str, *limits: float, **values: float | None) -> Formula:
    """Return the formula of a function computed in float64 between limits."""
    return lambda m, x: m.limited(getattr(m, name), x, *limits, **values)


def _function(name: str, precise: Formula, onnx: str | None = None) -> Operation:
    return Operation(name, 1, name, onnx=onnx, precise=precise, cost=Cost.HEAVY)


OPERATIONS = (
    _function("exp", limited("exp", EXP_LOW, EXP_HIGH, below=0.0), "Exp"),
    _function("expm1", limited("expm1", EXP_LOW, EXP_HIGH, below=-1.0)),
    _function("log", lambda m, x: m.pole(x, 0.0, m.limited(m.log, x, low=2.0**-149)), "Log"),
    _function("log1p", lambda m, x: m.pole(x, -1.0, m.limited(m.log1p, x, low=-NEAREST_ONE))),
    _function("erf", limited("erf", -4.0, 4.0, below=-1.0, above=1.0), "Erf"),
    _function("sin", limited("sin", above=math.nan), "Sin"),
    _function("cos", limited("cos", above=math.nan), "Cos"),
    _function("tan", limited("tan", above=math.nan), "Tan"),
    _function("asin", limited("asin", -1.0, 1.0, above=math.nan), "Asin"),
    _function("acos", limited("acos", -1.0, 1.0, above=math.nan), "Acos"),
    _function("atan", limited("atan", below=-math.pi / 2, above=math.pi / 2), "Atan"),
    Operation("atan2", 2, "atan2", cost=Cost.HEAVY),
    _function("sinh", limited("sinh", -COSH_HIGH, COSH_HIGH, below=-math.inf), "Sinh"),
    _function("cosh", limited("cosh", -COSH_HIGH, COSH_HIGH, below=math.inf), "Cosh"),
    _function("tanh", limited("tanh", -10.0, 10.0, below=-1.0, above=1.0), "Tanh"),
    _function("asinh", limited("asinh", below=-math.inf), "Asinh"),
    _function("acosh", limited("acosh", low=1.0), "Acosh"),
    _function(
        "atanh", lambda m, x: m.poles(x, 1.0, m.limited(m.atanh, x, -NEAREST_ONE, NEAREST_ONE, above=math.nan)), "Atanh"
    ),
)
