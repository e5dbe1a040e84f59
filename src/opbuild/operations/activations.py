"""Activations: the plain ones, and those with parameters as further operands."""

from __future__ import annotations

import math
from typing import Any

from opbuild.operations.functions import EXP_LOW, limited
from opbuild.operations.record import Cost, Formula, Onnx, Operation


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


def _precise_swiglu(m: Any, gate: Any, value: Any, alpha: Any) -> Any:
    wide = m.widen(gate)
    scaled = m.widen(alpha) * wide
    # Below -300 the sigmoid is 0 beside any float32.
    weight = m.select(scaled < m.literal(scaled, -300.0), m.zero(scaled), m.sigmoid(m.bounded(scaled, -300.0, 300.0)))
    return m.narrow(wide * m.restore_nan(scaled, weight) * m.widen(value))


def _smooth(
    name: str,
    arity: int,
    formula: Formula,
    precise: Formula,
    onnx: Onnx | str | None = None,
    numpy: Formula | None = None,
) -> Operation:
    return Operation(name, arity, formula, onnx=onnx, numpy=numpy, precise=precise, cost=Cost.HEAVY)


_GATE = {"below": -0.0, "above": None, "lowest": math.nan}
"""What a number times a gate is beyond its limits."""

OPERATIONS = (
    Operation("relu", 1, _relu, "numbers", "Relu", cost=Cost.CHEAP, exact=True),
    _smooth("sigmoid", 1, "sigmoid", limited("sigmoid", EXP_LOW, 20.0, below=0.0, above=1.0), "Sigmoid"),
    _smooth("softplus", 1, _softplus, limited("softplus", EXP_LOW, 20.0, below=0.0, above=None), "Softplus"),
    Operation("softsign", 1, lambda m, x: x / (m.one(x) + m.absolute(x)), onnx="Softsign"),
    _smooth("mish", 1, _mish, limited("mish", -120.0, 100.0, **_GATE), "Mish"),
    _smooth("gelu", 1, _gelu, limited("gelu", -14.5, 14.5, **_GATE), "Gelu"),
    _smooth(
        "gelu_tanh",
        1,
        _gelu_tanh,
        limited("gelu_tanh", -20.0, 20.0, **_GATE),
        Onnx("Gelu", when=("approximate", "tanh", "none")),
    ),
    _smooth("silu", 1, lambda m, x: x * m.sigmoid(x), limited("silu", -120.0, 120.0, **_GATE)),
    Operation(
        "swiglu",
        3,
        lambda m, gate, value, alpha: gate * m.sigmoid(alpha * gate) * value,
        onnx=Onnx("SwiGLU", (("alpha", 1.0),)),
        precise=_precise_swiglu,
        cost=Cost.HEAVY,
    ),
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
