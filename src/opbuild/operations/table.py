"""The records of all elementwise operations, by name and by the ONNX operator that each is.

The precise formulas compute a float32 in float64 between limits beyond which the value is known: ``limited`` takes the
least and the greatest argument, then what the value is below and above.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from opbuild.operations.record import Cost, Formula, Kinds, Onnx, Operation


def _modulo(m: Any, a: Any, b: Any) -> Any:
    """Return the remainder with the sign of the divisor."""
    rest = m.remainder(a, b)
    return m.select((rest != m.zero(rest)) & ((rest < m.zero(rest)) != (b < m.zero(b))), rest + b, rest)


def _saturate(m: Any, x: Any, low: Any, high: Any) -> Any:
    """Return the nearest number from ``low`` to ``high``; NaN, which is greater than none, becomes ``low``."""
    x = m.select(x > low, x, low)
    return m.select(x < high, x, high)


_ARITHMETIC = (
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
"""Arithmetic and rounding.

Integers wrap; their quotient is rounded towards zero, and by zero it is 0. The greater and the smaller of two numbers
are NaN if either is.
"""

EXP_LOW, EXP_HIGH = -104.0, 88.72283172607422
"""Beyond these the exponential of a float32 rounds to 0 and to infinity."""

COSH_HIGH = 89.41598510742188
"""Above it the hyperbolic cosine rounds to infinity."""

NEAREST_ONE = 0.99999994
"""The greatest float32 below 1."""


def limited(name: str, *limits: float, **values: float | None) -> Formula:
    """Return the formula of a function computed in float64 between limits."""
    return lambda m, x: m.limited(getattr(m, name), x, *limits, **values)


def _smooth(
    name: str,
    arity: int,
    formula: Formula,
    precise: Formula,
    onnx: Onnx | str | None = None,
    numpy: Formula | None = None,
) -> Operation:
    return Operation(name, arity, formula, onnx=onnx, numpy=numpy, precise=precise, cost=Cost.HEAVY)


def _function(name: str, precise: Formula, onnx: str | None = None) -> Operation:
    return _smooth(name, 1, name, precise, onnx)


_FUNCTIONS = (
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
"""Exponentials, logarithms, the error function and trigonometry."""


def _relu(m: Any, x: Any) -> Any:
    return m.select(x < m.zero(x), m.zero(x), x)


def _softplus(m: Any, x: Any) -> Any:
    """Return ``log(1 + exp(x))`` without overflow."""
    return m.log1p(m.exp(m.negate(m.absolute(x)))) + _relu(m, x)


def _mish(m: Any, x: Any) -> Any:
    """Return ``x * tanh(softplus(x))``: with ``e = exp(x)`` the factor is ``(e e + 2 e) / (e e + 2 e + 2)``."""
    limit, two = m.literal(x, 20.0), m.literal(x, 2.0)
    e = m.exp(m.select(x > limit, limit, x))
    n = e * (e + two)
    return x * (n / (n + two))


def _gelu(m: Any, x: Any) -> Any:
    return x * m.normal(x)


def _gelu_tanh(m: Any, x: Any) -> Any:
    """Return ``x / 2 (1 + tanh(y))`` as ``x sigmoid(2 y)``, which is as fast and keeps the lower tail."""
    twice = m.literal(x, 2.0 * math.sqrt(2.0 / math.pi))
    return x * m.sigmoid(twice * (x + m.literal(x, 0.044715) * (x * x * x)))


def _celu(m: Any, x: Any, alpha: Any) -> Any:
    return m.select(x > m.zero(x), x, alpha * m.expm1(x / alpha))


def _celu_by_the_text(m: Any, x: Any, alpha: Any) -> Any:
    """Return celu by the standard's formula for an alpha of 0 too: NaN from 0 on."""
    return m.maximum(x, m.zero(x)) + m.minimum(m.zero(x), alpha * m.expm1(x / alpha))


def _precise_celu(m: Any, x: Any, alpha: Any) -> Any:
    scaled = m.bounded(m.wide(x, high=0.0) / m.wide(alpha), EXP_LOW, -EXP_LOW)
    return m.select(x < m.zero(x), m.rounded(m.wide(alpha) * m.expm1(scaled)), x)


def _precise_elu(m: Any, x: Any, factor: Any, positive: Any) -> Any:
    """Return ``factor * expm1(x)`` below 0, and ``positive`` from there on."""
    return m.select(x < m.zero(x), m.rounded(factor * m.expm1(m.wide(x, EXP_LOW, 0.0))), positive)


