"""Conversions between element types as Halide expressions, each one defined for every value.

C, LLVM and Halide leave a float that an integer type cannot hold open, and Halide takes the freedom: of a conversion
to a signed integer whose bits are read as unsigned, or that is made narrower, it makes one conversion to the last type
(``Simplify_Cast.cpp``), which differs for every negative number. So what the machine converts is always in range, and
its result is an operand of a ``select``, through which no conversion is merged with another.

The last step of quantisation, rounded, moved by the zero point and limited to a small integer type, is written by
``graph.quantization`` as four operations, each of them defined for every number. Together they take less:
what is limited first is no NaN, and so small that adding ``1.5 * 2**23`` leaves the nearest integer, of two the even
one, in the low bits of the sum. The zero point is added in the small type, which wraps to the right number because the
limits were moved by it (an epilogue of ``vrndscaleps`` and a conversion that is defined everywhere takes 16
instructions a vector, this one 7).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import halide as hl

from opbuild.backend.halide import mathematics as m
from opbuild.backend.halide.definition import TYPES
from opbuild.backend.halide.integers import settled
from opbuild.backend.halide.mathematics import FLOAT16, FLOAT32, ROUNDER, Expr, rounded
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import Expression, children


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


def round_result(desc: OpDesc, value: Any, index: tuple[Any, ...]) -> Any:
    """Return a float32 at ``index``, rounded if the attribute ``rounds`` names a type.

    The value becomes a function of its own, which Halide inlines: only the rounding need be strict about NaN. It is to
    be stored: F16C's conversions keep NaN and infinity, but the compiler may drop a question for them that follows.
    """
    if "rounds" not in desc.attrs:
        return value
    function = hl.Func("unrounded")
    function[index] = value
    number, kind = hl.Expr(function[index]), TYPES[desc.attrs["rounds"]]
    result = rounded(number, kind)
    if kind != FLOAT16:
        return result
    with_f16c = hl.target_has_feature(hl.TargetFeature.F16C)
    return hl.strict_float(hl.select(with_f16c, hl.cast(FLOAT32, hl.cast(FLOAT16, number)), result))


NARROW = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}
"""The small types, with their least and greatest numbers."""


@dataclass(frozen=True)
class Saturation:
    """The saturation of a rounded number to a small integer type.

    Attributes:
        value: The float32 that is rounded.
        zero_point: What is added to it, an integer; None for 0.
        low: The least number of the result.
        high: The greatest one.
    """

    value: Expression
    zero_point: Expression | None
    low: float
    high: float


def saturation(e: Expression) -> Saturation | None:
    """Return the saturation that ``e`` is: a rounded number limited to a small integer type; None if it is none."""
    if e[0] != "cast" or e[1] not in NARROW or e[2][0] != "saturate":
        return None
    value, *bounds = children(e[2])
    if any(bound[:2] != ("const", "float32") for bound in bounds):
        return None
    limits, (least, greatest) = [float(bound[2]) for bound in bounds], NARROW[e[1]]
    if not all(least <= limit <= greatest and limit.is_integer() for limit in limits):
        return None
    found = _rounded(value)
    return None if found is None else Saturation(*found, *limits)


def saturated(value: Expr, zero_point: Expr | None, found: Saturation, dtype: str) -> Expr:
    """Return the code of a saturation: of its compiled value and zero point, which is of the small type too."""
    kind = TYPES[dtype]
    bits = hl.UInt(kind.bits())
    move = hl.f32(0.0) if zero_point is None else hl.cast(hl.Float(32), zero_point)
    low, high = hl.f32(found.low) - move, hl.f32(found.high) - move
    value = hl.select(value > low, value, low)  # NaN is not greater
    value = hl.select(value < high, value, high)
    result = hl.cast(bits, hl.reinterpret(hl.UInt(32), value + hl.f32(ROUNDER)))
    result = result if zero_point is None else result + hl.reinterpret(bits, zero_point)
    return hl.reinterpret(kind, result)


def _rounded(e: Expression) -> tuple[Expression, Expression | None] | None:
    """Return the number that is rounded and, where one is added to that, the zero point."""
    if e[0] == "round":
        return e[1], None
    if e[0] != "add":
        return None
    for number, zero in (e[1:], e[:0:-1]):
        if number[0] == "round" and zero[0] == "cast" and zero[1] == "float32":
            return number[1], zero[2]
    return None
