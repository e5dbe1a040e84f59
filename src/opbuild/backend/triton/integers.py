"""The primitives of formulas for integers: they wrap and truncate, and no special divisor reaches a division."""

from __future__ import annotations

from operator import add, mul, sub
from operator import neg as negate

from opbuild.backend.triton.types import language_type
from opbuild.backend.triton.values import Scalar, select

__all__ = ["add", "multiply", "negate", "select", "subtract"]
multiply, subtract = mul, sub


def _number(like: Scalar, value: int) -> Scalar:
    return like.text.line(f"tl.full((), {value}, {language_type(like.dtype)})", like.dtype)


def zero(like: Scalar) -> Scalar:
    """Return 0 of the same type as ``like``."""
    return _number(like, 0)


def one(like: Scalar) -> Scalar:
    """Return 1 of the same type as ``like``."""
    return _number(like, 1)


def _is_signed(x: Scalar) -> bool:
    return x.dtype.startswith("int")


def quotient(a: Scalar, b: Scalar) -> Scalar:
    """Return the quotient, truncated; by 0 it is 0."""
    special, result = b == zero(b), zero(a)
    if _is_signed(b):
        minus = b == _number(b, -1)
        result, special = select(minus, negate(a), result), special | minus
    return select(special, result, a // select(special, one(b), b))


def remainder(a: Scalar, b: Scalar) -> Scalar:
    """Return the remainder with the sign of the dividend; by 0 it is 0."""
    return select(b == zero(b), zero(a), a - quotient(a, b) * b)


def floor_quotient(a: Scalar, b: Scalar) -> Scalar:
    """Return the quotient rounded down."""
    rest, truncated = remainder(a, b), quotient(a, b)
    lower = (rest != zero(rest)) & ((rest < zero(rest)) != (b < zero(b)))
    return select(lower, truncated - one(truncated), truncated)


def power(a: Scalar, b: Scalar) -> Scalar:
    """Return the wrapping power; exponents from 64 on count only for the bases -1, 0 and 1; negative ones truncate."""
    unit, result, square = one(a), one(a), a
    bits = int(a.dtype.removeprefix("u").removeprefix("int"))
    for bit in range(min(6, bits - 1)):
        taken = (b & _number(b, 1 << bit)) != zero(b)
        result, square = select(taken, result * square, result), square * square
    far, value = b >= _number(b, 64), select(a == unit, unit, zero(a))
    if _is_signed(a):
        minus = _number(a, -1)
        odd = (b & one(b)) != zero(b)
        value = select(a == minus, select(odd, minus, unit), value)
        far = far | (b < zero(b))
    return select(far, value, result)


def sign(x: Scalar) -> Scalar:
    """Return -1, 0 or 1."""
    positive = select(x > zero(x), one(x), zero(x))
    return select(x < zero(x), _number(x, -1), positive) if _is_signed(x) else positive


def absolute(x: Scalar) -> Scalar:
    """Return the magnitude; of the least number itself."""
    return select(x < zero(x), negate(x), x) if _is_signed(x) else x


def maximum(a: Scalar, b: Scalar) -> Scalar:
    """Return the greater of two numbers."""
    return select(a > b, a, b)


def minimum(a: Scalar, b: Scalar) -> Scalar:
    """Return the smaller of two numbers."""
    return select(a < b, a, b)


def clip(x: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """Return ``min(max(x, low), high)``."""
    return minimum(maximum(x, low), high)


def floor(x: Scalar) -> Scalar:
    """Return the number itself, as all that rounds."""
    return x


ceil = round_to_even = trunc = floor


def is_nan(x: Scalar) -> Scalar:
    """Return that no integer is NaN, nor infinite."""
    return x.text.line(f"{x} != {x}", "bool")


is_inf = is_nan


def is_finite(x: Scalar) -> Scalar:
    """Return that every integer is finite."""
    return x.text.line(f"{x} == {x}", "bool")


def shift_left(a: Scalar, b: Scalar) -> Scalar:
    """Return ``a << b``; 0 for a shift by the width or more."""
    far, amount = _shifted(a, b)
    return select(far, zero(a), a << amount)


def shift_right(a: Scalar, b: Scalar) -> Scalar:
    """Return ``a >> b``; 0 for a shift by the width or more, of a negative number -1."""
    far, amount = _shifted(a, b)
    beyond = select(a < zero(a), _number(a, -1), zero(a)) if _is_signed(a) else zero(a)
    return select(far, beyond, a >> amount)


def _shifted(a: Scalar, b: Scalar) -> tuple[Scalar, Scalar]:
    """Return whether ``b`` is no place in ``a``, and the number of places that may be shifted."""
    bits = int(a.dtype.removeprefix("u").removeprefix("int"))
    far = b >= _number(b, bits)
    if _is_signed(b):
        far = far | (b < zero(b))
    return far, select(far, zero(b), b)