def _hard_sigmoid(m: Any, x: Any, alpha: Any, beta: Any) -> Any:
    return m.clip(alpha * x + beta, m.zero(x), m.one(x))


def _hard_swish(m: Any, x: Any) -> Any:
    return x * _hard_sigmoid(m, x, m.literal(x, 1.0 / 6.0), m.literal(x, 0.5))


def _thresholded(m: Any, x: Any, alpha: Any) -> Any:
    return m.select(x > alpha, x, m.zero(x))


def _shrink(m: Any, x: Any, lambd: Any, bias: Any) -> Any:
    return m.select(x < -lambd, x + bias, m.select(x > lambd, x - bias, m.zero(x)))


def _leaky(m: Any, x: Any, slope: Any) -> Any:
    return m.select(x < m.zero(x), m.multiply(slope, x), x)


def _swiglu(m: Any, gate: Any, value: Any, alpha: Any) -> Any:
    return gate * m.sigmoid(alpha * gate) * value


def _precise_swiglu(m: Any, gate: Any, value: Any, alpha: Any) -> Any:
    wide = m.widen(gate)
    scaled = m.widen(alpha) * wide
    # Below -300 the sigmoid is 0 beside any float32.
    weight = m.select(scaled < m.literal(scaled, -300.0), m.zero(scaled), m.sigmoid(m.bounded(scaled, -300.0, 300.0)))
    return m.narrow(wide * m.restore_nan(scaled, weight) * m.widen(value))


_GATE = {"below": -0.0, "above": None, "lowest": math.nan}
"""What a number times a gate is beyond its limits."""

_TANH = Onnx("Gelu", when=("approximate", "tanh", "none"))

_ACTIVATIONS = (
    Operation("relu", 1, _relu, "numbers", "Relu", cost=Cost.CHEAP, exact=True),
    _smooth("sigmoid", 1, "sigmoid", limited("sigmoid", EXP_LOW, 20.0, below=0.0, above=1.0), "Sigmoid"),
    _smooth("softplus", 1, _softplus, limited("softplus", EXP_LOW, 20.0, below=0.0, above=None), "Softplus"),
    Operation("softsign", 1, lambda m, x: x / (m.one(x) + m.absolute(x)), onnx="Softsign"),
    _smooth("mish", 1, _mish, limited("mish", -120.0, 100.0, **_GATE), "Mish"),
    _smooth("gelu", 1, _gelu, limited("gelu", -14.5, 14.5, **_GATE), "Gelu"),
    _smooth("gelu_tanh", 1, _gelu_tanh, limited("gelu_tanh", -20.0, 20.0, **_GATE), _TANH),
    _smooth("silu", 1, lambda m, x: x * m.sigmoid(x), limited("silu", -120.0, 120.0, **_GATE)),
    _smooth("swiglu", 3, _swiglu, _precise_swiglu, Onnx("SwiGLU", (("alpha", 1.0),))),
    Operation("hard_swish", 1, _hard_swish, onnx="HardSwish"),
    Operation("leaky_relu", 2, _leaky, onnx=Onnx("LeakyRelu", (("alpha", 0.01),)), cost=Cost.CHEAP),
    _smooth(
        "elu",
        2,
        lambda m, x, alpha: m.select(x < m.zero(x), alpha * m.expm1(x), x),
        lambda m, x, alpha: _precise_elu(m, x, m.wide(alpha), x),
        Onnx("Elu", (("alpha", 1.0),)),
    ),
    _smooth(
        "celu", 2, _celu, _precise_celu, Onnx("Celu", (("alpha", 1.0),), divisors=("alpha",)), numpy=_celu_by_the_text
    ),
    _smooth(
        "selu",
        3,
        lambda m, x, alpha, gamma: gamma * m.select(x > m.zero(x), x, alpha * m.expm1(x)),
        lambda m, x, alpha, gamma: _precise_elu(m, x, m.wide(gamma) * m.wide(alpha), gamma * x),
        Onnx("Selu", (("alpha", 1.6732631921768188), ("gamma", 1.0507010221481323))),
    ),
    Operation(
        "hard_sigmoid", 3, _hard_sigmoid, onnx=Onnx("HardSigmoid", (("alpha", 0.2), ("beta", 0.5))), cost=Cost.CHEAP
    ),
    Operation("thresholded_relu", 2, _thresholded, onnx=Onnx("ThresholdedRelu", (("alpha", 1.0),)), exact=True),
    Operation("prelu", 2, _leaky, "numbers", "PRelu"),
    Operation("clip", 3, "clip", "numbers", cost=Cost.CHEAP, exact=True),
    Operation("shrink", 3, _shrink, onnx=Onnx("Shrink", (("lambd", 0.5), ("bias", 0.0)))),
)
"""Activations: the plain ones, and those with parameters as further operands."""


