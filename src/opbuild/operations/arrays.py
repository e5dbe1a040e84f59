"""The primitives of formulas on numpy arrays, with ONNX's results: NaN, infinities, integers.

Operands are arrays of one element type. Integer division rounds towards zero, and by zero gives 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

add, subtract, multiply, negate, absolute = np.add, np.subtract, np.multiply, np.negative, np.absolute
maximum, minimum, modulo, remainder, select = np.maximum, np.minimum, np.remainder, np.fmod, np.where
sqrt, exp, expm1, log, log1p = np.sqrt, np.exp, np.expm1, np.log, np.log1p
sin, cos, tan, asin, acos, atan, atan2 = np.sin, np.cos, np.tan, np.arcsin, np.arccos, np.arctan, np.arctan2
sinh, cosh, tanh, asinh, acosh, atanh = np.sinh, np.cosh, np.tanh, np.arcsinh, np.arccosh, np.arctanh
equal, not_equal, less, less_equal = np.equal, np.not_equal, np.less, np.less_equal
is_nan, is_inf, is_finite = np.isnan, np.isinf, np.isfinite
shift_left, shift_right = np.left_shift, np.right_shift


def literal(like: Array, value: float) -> Any:
    """Return a constant of the same type as ``like``."""
    return like.dtype.type(value)


def zero(like: Array) -> Any:
    """Return 0 of the same type as ``like``."""
    return literal(like, 0)


def one(like: Array) -> Any:
    """Return 1 of the same type as ``like``."""
    return literal(like, 1)


def truth(x: Array) -> Any:
    """Return whether ``x`` is not 0."""
    return np.not_equal(x, 0)


def _whole(function: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """Return a function that rounds floats and leaves integers as they are; numpy's goes through float64."""
    return lambda x: function(x) if np.issubdtype(x.dtype, np.floating) else x


floor, ceil, round_to_even, trunc = map(_whole, (np.floor, np.ceil, np.rint, np.trunc))


def quotient(a: Array, b: Array) -> Any:
    """Return ``a / b``, of integers rounded towards zero."""
    if np.issubdtype(a.dtype, np.floating):
        return np.divide(a, b)
    rounded = np.floor_divide(a, b)
    if np.issubdtype(a.dtype, np.unsignedinteger):
        return rounded
    inexact = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0)) & (b != 0)
    return (rounded + inexact).astype(a.dtype)


def floor_quotient(a: Array, b: Array) -> Any:
    """Return ``a / b`` rounded down."""
    return np.floor(np.divide(a, b)) if np.issubdtype(a.dtype, np.floating) else np.floor_divide(a, b)


def power(a: Array, b: Array) -> Any:
    """Return ``a`` to the power of ``b``; of integers from an exponent of 64 on, and below 0, only of -1 and 1."""
    if np.issubdtype(a.dtype, np.floating):
        found = np.power(a, b)  # where all exponents are 0.5 it takes the root, NaN of -inf
        return np.where(np.isneginf(a) & (b == 0.5), np.inf, found).astype(a.dtype)
    far = np.where(a == 1, a, 0)
    if np.issubdtype(a.dtype, np.signedinteger):
        far = np.where(a == -1, np.where(b & 1 != 0, a, 1), far)
    return np.where((b < 0) | (b > 63), far, np.power(a, np.clip(b, 0, 63)))


def sigmoid(x: Array) -> Any:
    """Return ``1 / (1 + exp(-x))``, accurate in the far tail too."""
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, one(x)) / (one(x) + e)


def sign(x: Array) -> Any:
    """Return the sign as -1, 0 or 1; a zero keeps its own."""
    return np.where(x == 0, x, np.sign(x))


def clip(x: Array, low: Array, high: Array) -> Any:
    """Limit numbers as ONNX defines it: a bound that is NaN is none, and NaN stays."""
    x = np.where(x < low, low, x)
    return np.where(x > high, high, x)


def erf(x: Array) -> Any:
    """Return the error function."""
    return _each(math.erf, x)


def normal(x: Array) -> Any:
    """Return the normal distribution, accurate in the lower tail too."""
    return _each(lambda value: 0.5 * math.erfc(-value * math.sqrt(0.5)), x)


def _each(function: Callable[[float], float], x: Array) -> Any:
    x = np.asarray(x)
    flat = np.fromiter(map(function, x.reshape(-1).tolist()), np.float64, x.size)
    return flat.reshape(x.shape).astype(x.dtype)
