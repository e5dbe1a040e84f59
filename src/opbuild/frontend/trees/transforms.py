"""What is made of scores: the post transforms of ``ai.onnx.ml`` as ONNX's own operators."""

from __future__ import annotations

from math import sqrt

import numpy as np

from opbuild.frontend.rewriting import Rewriting

NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO, PROBIT = "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"

NAMES = (NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO, PROBIT)
"""The transforms, at the numbers that TreeEnsemble gives them."""

_ZERO = 1e-7
"""The greatest magnitude of a score that SOFTMAX_ZERO takes for 0; the text does not say, this is what runtimes do."""

_WINITZKI = 0.147
"""The constant of the inverse error function by logarithms, with which runtimes compute PROBIT."""


def transformed(of: Rewriting, name: str, scores: str, dtype: str) -> str:
    """Return scores, a row of them for each row, after a post transform."""
    if name == NONE:
        return scores
    if name == LOGISTIC:
        return of("Sigmoid", scores)
    if name == SOFTMAX:
        return of("Softmax", scores, axis=-1) if dtype == "float32" else _softmax(of, scores)

    def number(value: float) -> str:
        return of.constant(np.array(value, dtype))

    return _softmax_zero(of, scores, number(_ZERO), number(0)) if name == SOFTMAX_ZERO else _probit(of, scores, dtype)


def _softmax(of: Rewriting, scores: str) -> str:
    """A softmax by steps, for a type of which it has no kernel."""
    axis = of.ints(-1)
    powers = of("Exp", of("Sub", scores, of("ReduceMax", scores, axis, keepdims=1)))
    return of("Div", powers, of("ReduceSum", powers, axis, keepdims=1))


def _softmax_zero(of: Rewriting, scores: str, least: str, zero: str) -> str:
    """A softmax of the scores that are not 0; those that are stay."""
    axis = of.ints(-1)
    greatest = of("ReduceMax", scores, axis, keepdims=1)
    counts = of("Greater", of("Abs", scores), least)
    powers = of("Where", counts, of("Exp", of("Sub", scores, greatest)), zero)
    others = of("Mul", scores, of("Exp", of("Neg", greatest)))
    return of("Div", of("Where", counts, powers, others), of("ReduceSum", powers, axis, keepdims=1))


def _probit(of: Rewriting, scores: str, dtype: str) -> str:
    """The quantile of the normal distribution, nearly."""

    def number(value: float) -> str:
        return of.constant(np.array(value, dtype))

    x = of("Sub", of("Mul", scores, number(2)), number(1))
    log = of("Log", of("Mul", of("Sub", number(1), x), of("Add", number(1), x)))
    half = of("Add", of("Mul", log, number(0.5)), number(2 / (3.14159 * _WINITZKI)))
    under = of("Sub", of("Mul", half, half), of("Mul", log, number(1 / _WINITZKI)))
    size = of("Sqrt", of("Sub", of("Sqrt", under), half))
    signed = of("Where", of("Less", x, number(0)), of("Neg", size), size)
    return of("Mul", signed, number(sqrt(2)))
