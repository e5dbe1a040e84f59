"""The post transforms of ``ai.onnx.ml``, which make results of scores, as ONNX's own operators."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from opbuild.frontend.rewriting import Rewriting
from opbuild.graph.graph_builder import Value

NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO, PROBIT = "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"

NAMES = (NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO, PROBIT)
"""The transforms, at the numbers that TreeEnsemble gives them."""

_ZERO = 1e-7
"""The greatest magnitude of a score that SOFTMAX_ZERO takes for 0; the text does not say, this is what runtimes do."""

_WINITZKI, _PI = 0.147, 3.14159
"""The constants of the inverse error function by logarithms, as runtimes have them, with which they compute PROBIT."""

_Number = Callable[[float], str]


def transformed(of: Rewriting, name: str, scores: str, dtype: str = "float32") -> str:
    """Return scores, a row of them for each row, after a post transform."""
    if name == NONE:
        return scores
    if name == LOGISTIC:
        return of("Sigmoid", scores)
    if name == SOFTMAX and dtype == "float32":
        return of("Softmax", scores, axis=-1)

    def number(value: float) -> str:
        return of.constant(np.array(value, dtype))

    if name == SOFTMAX:
        return _softmax(of, scores)
    least = float(np.finfo(dtype).min)
    return _softmax_zero(of, scores, number, least) if name == SOFTMAX_ZERO else _probit(of, scores, number)


def _softmax(of: Rewriting, scores: str) -> Value:
    """Write a softmax by steps, for a type of which it has no kernel."""
    axis = of.ints(-1)
    powers = of("Exp", of("Sub", scores, of("ReduceMax", scores, axis, keepdims=1)))
    return of("Div", powers, of("ReduceSum", powers, axis, keepdims=1))


def _softmax_zero(of: Rewriting, scores: str, number: _Number, least: float) -> Value:
    """Write a softmax in which scores of 0 have no part, nor those that are not numbers; both stay as they are."""
    axis = of.ints(-1)
    numbers = of("Where", of("IsNaN", scores), number(least), scores)
    greatest = of("ReduceMax", numbers, axis, keepdims=1)
    counts = of("Greater", of("Abs", scores), number(_ZERO))
    powers = of("Exp", of("Sub", scores, greatest))
    total = of("ReduceSum", of("Where", counts, powers, number(0)), axis, keepdims=1)
    others = of("Mul", scores, of("Exp", of("Neg", greatest)))
    return of("Div", of("Where", counts, powers, others), total)


def _probit(of: Rewriting, scores: str, number: _Number) -> Value:
    """Write the quantile of the normal distribution, nearly."""
    x = of("Sub", of("Mul", scores, number(2)), number(1))
    log = of("Log", of("Mul", of("Sub", number(1), x), of("Add", number(1), x)))
    half = of("Add", of("Mul", log, number(0.5)), number(2 / (_PI * _WINITZKI)))
    under = of("Sub", of("Mul", half, half), of("Mul", log, number(1 / _WINITZKI)))
    size = of("Sqrt", of("Sub", of("Sqrt", under), half))
    return of("Mul", of("Where", of("Less", x, number(0)), number(-sqrt(2)), number(sqrt(2))), size)
