"""What an expression gives for numbers known now: lowering asks whether unused lanes of channel blocks stay finite."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from opbuild.operations.expression import Expression, children

GREATEST = float(np.finfo(np.float32).max)


def evaluate_scalar(expression: Expression, args: Sequence[float]) -> float:
    """Return the value of an expression for one element, nearly: computed in float64, not in the operands' types.

    Args:
        expression: What to evaluate.
        args: What ``("arg", i)`` stands for.

    Returns:
        The value; NaN too for what can not be known here (a user-defined operator, an accumulator), and infinity for
        what float32 can not hold.
    """
    head = expression[0]
    if head == "arg":
        return float(args[expression[1]])
    if head == "const":
        return float(expression[2])
    if head in ("acc", "user"):
        return math.nan
    operands = [evaluate_scalar(child, args) for child in children(expression)]
    if head == "cast":
        return _cast(operands[0], expression[1])
    function = FUNCTIONS.get(head)
    if function is None:
        return math.nan
    with np.errstate(all="ignore"):
        value = float(function(*(np.float64(operand) for operand in operands)))
    return value if abs(value) <= GREATEST or math.isnan(value) else math.copysign(math.inf, value)


def _cast(value: float, dtype: str) -> float:
    if dtype == "bool":
        return float(value != 0)
    return value if dtype.startswith("float") else float(np.trunc(value))


def _sigmoid(x: float) -> float:
    return float(1.0 / (1.0 + np.exp(-np.float64(x))))


def _softplus(x: float) -> float:
    return float(np.logaddexp(0.0, x))


def _elu(x: float, alpha: float) -> float:
    return float(x if x > 0 else alpha * np.expm1(x))


FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floor_div": lambda a, b: np.floor(a / b),
    "pow": np.power,
    "mod": np.mod,
    "fmod": np.fmod,
    "max": np.maximum,
    "min": np.minimum,
    "squared_difference": lambda a, b: (a - b) ** 2,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "reciprocal": lambda x: 1.0 / x,
    "square": np.square,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "erf": math.erf,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "relu": lambda x: np.maximum(x, 0.0),
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "softsign": lambda x: x / (1.0 + abs(x)),
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "gelu": lambda x: 0.5 * x * (1.0 + math.erf(x / math.sqrt(2.0))),
    "gelu_tanh": lambda x: 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x * _sigmoid(x),
    "hard_swish": lambda x: x * np.clip(x / 6.0 + 0.5, 0.0, 1.0),
    "leaky_relu": lambda x, alpha: x if x > 0 else alpha * x,
    "prelu": lambda x, slope: x if x > 0 else slope * x,
    "elu": _elu,
    "celu": lambda x, alpha: x if x > 0 else alpha * np.expm1(x / alpha),
    "selu": lambda x, alpha, gamma: gamma * _elu(x, alpha),
    "hard_sigmoid": lambda x, alpha, beta: np.clip(alpha * x + beta, 0.0, 1.0),
    "thresholded_relu": lambda x, alpha: x if x > alpha else 0.0,
    "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "shrink": lambda x, lambd, bias: x + bias if x < -lambd else x - bias if x > lambd else 0.0,
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
    "xor": lambda a, b: bool(a) != bool(b),
    "not": lambda x: not x,
    "is_nan": np.isnan,
    "is_inf": np.isinf,
    "is_finite": np.isfinite,
    "where": lambda condition, a, b: a if condition else b,
}
"""Every operation but those on bits."""
