"""Every operation of ``operations/expression.py`` in numpy, with ONNX's results: NaN, infinities, integers.

Floating operations keep their operands' element type (float16 is computed in float32 and rounded once); integer
division rounds towards zero, and by zero gives 0. Parameters follow the operand: ``selu`` alpha, gamma;
``hard_sigmoid`` alpha, beta; ``clip`` low, high; ``shrink`` lambd, bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.graph.types import Array

Operation = Callable[..., Any]


def _div(a: Array, b: Array) -> Any:
    if np.issubdtype(a.dtype, np.floating):
        return np.divide(a, b)
    quotient = np.floor_divide(a, b)
    if np.issubdtype(a.dtype, np.unsignedinteger):
        return quotient
    inexact = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0)) & (b != 0)
    return (quotient + inexact).astype(a.dtype)


def _pow(a: Array, b: Array) -> Any:
    if np.issubdtype(a.dtype, np.floating):
        return np.power(a, b).astype(a.dtype)
    far = np.where(a == 1, a, 0)
    if np.issubdtype(a.dtype, np.signedinteger):
        far = np.where(a == -1, np.where(b & 1 != 0, a, 1), far)
    return np.where((b < 0) | (b > 63), far, np.power(a, np.clip(b, 0, 63)))


def _erf(x: Array) -> Array:
    flat = np.fromiter(map(math.erf, x.reshape(-1).tolist()), np.float64, x.size)
    return flat.reshape(x.shape).astype(x.dtype)


def _sigmoid(x: Array) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype)


def _softplus(x: Array) -> Any:
    return np.logaddexp(x.dtype.type(0), x)


def _gelu(x: Array) -> Any:
    return x * (x.dtype.type(0.5) * (1 + _erf(x * x.dtype.type(math.sqrt(0.5)))))


def _gelu_tanh(x: Array) -> Any:
    kind = x.dtype.type
    inner = kind(math.sqrt(2 / math.pi)) * (x + kind(0.044715) * x * x * x)
    return kind(0.5) * x * (1 + np.tanh(inner))


def _elu(x: Array, alpha: Array) -> Any:
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


def _celu(x: Array, alpha: Array) -> Any:
    return np.maximum(x, 0) + np.minimum(0, alpha * np.expm1(x / alpha))


def _selu(x: Array, alpha: Array, gamma: Array) -> Any:
    return gamma * np.where(x <= 0, alpha * np.expm1(np.minimum(x, 0)), x)


def _shrink(x: Array, lambd: Array, bias: Array) -> Any:
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, x.dtype.type(0)))


def _clip(x: Array, low: Array, high: Array) -> Any:
    """Limit numbers as ONNX defines it: a bound that is NaN is none, and NaN stays."""
    x = np.where(x < low, low, x)
    return np.where(x > high, high, x)


def _floor_div(a: Array, b: Array) -> Any:
    return np.floor(np.divide(a, b)) if np.issubdtype(a.dtype, np.floating) else np.floor_divide(a, b)


def _whole(function: Operation) -> Operation:
    """Return a function that rounds floats and leaves integers as they are; numpy's goes through float64."""
    return lambda x: function(x) if np.issubdtype(x.dtype, np.floating) else x


def _hard_sigmoid(x: Array, alpha: Array, beta: Array) -> Any:
    return np.maximum(0, np.minimum(1, alpha * x + beta))


def _hard_swish(x: Array) -> Any:
    return x * np.maximum(0, np.minimum(1, x * x.dtype.type(1 / 6) + x.dtype.type(0.5)))


def _reciprocal(x: Array) -> Any:
    return _div(np.ones_like(x), x)


def _rsqrt(x: Array) -> Any:
    return np.divide(x.dtype.type(1), np.sqrt(x))


def _sign(x: Array) -> Any:
    return np.where(x == 0, x, np.sign(x))  # a zero keeps its own


def _is_inf(x: Array) -> Any:
    return np.isinf(x)


