"""Operations on integers as Halide expressions: they wrap, truncate and never trap.

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


def _zero(x: Expr) -> Expr:
    return hl.cast(x.type(), hl.i32(0))


def _one(x: Expr) -> Expr:
    return hl.cast(x.type(), hl.i32(1))


_negate = _wrapping(lambda x: _zero(x) - x)
_subtract = _wrapping(lambda a, b: a - b)
_multiply = _wrapping(lambda a, b: a * b)


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


def _divide(a: Expr, b: Expr) -> Expr:
    """Return the quotient, truncated; neither 0 nor -1 reaches the machine's division, which traps."""
    special = b == _zero(b)
    result = _zero(a)
    if b.type().is_int():
        minus = unsigned(b) == ~_zero(unsigned(b))  # Halide refuses to compare the greatest number with -1
        result = hl.select(minus, _negate(a), result)
        special = special | minus
    return hl.select(special, result, hl.div_round_to_zero(a, hl.select(special, _one(b), b)))


def _truncated_remainder(a: Expr, b: Expr) -> Expr:
    return hl.select(b == _zero(b), _zero(a), _subtract(a, _multiply(_divide(a, b), b)))


def _floored_remainder(a: Expr, b: Expr) -> Expr:
    """Return the remainder with the sign of the divisor."""
    rest = _truncated_remainder(a, b)
    return hl.select((rest != _zero(rest)) & ((rest < _zero(rest)) != (b < _zero(b))), rest + b, rest)


def _floored_quotient(a: Expr, b: Expr) -> Expr:
    rest = _truncated_remainder(a, b)
    lower = (rest != _zero(rest)) & ((rest < _zero(rest)) != (b < _zero(b)))
    quotient = _divide(a, b)
    return hl.select(lower, quotient - _one(quotient), quotient)


def _integer_power(a: Expr, b: Expr) -> Expr:
    """Return the wrapping power; exponents from 64 on count only for the bases -1, 0 and 1; negative ones truncate."""
    base = square = unsigned(a)
    one, zero, minus = _one(base), _zero(base), _zero(base) - _one(base)
    result = one
    for bit in range(min(6, a.type().bits() - 1)):
        taken = (b & hl.cast(b.type(), hl.i32(1 << bit))) != _zero(b)
        result = hl.select(taken, result * square, result)
        square = square * square
    far, unit = b >= hl.cast(b.type(), hl.i32(64)), hl.select(base == one, one, zero)
    if a.type().is_int():
        odd = (b & _one(b)) != _zero(b)
        unit = hl.select(base == minus, hl.select(odd, minus, one), unit)
        far = far | (b < _zero(b))
    return hl.reinterpret(a.type(), hl.select(far, unit, result))


def _sign(x: Expr) -> Expr:
    positive = hl.select(x > _zero(x), _one(x), _zero(x))
    return hl.select(x < _zero(x), -_one(x), positive) if x.type().is_int() else positive


def _absolute(x: Expr) -> Expr:
    return hl.select(x < _zero(x), _negate(x), x) if x.type().is_int() else x


def _shift(a: Expr, b: Expr, left: bool) -> Expr:
    bits = a.type().bits()
    far = (b < _zero(b)) | (b >= hl.cast(b.type(), hl.i32(bits)))
    amount = hl.cast(hl.UInt(bits), hl.select(far, _zero(b), b))
    beyond = _zero(a) if left or not a.type().is_int() else hl.select(a < _zero(a), -_one(a), _zero(a))
    moved = hl.reinterpret(a.type(), unsigned(a) << amount) if left else a >> amount
    return hl.select(far, beyond, moved)


def _always(_: Expr, value: bool) -> Expr:
    return hl.cast(hl.UInt(1), hl.u8(int(value)))


INTEGER: dict[str, Callable[..., Expr]] = {
    "add": _wrapping(lambda a, b: a + b),
    "sub": _subtract,
    "mul": _multiply,
    "div": _divide,
    "floor_div": _floored_quotient,
    "mod": _floored_remainder,
    "fmod": _truncated_remainder,
    "pow": _integer_power,
    "max": lambda a, b: hl.select(a > b, a, b),
    "min": lambda a, b: hl.select(a < b, a, b),
    "clip": lambda x, low, high: hl.min(hl.max(x, low), high),
    "neg": _negate,
    "abs": _absolute,
    "sign": _sign,
    "square": _wrapping(lambda x: x * x),
    "squared_difference": _wrapping(lambda a, b: (a - b) * (a - b)),
    "reciprocal": lambda x: _divide(_one(x), x),
    "relu": lambda x: hl.select(x < _zero(x), _zero(x), x),
    "prelu": lambda x, slope: hl.select(x < _zero(x), _multiply(x, slope), x),
    "floor": lambda x: x,
    "ceil": lambda x: x,
    "round": lambda x: x,
    "trunc": lambda x: x,
    "is_nan": lambda x: _always(x, False),
    "is_inf": lambda x: _always(x, False),
    "is_finite": lambda x: _always(x, True),
    "bit_and": lambda a, b: a & b,
    "bit_or": lambda a, b: a | b,
    "bit_xor": lambda a, b: a ^ b,
    "bit_not": lambda x: ~x,
    "shift_left": lambda a, b: _shift(a, b, True),
    "shift_right": lambda a, b: _shift(a, b, False),
}
"""Operations on integers."""