def _where(m: Any, condition: Any, a: Any, b: Any) -> Any:
    return m.select(m.truth(condition), a, b)


def _predicate(name: str, arity: int, formula: Formula, kinds: Kinds, onnx: str | None = None, **own: Any) -> Operation:
    return Operation(name, arity, formula, kinds, onnx, predicate=True, **{"cost": Cost.CHEAP, **own})


_COMPARISONS = (
    _predicate("equal", 2, "equal", "any", "Equal"),
    _predicate("not_equal", 2, "not_equal", "any"),
    _predicate("less", 2, "less", "any", "Less"),
    _predicate("less_equal", 2, "less_equal", "any", "LessOrEqual"),
    _predicate("greater", 2, lambda m, a, b: m.less(b, a), "any", "Greater"),
    _predicate("greater_equal", 2, lambda m, a, b: m.less_equal(b, a), "any", "GreaterOrEqual"),
    _predicate("is_nan", 1, "is_nan", "numbers", "IsNaN", cost=Cost.ORDINARY),
    _predicate("is_inf", 1, "is_inf", "numbers", cost=Cost.ORDINARY),
    _predicate("is_finite", 1, "is_finite", "numbers", cost=Cost.ORDINARY),
    Operation("where", 3, _where, "any", "Where", exact=True, conditions=1, cost=Cost.CHEAP),
)
"""Comparisons, classes of numbers, and the choice between two values."""


_LOGIC = (
    _predicate("and", 2, lambda m, a, b: m.truth(a) & m.truth(b), "truth", "And", repeats=False),
    _predicate("or", 2, lambda m, a, b: m.truth(a) | m.truth(b), "truth", "Or", repeats=False),
    _predicate("xor", 2, lambda m, a, b: m.truth(a) != m.truth(b), "truth", "Xor", cost=Cost.ORDINARY, repeats=False),
    _predicate("not", 1, lambda m, x: ~m.truth(x), "truth", "Not"),
    Operation("bit_and", 2, lambda m, a, b: a & b, "integers", "BitwiseAnd", repeats=False),
    Operation("bit_or", 2, lambda m, a, b: a | b, "integers", "BitwiseOr", repeats=False),
    Operation("bit_xor", 2, lambda m, a, b: a ^ b, "integers", "BitwiseXor", repeats=False),
    Operation("bit_not", 1, lambda m, x: ~x, "integers", "BitwiseNot"),
    Operation("shift_left", 2, "shift_left", "integers", Onnx("BitShift", when=("direction", "LEFT", None))),
    Operation("shift_right", 2, "shift_right", "integers", Onnx("BitShift")),
)
"""Operations on truth values and on bits.

A shift by the width or more gives 0, or -1 for a negative number shifted right.
"""

OPERATIONS: dict[str, Operation] = {
    operation.name: operation for operation in (*_ARITHMETIC, *_FUNCTIONS, *_ACTIVATIONS, *_COMPARISONS, *_LOGIC)
}
"""Every operation by its name."""

BY_TYPE: dict[str, Operation] = {operation.op_type: operation for operation in OPERATIONS.values()}
"""Every operation by its type in domain ``opbuild``."""

_BY_ONNX: dict[str, list[tuple[Onnx, Operation]]] = {}
for _operation in OPERATIONS.values():
    _onnx = _operation.as_onnx
    if _onnx is not None:
        _BY_ONNX.setdefault(_onnx.name, []).append((_onnx, _operation))

ONNX_TYPES = tuple(_BY_ONNX)
"""The types of ONNX operators that are an operation."""


def of_onnx(op_type: str, attrs: Mapping[str, Any]) -> tuple[Onnx, Operation] | None:
    """Return the operation that an ONNX operator with these attributes is, and how; None if it is none."""
    found = [(onnx, operation) for onnx, operation in _BY_ONNX.get(op_type, ()) if onnx.fits(attrs)]
    return max(found, key=lambda each: each[0].when is not None) if found else None
