"""Types whose elements are codes in bytes: floats of 8 and 4 bits, integers of 4 and 2 bits.

A code becomes a float32, int8 or uint8, which have all of the type's numbers, and a float32 or an integer becomes a
code. All of it is done on bits: denormals count whatever the machine makes of them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import halide as hl

from opbuild.backend.halide import mathematics as m
from opbuild.dtypes import ROUND_MODES, UNSATURATED, stored_bits

Expr = Any
BYTE, UINT32 = hl.UInt(8), hl.UInt(32)


@dataclass(frozen=True)
class _Format:
    """A float of at most 8 bits: a sign, an exponent with a bias, ``mantissa`` bits.

    Attributes:
        mantissa: Bits of the mantissa.
        bias: What is added to the exponent.
        greatest: The code of the greatest finite number.
        beyond: The code of what is greater, unless it saturates.
        nan: The code of NaN.
        sign: The bit of the sign.
        one_zero: Whether the code of -0 is NaN's, and -0 becomes 0.
        saturates: Whether there is neither infinity nor NaN.
    """

    mantissa: int
    bias: int
    greatest: int
    beyond: int
    nan: int
    sign: int = 0x80
    one_zero: bool = False
    saturates: bool = False


_FORMATS = {
    "float8_e4m3fn": _Format(3, 7, 0x7E, 0x7F, 0x7F),
    "float8_e4m3fnuz": _Format(3, 8, 0x7F, 0x80, 0x80, one_zero=True),
    "float8_e5m2": _Format(2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e5m2fnuz": _Format(2, 16, 0x7F, 0x80, 0x80, one_zero=True),
    "float4_e2m1fn": _Format(1, 1, 0x7, 0x7, 0x8, sign=0x8, saturates=True),
}


def decoded(x: Expr, dtype: str) -> Expr:
    """Return a code as the number that it is: a float32, an int8 or a uint8."""
    if dtype in _FORMATS:
        return _float_of(hl.cast(UINT32, x), _FORMATS[dtype])
    if dtype == "float8_e8m0fnu":
        bits = hl.select(x == hl.u8(0), hl.u32(0x00400000), hl.cast(UINT32, x) << 23)
        return hl.reinterpret(m.FLOAT32, hl.select(x == hl.u8(255), hl.u32(0x7FC00000), bits))
    bits = stored_bits(dtype)
    if dtype.startswith("uint"):
        return x & hl.u8(2**bits - 1)
    return hl.reinterpret(hl.Int(8), x << hl.u8(8 - bits)) >> hl.i8(8 - bits)


def encoded(x: Expr, dtype: str, options: Collection[str] = ()) -> Expr:
    """Return a number as a code.

    Args:
        x: A float32 for a type of floats, else an integer.
        dtype: The type.
        options: As in ``operations.evaluation.cast``.
    """
    if dtype in _FORMATS:
        return _code_of(hl.reinterpret(UINT32, x), _FORMATS[dtype], UNSATURATED in options)
    if dtype == "float8_e8m0fnu":
        return _power_of_two(hl.reinterpret(UINT32, x), options)
    return hl.cast(BYTE, x) & hl.u8(2 ** stored_bits(dtype) - 1)


def _float_of(bits: Expr, form: _Format) -> Expr:
    magnitude = bits & hl.u32(form.sign - 1)
    shift = 23 - form.mantissa
    normal = hl.reinterpret(m.FLOAT32, (magnitude << shift) + hl.u32((127 - form.bias) << 23))
    least = hl.cast(m.FLOAT32, hl.cast(hl.Int(32), magnitude)) * hl.f32(2.0 ** (1 - form.bias - form.mantissa))
    number = hl.reinterpret(UINT32, hl.select(magnitude < hl.u32(1 << form.mantissa), least, normal))
    if not form.saturates:
        infinite = hl.u32(0x7F800000) if form.beyond != form.nan else hl.u32(0x7FC00000)
        special = hl.select(magnitude == hl.u32(form.beyond), infinite, hl.u32(0x7FC00000))
        number = hl.select(magnitude > hl.u32(form.greatest), special, number)
    signed = number | hl.select((bits & hl.u32(form.sign)) != hl.u32(0), hl.u32(0x80000000), hl.u32(0))
    if form.one_zero:
        signed = hl.select((bits & hl.u32(0xFF)) == hl.u32(form.nan), hl.u32(0xFFC00000), signed)
    return hl.reinterpret(m.FLOAT32, signed)


def _code_of(bits: Expr, form: _Format, unsaturated: bool) -> Expr:
    """Return the code nearest to a float32, ties to even."""
    magnitude, shift = bits & hl.u32(0x7FFFFFFF), 23 - form.mantissa
    odd = (magnitude >> shift) & hl.u32(1)
    rounded = (magnitude + hl.u32((1 << (shift - 1)) - 1) + odd) >> shift
    normal = rounded - hl.u32((127 - form.bias) << form.mantissa)
    # In units of the least number, below 2**mantissa: adding 2**23 rounds it to a whole one in the low bits.
    units = hl.reinterpret(m.FLOAT32, magnitude) * hl.f32(2.0 ** (form.bias - 1 + form.mantissa))
    least = hl.reinterpret(UINT32, units + hl.f32(2.0**23)) & hl.u32(0xFF)
    code = hl.select(magnitude < hl.u32((128 - form.bias) << 23), least, normal)
    beyond = form.beyond if unsaturated else form.greatest
    code = hl.select(code > hl.u32(form.greatest), hl.u32(beyond), code)
    code = hl.select(magnitude > hl.u32(0x7F800000), hl.u32(form.nan), code)
    sign = hl.select((bits >> 31) != hl.u32(0), hl.u32(form.sign), hl.u32(0))
    signless = (code == hl.u32(0)) if form.one_zero else None
    sign = sign if signless is None else hl.select(signless, hl.u32(0), sign)
    return hl.cast(BYTE, code | sign)


def _power_of_two(bits: Expr, options: Collection[str]) -> Expr:
    """Return the exponent of a magnitude, rounded; a number that is no power of two is 255, or the nearest if it is."""
    mode = next((mode for mode in ROUND_MODES if mode in options), ROUND_MODES[0])
    magnitude = bits & hl.u32(0x7FFFFFFF)
    exponent, fraction = magnitude >> 23, magnitude & hl.u32(0x7FFFFF)
    least = hl.u32(0x400000)  # 2**-127, a denormal
    higher = {
        "up": hl.select(exponent == hl.u32(0), magnitude > least, fraction > hl.u32(0)),
        "down": hl.cast(hl.UInt(1), hl.u8(0)),
        "nearest": hl.select(exponent == hl.u32(0), magnitude >= hl.u32(0x600000), fraction >= least),
    }[mode]
    code = exponent + hl.select(higher, hl.u32(1), hl.u32(0))
    below, above = (255, 255) if UNSATURATED in options else (0, 254)
    code = hl.select(code > hl.u32(254), hl.u32(above), code)
    code = hl.select(magnitude < least, hl.u32(below), code)
    return hl.cast(BYTE, hl.select(magnitude > hl.u32(0x7F800000), hl.u32(255), code))
