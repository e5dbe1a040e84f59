"""The primitives of formulas for integers: they wrap, truncate and never trap.

Halide takes overflow of int32 and int64 for impossible, and the machine traps on a division by zero and on the least
number divided by -1. Arithmetic is therefore unsigned, and special divisors never reach a division.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl

Expr = Any


def _wrapping(function: Callable[..., Expr]) -> Callable[..., Expr]:
    def wrapped(*operands: Expr) -> Expr:
        kind = operands[0].type()
        unsigned = hl.UInt(kind.bits())
        return hl.reinterpret(kind, function(*(hl.reinterpret(unsigned, x) for x in operands)))

    return wrapped


def zero(like: Expr) -> Expr:
    """Return 0 of the same type as ``like``."""
    return hl.cast(like.type(), hl.i32(0))


def one(like: Expr) -> Expr:
    """Return 1 of the same type as ``like``."""
    return hl.cast(like.type(), hl.i32(1))


add = _wrapping(lambda a, b: a + b)
subtract = _wrapping(lambda a, b: a - b)
multiply = _wrapping(lambda a, b: a * b)
negate = _wrapping(lambda x: zero(x) - x)
select = hl.select


def settled(x: Expr) -> Expr:
    """Return a value; if it is an integer of 32 or 64 bits, one of whose making Halide knows nothing.

    Halide takes an operation and the one before it for one where no number overflows, and assumes that none does:
    ``(x + 1) / 2`` of uint64 becomes an average, ``sign(x << 2)`` of int32 the sign of ``x``. LLVM, which assumes
    nothing, sees that what is added here is 0.
    """
    kind = x.type()
    if kind.is_float() or kind.bits() < 32:
        return x
    return x ^ hl.reinterpret(kind, hl.f32(0.0) if kind.bits() == 32 else hl.f64(0.0))


def unsigned(x: Expr) -> Expr:
    """Return an integer's bits as an unsigned number."""
    return hl.reinterpret(hl.UInt(x.type().bits()), x)


def quotient(a: Expr, b: Expr) -> Expr:
    """Return the quotient, truncated; neither 0 nor -1 reaches the machine's division, which traps."""
    special = b == zero(b)
    result = zero(a)
    if b.type().is_int():
        minus = unsigned(b) == ~zero(unsigned(b))  # Halide refuses to compare the greatest number with -1
        result = hl.select(minus, negate(a), result)
        special = special | minus
    return hl.select(special, result, hl.div_round_to_zero(a, hl.select(special, one(b), b)))


def remainder(a: Expr, b: Expr) -> Expr:
    """Return the remainder with the sign of the dividend."""
    return hl.select(b == zero(b), zero(a), subtract(a, multiply(quotient(a, b), b)))


def floor_quotient(a: Expr, b: Expr) -> Expr:
    """Return the quotient rounded down."""
    rest = remainder(a, b)
    lower = (rest != zero(rest)) & ((rest < zero(rest)) != (b < zero(b)))
    truncated = quotient(a, b)
    return hl.select(lower, truncated - one(truncated), truncated)


def power(a: Expr, b: Expr) -> Expr:
    """Return the wrapping power; exponents from 64 on count only for the bases -1, 0 and 1; negative ones truncate."""
    base = square = unsigned(a)
    unit, minus = one(base), zero(base) - one(base)
    result = unit
    for bit in range(min(6, a.type().bits() - 1)):
        taken = (b & hl.cast(b.type(), hl.i32(1 << bit))) != zero(b)
        result = hl.select(taken, result * square, result)
        square = square * square
    far, value = b >= hl.cast(b.type(), hl.i32(64)), hl.select(base == unit, unit, zero(base))
    if a.type().is_int():
        odd = (b & one(b)) != zero(b)
        value = hl.select(base == minus, hl.select(odd, minus, unit), value)
        far = far | (b < zero(b))
    return hl.reinterpret(a.type(), hl.select(far, value, result))


def sign(x: Expr) -> Expr:
    """Return -1, 0 or 1."""
    positive = hl.select(x > zero(x), one(x), zero(x))
    return hl.select(x < zero(x), -one(x), positive) if x.type().is_int() else positive


def absolute(x: Expr) -> Expr:
    """Return the magnitude; of the least number itself."""
    return hl.select(x < zero(x), negate(x), x) if x.type().is_int() else x


def maximum(a: Expr, b: Expr) -> Expr:
    """Return the greater of two numbers."""
    return hl.select(a > b, a, b)


def minimum(a: Expr, b: Expr) -> Expr:
    """Return the smaller of two numbers."""
    return hl.select(a < b, a, b)


def clip(x: Expr, low: Expr, high: Expr) -> Expr:
    """Return ``min(max(x, low), high)``."""
    return hl.min(hl.max(x, low), high)


def floor(x: Expr) -> Expr:
    """Return the number itself, as all that rounds."""
    return x


ceil = round_to_even = trunc = floor


def is_nan(x: Expr) -> Expr:
    """Return that no integer is NaN, nor infinite."""
    return hl.cast(hl.UInt(1), hl.u8(0))


is_inf = is_nan


def is_finite(x: Expr) -> Expr:
    """Return that every integer is finite."""
    return hl.cast(hl.UInt(1), hl.u8(1))


def shift_left(a: Expr, b: Expr) -> Expr:
    """Return ``a << b``; 0 for a shift by the width or more."""
    far, amount = _shifted(a, b)
    return hl.select(far, zero(a), hl.reinterpret(a.type(), unsigned(a) << amount))


def shift_right(a: Expr, b: Expr) -> Expr:
    """Return ``a >> b``; 0 for a shift by the width or more, of a negative number -1."""
    far, amount = _shifted(a, b)
    beyond = hl.select(a < zero(a), -one(a), zero(a)) if a.type().is_int() else zero(a)
    return hl.select(far, beyond, a >> amount)


def _shifted(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Return whether ``b`` is no place in ``a``, and the number of places that may be shifted."""
    bits = a.type().bits()
    far = (b < zero(b)) | (b >= hl.cast(b.type(), hl.i32(bits)))
    return far, hl.cast(hl.UInt(bits), hl.select(far, zero(b), b))
