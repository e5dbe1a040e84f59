"""Conversions between element types as Halide expressions, each one defined for every value.

C, LLVM and Halide leave a float that an integer type cannot hold open, and Halide takes the freedom: of a conversion
to a signed integer whose bits are read as unsigned, or that is made narrower, it makes one conversion to the last type
(``Simplify_Cast.cpp``), which differs for every negative number. So what the machine converts is always in range, and
its result is an operand of a ``select``, through which no conversion is merged with another.
"""

from __future__ import annotations

import math
from typing import Any

import halide as hl

from opbuild.backend.halide import mathematics as m
from opbuild.backend.halide.integers import settled

Expr = Any


def convert(x: Expr, wanted: Any) -> Expr:
    """Return a number as another type: floats to integers toward zero, integers to narrower ones by their low bits.

    Args:
        x: A number, no truth value.
        wanted: The type, no truth value either.
    """
    if x.type() == wanted:
        return x
    if m.is_narrow(x.type()):
        return convert(m.widened(x), wanted)
    if m.is_narrow(wanted):
        return m.narrowed(convert(x, m.FLOAT32), wanted)
    if not x.type().is_float():
        return settled(hl.cast(wanted, x))
    if wanted.is_float():
        return m.widen(x) if wanted == m.FLOAT64 else m.narrow(x)
    return settled(_to_integer(x, wanted))


def _to_integer(x: Expr, wanted: Any) -> Expr:
    """Return a float32 or float64 as an integer.

    What the type cannot hold is as on x86-64 before AVX-512, in numpy and in ONNX Runtime: out of the range of int32
    (of int64 for 64 bits), and for NaN, it is the least number there, and a narrower type has that one's low bits. An
    unsigned type of 32 or 64 bits holds negative numbers down to the least signed one as their two's complement; what
    is too great is 0.
    """
    bits = max(wanted.bits(), 32)
    if wanted.is_int() or wanted.bits() < 32:
        return hl.cast(wanted, _to_signed(x, bits))
    half = m.literal(x, 2.0 ** (bits - 1))
    upper = (x > half) | (x == half)  # not >=, which Halide makes true of NaN
    top = hl.cast(wanted, hl.u64(1 << (bits - 1)))
    return hl.reinterpret(wanted, _to_signed(hl.select(upper, x - half, x), bits)) ^ hl.select(
        upper, top, hl.cast(wanted, hl.u64(0))
    )


def _to_signed(x: Expr, bits: int) -> Expr:
    kind = hl.Int(bits)
    return hl.select(m.absolute(x) < m.literal(x, math.ldexp(1.0, bits - 1)), hl.cast(kind, x), kind.min())
