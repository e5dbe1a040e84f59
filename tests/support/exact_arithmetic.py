"""Every operation of expressions whose result is exact or rounded once, in numpy: what kernels must give bit for bit.

Written from the definitions in ``operations/expression.py`` and ``docs/concepts/operators.md``, and not with the
project's own code: integers wrap, truncate and never trap, float16 is computed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FLOATS = ("float16", "float32", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def wrapped(numbers: list[int], like: Array) -> Array:
    """Return whole numbers of any size in an array's integer type, their low bits alone."""
    bits = 8 * like.itemsize
    return np.array([number % 2**bits for number in numbers], np.uint64).astype(like.dtype)


def each(function: Callable[..., int]) -> Callable[..., Array]:
    """Return a function of Python's whole numbers as one of arrays."""
    return lambda *arrays: wrapped(
        [function(*numbers) for numbers in zip(*(array.tolist() for array in arrays), strict=True)], arrays[0]
    )


def quotient(a: int, b: int) -> int:
    """Return a quotient truncated, 0 for a division by zero."""
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def power(a: int, b: int) -> int:
    """Return a power; negative exponents truncate, 0 to one of them is 0, and so is any other number beyond 63."""
    if 0 <= b < 64:
        return a**b
    return {1: 1, -1: 1 if b % 2 == 0 else -1}.get(a, 0)


def shifted(array: Array, amounts: Array, left: bool) -> Array:
    """Return shifted integers; by the width or more, or by less than 0, everything goes."""
    bits = 8 * array.itemsize

    def one(a: int, b: int) -> int:
        if not 0 <= b < bits:
            return 0 if left or a >= 0 else -1
        return a << b if left else a >> b

    return each(one)(array, amounts)


INTEGER: dict[str, Callable[..., Any]] = {
    "add": each(lambda a, b: a + b), "sub": each(lambda a, b: a - b), "mul": each(lambda a, b: a * b),
    "div": each(quotient), "fmod": each(lambda a, b: 0 if b == 0 else a - b * quotient(a, b)),
    "mod": each(lambda a, b: 0 if b == 0 else a % b), "floor_div": each(lambda a, b: 0 if b == 0 else a // b),
    "pow": each(power), "max": np.maximum, "min": np.minimum, "neg": each(lambda a: -a), "abs": each(abs),
    "sign": each(lambda a: (a > 0) - (a < 0)), "square": each(lambda a: a * a),
    "squared_difference": each(lambda a, b: (a - b) ** 2), "reciprocal": each(lambda a: quotient(1, a)),
    "relu": each(lambda a: max(a, 0)), "prelu": each(lambda a, s: a * s if a < 0 else a),
    "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), lambda x: x),
    "is_nan": lambda x: np.zeros(x.shape, bool), "is_inf": lambda x: np.zeros(x.shape, bool),
    "is_finite": lambda x: np.ones(x.shape, bool),
    "bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor, "bit_not": np.invert,
    "shift_left": lambda a, b: shifted(a, b, True), "shift_right": lambda a, b: shifted(a, b, False),
}  # fmt: skip
"""Operations on integers."""


def greater(a: Array, b: Array) -> Array:
    """Return the greater one, NaN if either is; of two zeros the second."""
    return np.where((a > b) | np.isnan(a), a, b)


def smaller(a: Array, b: Array) -> Array:
    """Return the smaller one, NaN if either is; of two zeros the second."""
    return np.where((a < b) | np.isnan(a), a, b)


def clipped(x: Array, low: Any, high: Any) -> Array:
    """Return ``x`` between bounds; a zero keeps its sign."""
    x = np.where(x < low, low, x)
    return np.where(x > high, high, x)


def hard_sigmoid(x: Array, alpha: Any, beta: Any) -> Array:
    """Return a line between 0 and 1."""
    return clipped(alpha * x + beta, x.dtype.type(0), x.dtype.type(1))


def sign(x: Array) -> Array:
    """Return 1, -1, or what is neither: zero with its sign, NaN."""
    return np.where(x > 0, x.dtype.type(1), np.where(x < 0, x.dtype.type(-1), x))


def shrunk(x: Array, lambd: Array, bias: Array) -> Array:
    """Return numbers moved towards zero; what is near it becomes zero, and so does NaN."""
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, x.dtype.type(0)))


FLOAT: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "abs": np.abs,
    "max": greater, "min": smaller, "clip": clipped, "sign": sign, "reciprocal": lambda x: x.dtype.type(1) / x,
    "square": lambda x: x * x, "squared_difference": lambda a, b: (a - b) * (a - b), "sqrt": np.sqrt,
    "rsqrt": lambda x: x.dtype.type(1) / np.sqrt(x), "floor_div": lambda a, b: np.floor(a / b), "floor": np.floor,
    "ceil": np.ceil, "round": np.rint, "trunc": np.trunc, "relu": lambda x: np.where(x < 0, x.dtype.type(0), x),
    "softsign": lambda x: x / (x.dtype.type(1) + np.abs(x)),
    "leaky_relu": lambda x, alpha: np.where(x < 0, alpha * x, x),
    "prelu": lambda x, slope: np.where(x < 0, slope * x, x), "shrink": shrunk, "hard_sigmoid": hard_sigmoid,
    "hard_swish": lambda x: x * hard_sigmoid(x, x.dtype.type(1 / 6), x.dtype.type(0.5)),
    "thresholded_relu": lambda x, alpha: np.where(x > alpha, x, x.dtype.type(0)),
    "is_nan": np.isnan, "is_inf": np.isinf, "is_finite": np.isfinite,
}  # fmt: skip
"""Operations on floats; float16 comes as float32."""

ANY: dict[str, Callable[..., Any]] = {
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "where": np.where, "and": np.logical_and, "or": np.logical_or,
    "xor": np.logical_xor, "not": np.logical_not,
}  # fmt: skip
"""Operations on operands of any type."""


def is_exact(name: str, dtype: str) -> bool:
    """Return whether an operation's result on operands of a type is here."""
    return name in ANY or name in (FLOAT if dtype in FLOATS else INTEGER)


def apply(name: str, operands: list[Array]) -> Array:
    """Return an operation's result, in the type of its operands or bool."""
    kind = operands[-1].dtype
    if name in ANY:
        return np.asarray(ANY[name](*operands))
    table = FLOAT if kind.kind == "f" else INTEGER
    wide = [operand.astype(np.float32) if kind == np.float16 else operand for operand in operands]
    result = np.asarray(table[name](*wide))
    return result if result.dtype == np.bool_ else result.astype(kind)


def cast(x: Array, dtype: str) -> Array:
    """Return an array as another type, as ``docs/concepts/operators.md`` defines it for every value."""
    target = np.dtype(dtype)
    if dtype == "bool":
        return x != 0
    if x.dtype.kind == "f" and target.kind in "iu":
        return wrapped([_whole(value, max(8 * target.itemsize, 32), dtype) for value in x.tolist()], np.zeros(0, dtype))
    if dtype == "float16" and x.dtype != np.float16:
        return x.astype(np.float32).astype(np.float16)
    return x.astype(target)


def _whole(value: float, bits: int, dtype: str) -> int:
    half = 2.0 ** (bits - 1)
    if dtype in ("uint32", "uint64") and value >= half:
        return int(value) if value < 2 * half else 0
    return int(value) if abs(value) < half else int(-half)
