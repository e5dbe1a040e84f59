"""Derivatives of the elementwise operations: beside each operation's formula, the gradient of each operand.

A formula gets a library, the gradient of the result, the result, and the operands. They have Python's operators; the
library has every operation by its name (``f.exp(x)``). Where a function has a corner, it is torch's choice: 0 for
``abs`` at 0 and for ``relu`` there, half for each of two equal numbers of which the greater or smaller is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Derivative = Callable[..., Any]

Derivatives = tuple[Derivative | None, ...]
"""One for each operand; None where nothing flows back."""

ROOT_HALF, NORMAL = math.sqrt(0.5), 1 / math.sqrt(2 * math.pi)


def _extreme(beats: str) -> Derivatives:
    def of(first: bool) -> Derivative:
        def derivative(f: Any, dy: Any, y: Any, a: Any, b: Any) -> Any:
            own, other = (a, b) if first else (b, a)
            return f.where(f.equal(a, b), dy * 0.5, f.where(getattr(f, beats)(other, own), 0.0, dy))

        return derivative

    return of(True), of(False)


def _power_of_exponent(f: Any, dy: Any, y: Any, x: Any, e: Any) -> Any:
    """Return 0 for a base of 0 with an exponent from 0 on, where the logarithm has none."""
    return f.where(f.equal(x, 0.0), 0.0, dy * y * f.log(f.where(f.equal(x, 0.0), x + 1.0, x)))


def _gelu(f: Any, dy: Any, y: Any, x: Any) -> Any:
    return dy * (0.5 * (1.0 + f.erf(x * ROOT_HALF)) + x * (NORMAL * f.exp(-0.5 * f.square(x))))


def _gelu_tanh(f: Any, dy: Any, y: Any, x: Any) -> Any:
    factor, squared = math.sqrt(2 / math.pi), f.square(x)
    t = f.tanh(factor * (x + 0.044715 * (x * squared)))
    inner = factor * (1.0 + (3 * 0.044715) * squared)
    return dy * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - f.square(t)) * inner)


def _silu(f: Any, dy: Any, y: Any, x: Any) -> Any:
    gate = f.sigmoid(x)
    return dy * (gate * (1.0 + x * (1.0 - gate)))


def _mish(f: Any, dy: Any, y: Any, x: Any) -> Any:
    t = f.tanh(f.softplus(x))
    return dy * (t + x * f.sigmoid(x) * (1.0 - f.square(t)))


def _hard_swish(f: Any, dy: Any, y: Any, x: Any) -> Any:
    rising = f.where(f.less(x, 3.0), dy * (x * (1 / 3) + 0.5), dy)
    return f.where(f.greater(x, -3.0), rising, 0.0)


def _hard_sigmoid(f: Any, dy: Any, y: Any, x: Any, alpha: Any, beta: Any) -> Any:
    inner = alpha * x + beta
    return f.where(f.greater(inner, 0.0), f.where(f.less(inner, 1.0), dy * alpha, 0.0), 0.0)


def _swiglu_of_gate(f: Any, dy: Any, y: Any, gate: Any, value: Any, alpha: Any) -> Any:
    s = f.sigmoid(alpha * gate)
    return dy * value * s * (1.0 + alpha * gate * (1.0 - s))


def _swiglu_of_alpha(f: Any, dy: Any, y: Any, gate: Any, value: Any, alpha: Any) -> Any:
    s = f.sigmoid(alpha * gate)
    return dy * value * f.square(gate) * (s * (1.0 - s))


def _leaky(f: Any, dy: Any, y: Any, x: Any, slope: Any) -> Any:
    return f.where(f.greater(x, 0.0), dy, dy * slope)


def _exponential(outer: Derivative, inner: Derivative) -> Derivative:
    """Return the derivative of a function that is ``outer`` above 0 and an exponential below."""

    def derivative(f: Any, dy: Any, y: Any, x: Any, *parameters: Any) -> Any:
        below = f.where(f.greater(x, 0.0), 0.0, x)  # no infinity above, which the choice would not take away
        return f.where(f.greater(x, 0.0), outer(f, dy, *parameters), inner(f, dy, below, *parameters))

    return derivative


_elu = _exponential(lambda f, dy, alpha: dy, lambda f, dy, x, alpha: dy * alpha * f.exp(x))
_celu = _exponential(lambda f, dy, alpha: dy, lambda f, dy, x, alpha: dy * f.exp(x / alpha))
_selu = _exponential(
    lambda f, dy, alpha, gamma: dy * gamma, lambda f, dy, x, alpha, gamma: dy * gamma * alpha * f.exp(x)
)


def _first(function: Derivative, others: int = 0) -> Derivatives:
    return (function, *(None,) * others)


DERIVATIVES: dict[str, Derivatives] = {
    "add": (lambda f, dy, y, a, b: dy, lambda f, dy, y, a, b: dy),
    "sub": (lambda f, dy, y, a, b: dy, lambda f, dy, y, a, b: -dy),
    "mul": (lambda f, dy, y, a, b: dy * b, lambda f, dy, y, a, b: dy * a),
    "div": (lambda f, dy, y, a, b: dy / b, lambda f, dy, y, a, b: -(dy * y) / b),
    "pow": (
        lambda f, dy, y, x, e: f.where(f.equal(e, 0.0), 0.0, dy * (e * f.pow(x, e - 1.0))),
        _power_of_exponent,
    ),
    "mod": (lambda f, dy, y, a, b: dy, lambda f, dy, y, a, b: -dy * f.floor(a / b)),
    "fmod": (lambda f, dy, y, a, b: dy, lambda f, dy, y, a, b: -dy * f.trunc(a / b)),
    "max": _extreme("greater"),
    "min": _extreme("less"),
    "neg": _first(lambda f, dy, y, x: -dy),
    "abs": _first(lambda f, dy, y, x: dy * f.sign(x)),
    "reciprocal": _first(lambda f, dy, y, x: -dy * f.square(y)),
    "square": _first(lambda f, dy, y, x: dy * (2.0 * x)),
    "sqrt": _first(lambda f, dy, y, x: dy / (2.0 * y)),
    "rsqrt": _first(lambda f, dy, y, x: dy * (-0.5 * (y * f.square(y)))),
    "squared_difference": (lambda f, dy, y, a, b: dy * (2.0 * (a - b)), lambda f, dy, y, a, b: dy * (2.0 * (b - a))),
    "exp": _first(lambda f, dy, y, x: dy * y),
    "expm1": _first(lambda f, dy, y, x: dy * (y + 1.0)),
    "log": _first(lambda f, dy, y, x: dy / x),
    "log1p": _first(lambda f, dy, y, x: dy / (x + 1.0)),
    "erf": _first(lambda f, dy, y, x: dy * ((2 / math.sqrt(math.pi)) * f.exp(-f.square(x)))),
    "sin": _first(lambda f, dy, y, x: dy * f.cos(x)),
    "cos": _first(lambda f, dy, y, x: -dy * f.sin(x)),
    "tan": _first(lambda f, dy, y, x: dy * (1.0 + f.square(y))),
    "asin": _first(lambda f, dy, y, x: dy * f.rsqrt(1.0 - f.square(x))),
    "acos": _first(lambda f, dy, y, x: -dy * f.rsqrt(1.0 - f.square(x))),
    "atan": _first(lambda f, dy, y, x: dy / (1.0 + f.square(x))),
    "atan2": (
        lambda f, dy, y, a, b: dy * b / (f.square(a) + f.square(b)),
        lambda f, dy, y, a, b: -dy * a / (f.square(a) + f.square(b)),
    ),
    "sinh": _first(lambda f, dy, y, x: dy * f.cosh(x)),
    "cosh": _first(lambda f, dy, y, x: dy * f.sinh(x)),
    "tanh": _first(lambda f, dy, y, x: dy * (1.0 - f.square(y))),
    "asinh": _first(lambda f, dy, y, x: dy * f.rsqrt(f.square(x) + 1.0)),
    "acosh": _first(lambda f, dy, y, x: dy * f.rsqrt(f.square(x) - 1.0)),
    "atanh": _first(lambda f, dy, y, x: dy / (1.0 - f.square(x))),
    "relu": _first(lambda f, dy, y, x: f.where(f.less_equal(x, 0.0), 0.0, dy)),
    "sigmoid": _first(lambda f, dy, y, x: dy * (y * (1.0 - y))),
    "softplus": _first(lambda f, dy, y, x: dy * f.sigmoid(x)),
    "softsign": _first(lambda f, dy, y, x: dy / f.square(1.0 + f.abs(x))),
    "mish": _first(_mish),
    "gelu": _first(_gelu),
    "gelu_tanh": _first(_gelu_tanh),
    "silu": _first(_silu),
    "swiglu": (
        _swiglu_of_gate,
        lambda f, dy, y, gate, value, alpha: dy * gate * f.sigmoid(alpha * gate),
        _swiglu_of_alpha,
    ),
    "hard_swish": _first(_hard_swish),
    "leaky_relu": _first(_leaky, 1),
    "elu": _first(_elu, 1),
    "celu": _first(_celu, 1),
    "selu": _first(_selu, 2),
    "hard_sigmoid": _first(_hard_sigmoid, 2),
    "thresholded_relu": _first(lambda f, dy, y, x, alpha: f.where(f.greater(x, alpha), dy, 0.0), 1),
    "prelu": (_leaky, lambda f, dy, y, x, slope: f.where(f.greater(x, 0.0), 0.0, dy * x)),
    "clip": (
        lambda f, dy, y, x, low, high: f.where(f.less(x, low), 0.0, f.where(f.greater(x, high), 0.0, dy)),
        lambda f, dy, y, x, low, high: f.where(f.less(x, low), dy, 0.0),
        lambda f, dy, y, x, low, high: f.where(f.greater(x, high), dy, 0.0),
    ),
    "shrink": _first(lambda f, dy, y, x, lambd, bias: f.where(f.greater(f.abs(x), lambd), dy, 0.0), 2),
    "where": (
        None,
        lambda f, dy, y, condition, a, b: f.where(condition, dy, 0.0),
        lambda f, dy, y, condition, a, b: f.where(condition, 0.0, dy),
    ),
}
"""Derivatives by operation."""

CONSTANT = frozenset((
    "sign", "floor", "ceil", "round", "trunc", "floor_div", "and", "or", "xor", "not", "bit_and", "bit_or", "bit_xor",
    "bit_not", "shift_left", "shift_right", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "is_nan", "is_inf", "is_finite",
))  # fmt: skip
"""Operations through which nothing flows back: they are constant almost everywhere, or not of floats."""
