"""The primitives of formulas for float32 and float64, conversions, and comparisons and truth values of any type."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import add, sub
from operator import mul as multiply
from operator import neg as negate
from operator import truediv as quotient

from opbuild.backend.triton.types import language_type
from opbuild.backend.triton.values import Scalar, Text, select
from opbuild.dtypes import NARROW_FLOATS, is_float

__all__ = ["add", "multiply", "negate", "quotient", "select", "subtract"]
subtract = sub

# -- constants ---------------------------------------------------------------------------------------------------------


def constant(text: Text, dtype: str, value: str) -> Scalar:
    """Return a literal."""
    if dtype == "bool":
        return text.line(f"tl.full((), {int(value)}, tl.int32) != 0", "bool")
    if dtype in NARROW_FLOATS:
        return rounded(_float(text, "float32", float(value)), dtype)
    if is_float(dtype):
        return _float(text, dtype, float(value))
    return text.line(f"tl.full((), {int(value)}, {language_type(dtype)})", dtype)


def _float(text: Text, dtype: str, value: float) -> Scalar:
    """Return a literal; of -0.0 Triton makes 0."""
    if value == 0 and math.copysign(1.0, value) < 0:
        return -_float(text, dtype, 0.0)
    number = repr(value) if math.isfinite(value) else f'float("{value}")'
    return text.line(f"tl.full((), {number}, {language_type(dtype)})", dtype)


def literal(like: Scalar, value: float) -> Scalar:
    """Return a constant of the same type as ``like``."""
    return _float(like.text, like.dtype, value)


def zero(like: Scalar) -> Scalar:
    """Return 0 of the same type as ``like``."""
    return literal(like, 0.0)


def one(like: Scalar) -> Scalar:
    """Return 1 of the same type as ``like``."""
    return literal(like, 1.0)


# -- conversions -------------------------------------------------------------------------------------------------------


def loaded(x: Scalar) -> Scalar:
    """Return a value from memory as expressions have it."""
    if x.dtype == "bool":
        return x.text.line(f"{x} != 0", "bool")
    if x.dtype in NARROW_FLOATS:
        return x.text.line(f"{x}.to(tl.float32)", "float32").as_narrow(x.dtype)
    return x


def stored(x: Scalar) -> Scalar:
    """Return a value as memory holds it: a truth value as a byte of 0 or 1."""
    if x.dtype == "bool":
        return _as(x, "uint8")
    return _as(x, x.narrow) if x.narrow else x


def rounded(x: Scalar, narrow: str) -> Scalar:
    """Return a float32 rounded to a value of a type of 16 bits, ties to even."""
    return _as(_as(x, narrow), "float32").as_narrow(narrow)


def convert(x: Scalar, dtype: str) -> Scalar:
    """Return a value converted as ONNX's Cast does: floats to integers toward zero, whatever is not 0 to true."""
    if dtype in (x.dtype, x.narrow) and not (x.narrow and dtype == "float32"):
        return x
    if dtype == "bool":
        return truth(x)
    if dtype in NARROW_FLOATS:
        return rounded(x if x.dtype == "float32" else _as(x, "float32"), dtype)
    if is_float(x.dtype) and not is_float(dtype):
        return _to_integer(x, dtype)
    return Scalar(x.text, x.name, x.dtype) if x.dtype == dtype else _as(x, dtype)


def _as(x: Scalar, dtype: str) -> Scalar:
    return x.text.line(f"{x}.to({language_type(dtype)})", dtype)


def _to_integer(x: Scalar, dtype: str) -> Scalar:
    """Return a float as an integer; see ``operations.evaluation.cast`` for what the type cannot hold."""
    bits = max(32, int(dtype.removeprefix("u").removeprefix("int")))
    half = literal(x, 2.0 ** (bits - 1))
    if dtype not in ("uint32", "uint64"):
        return _as(_to_signed(x, bits), dtype) if dtype != f"int{bits}" else _to_signed(x, bits)
    upper = x >= half
    least = x.text.line(f"tl.full((), {-(2 ** (bits - 1))}, tl.int{bits})", f"int{bits}")
    nothing = x.text.line(f"tl.full((), 0, tl.int{bits})", f"int{bits}")
    return _as(_to_signed(select(upper, x - half, x), bits) ^ select(upper, least, nothing), dtype)


