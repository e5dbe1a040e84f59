"""The last step of quantisation in few instructions: rounded, moved by the zero point, limited to a small integer type.

``graph.passes.quantization`` writes it as an expression of four operations, each of them defined for every number.
Together they take less: what is limited first is no NaN, and so small that adding ``1.5 * 2**23`` leaves the nearest
integer, of two the even one, in the low bits of the sum. The zero point is added in the small type, which wraps to the
right number because the limits were moved by it (an epilogue of ``vrndscaleps`` and a conversion that is defined
everywhere takes 16 instructions a vector, this one 7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import TYPES
from opbuild.backend.halide.mathematics import ROUNDER
from opbuild.operations.expression import Expression, children

Expr = Any

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