OPERATORS: dict[str, Operation] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _div, "pow": _pow, "mod": np.remainder,
    "fmod": np.fmod, "max": np.maximum, "min": np.minimum, "neg": np.negative, "abs": np.abs, "sign": _sign,
    "reciprocal": _reciprocal, "square": np.square, "sqrt": np.sqrt, "rsqrt": _rsqrt, "floor_div": _floor_div,
    "squared_difference": lambda a, b: np.square(a - b),
    "floor": _whole(np.floor), "ceil": _whole(np.ceil), "round": _whole(np.rint), "trunc": _whole(np.trunc),
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "erf": _erf, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "sinh": np.sinh,
    "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "relu": lambda x: np.where(x < 0, x.dtype.type(0), x), "sigmoid": _sigmoid, "softplus": _softplus,
    "softsign": lambda x: x / (1 + np.abs(x)), "mish": lambda x: x * np.tanh(_softplus(x)), "gelu": _gelu,
    "gelu_tanh": _gelu_tanh, "silu": lambda x: x * _sigmoid(x), "hard_swish": _hard_swish,
    "leaky_relu": lambda x, alpha: np.where(x < 0, x * alpha, x), "elu": _elu, "celu": _celu, "selu": _selu,
    "hard_sigmoid": _hard_sigmoid, "thresholded_relu": lambda x, alpha: np.where(x > alpha, x, x.dtype.type(0)),
    "prelu": lambda x, slope: np.where(x < 0, x * slope, x),
    "clip": _clip, "shrink": _shrink,
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor,
    "not": np.logical_not, "is_nan": np.isnan, "is_inf": _is_inf, "is_finite": np.isfinite, "where": np.where,
    "bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor, "bit_not": np.invert,
    "shift_left": np.left_shift, "shift_right": np.right_shift,
}  # fmt: skip
"""Each operation's implementation; operands are arrays of one element type."""

PREDICATES = frozenset(
    [
        "equal",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
        "and",
        "or",
        "xor",
        "not",
        "is_nan",
        "is_inf",
        "is_finite",
    ]
)
"""Operations that yield truth values."""


def apply(name: str, *operands: Array) -> Array:
    """Return one operation applied to arrays that broadcast together.

    The result has the last operand's element type, except that ``PREDICATES`` give bool.
    """
    kind = operands[-1].dtype
    if any(operand.dtype == np.float16 for operand in operands):
        operands = tuple(each.astype(np.float32) if each.dtype == np.float16 else each for each in operands)
    with np.errstate(all="ignore"):
        found = np.asarray(OPERATORS[name](*operands))
        return found if name in PREDICATES else found.astype(kind, copy=False)


def cast(value: Array, dtype: str) -> Array:
    """Convert as ONNX's Cast does: floats to integers towards zero, NaN and anything but 0 to true.

    Floats outside an integer type's range, and NaN, are open in ONNX; here they become what kernels make of them on
    every machine, see docs/concepts/operators.md.
    """
    with np.errstate(all="ignore"):
        if dtype == "bool":
            return np.asarray(value != 0)
        target = np.dtype(dtype)
        if np.issubdtype(value.dtype, np.floating) and np.issubdtype(target, np.integer):
            return _to_integer(value, target)
        if target == np.float16 and value.dtype != np.float16:
            value = value.astype(np.float32)
        return value.astype(target)


def _to_integer(value: Array, target: np.dtype[Any]) -> Array:
    bits = max(8 * target.itemsize, 32)
    kind, half = np.dtype(f"int{bits}"), 2.0 ** (bits - 1)
    value = value.astype(np.float32) if value.dtype == np.float16 else value
    upper = (value >= half) if target in (np.uint32, np.uint64) else np.zeros(value.shape, bool)
    value = np.where(upper, value - value.dtype.type(half), value)
    inside = np.abs(value) < half
    signed = np.where(inside, np.where(inside, value, 0).astype(kind), np.iinfo(kind).min)
    return np.asarray(signed ^ np.where(upper, np.iinfo(kind).min, 0)).astype(target)