def _to_signed(x: Scalar, bits: int) -> Scalar:
    inside = absolute(x) < literal(x, 2.0 ** (bits - 1))
    least = x.text.line(f"tl.full((), {-(2 ** (bits - 1))}, tl.int{bits})", f"int{bits}")
    return select(inside, _as(select(inside, x, zero(x)), f"int{bits}"), least)


# -- functions ---------------------------------------------------------------------------------------------------------


def _function(name: str) -> Callable[..., Scalar]:
    def function(*operands: Scalar) -> Scalar:
        return operands[0].text.line(f"libdevice.{name}({', '.join(map(str, operands))})", operands[0].dtype)

    return function


exp, expm1, log, log1p, erf = map(_function, ("exp", "expm1", "log", "log1p", "erf"))
sin, cos, tan, asin, acos, atan, atan2 = map(_function, ("sin", "cos", "tan", "asin", "acos", "atan", "atan2"))
sinh, cosh, tanh, asinh, acosh, atanh = map(_function, ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"))
floor, ceil, round_to_even, trunc = map(_function, ("floor", "ceil", "rint", "trunc"))
remainder, power, normal = map(_function, ("fmod", "pow", "normcdf"))


def sqrt(x: Scalar) -> Scalar:
    """Return the square root, rounded once."""
    return x.text.line(f"libdevice.sqrt_rn({x})", x.dtype)


def sigmoid(x: Scalar) -> Scalar:
    """Return ``1 / (1 + exp(-x))``, accurate in the far tail too."""
    e = exp(-absolute(x))
    return select(x < zero(x), e, one(x)) / (one(x) + e)


def floor_quotient(a: Scalar, b: Scalar) -> Scalar:
    """Return ``a / b`` rounded down."""
    return floor(a / b)


def absolute(x: Scalar) -> Scalar:
    """Return the magnitude."""
    return x.text.line(f"tl.abs({x})", x.dtype)


def sign(x: Scalar) -> Scalar:
    """Return -1, 0 or 1; zeros and NaN stay."""
    return select(x > zero(x), one(x), select(x < zero(x), literal(x, -1.0), x))


def maximum(a: Scalar, b: Scalar) -> Scalar:
    """Return the greater of two numbers, NaN if either is NaN."""
    return select((a > b) | (a != a), a, b)  # noqa: PLR0124 - NaN alone is not itself


def minimum(a: Scalar, b: Scalar) -> Scalar:
    """Return the smaller of two numbers, NaN if either is NaN."""
    return select((a < b) | (a != a), a, b)  # noqa: PLR0124


def clip(x: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """Return ``min(max(x, low), high)``; NaN stays NaN, and a bound that is NaN is none."""
    x = select(x < low, low, x)
    return select(x > high, high, x)


def is_inf(x: Scalar) -> Scalar:
    """Return whether a number is infinite."""
    return absolute(x) == literal(x, math.inf)


def is_finite(x: Scalar) -> Scalar:
    """Return whether a number is neither infinite nor NaN."""
    return absolute(x) < literal(x, math.inf)


def is_nan(x: Scalar) -> Scalar:
    """Return whether it is no number."""
    return x != x  # noqa: PLR0124


# -- of any type -------------------------------------------------------------------------------------------------------


def truth(x: Scalar) -> Scalar:
    """Return whether a value is not 0."""
    return x if x.dtype == "bool" else x.text.line(f"{x} != 0", "bool")


def equal(a: Scalar, b: Scalar) -> Scalar:
    """Return whether two values are equal."""
    return _comparable(a) == _comparable(b)


def not_equal(a: Scalar, b: Scalar) -> Scalar:
    """Return whether two values differ."""
    return _comparable(a) != _comparable(b)


def less(a: Scalar, b: Scalar) -> Scalar:
    """Return whether ``a`` is less than ``b``."""
    return _comparable(a) < _comparable(b)


def less_equal(a: Scalar, b: Scalar) -> Scalar:
    """Return whether ``a`` is at most ``b``."""
    return _comparable(a) <= _comparable(b)


def _comparable(x: Scalar) -> Scalar:
    return _as(x, "uint8") if x.dtype == "bool" else x
