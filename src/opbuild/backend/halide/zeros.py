"""Weights of a softmax that are 0 where its definition has NaN.

The attribute ``zeros`` of a kernel says which: ``hidden`` those of rows that are -inf throughout, ``nan`` those of all
rows that would be NaN, which are also the ones with a NaN or +inf. Without it none are. A row is NaN throughout or
nowhere, so rows are all that is looked at: of a hidden one the powers are 0 because they are taken of the distance to a
finite number, and a sum that is 0 weighs nothing.
"""

from __future__ import annotations

import math
from typing import Any

import halide as hl

from opbuild.backend.halide.mathematics import FLOAT32
from opbuild.kernel.opdesc import OpDesc

LEAST = -float.fromhex("0x1.fffffep127")

NOTHING = 1e-30
"""More than the sum of a hidden row, and less than that of any other one, of which one power is greatest."""

INFINITE = 0x7F800000
"""The bits of an infinity; those of a number are less, and those of a NaN more. A compiler may take it that floats are
no NaN, but not bits."""


def shown(desc: OpDesc, score: Any) -> Any:
    """Return a score; +inf instead of NaN, which hides all others, if NaN is to be 0."""
    return hl.select(_is_nan(score), hl.f32(math.inf), score) if desc.attrs.get("zeros") == "nan" else score


def least(desc: OpDesc) -> Any:
    """Return the lower bound of the maximum of a row."""
    return hl.f32(LEAST) if "zeros" in desc.attrs else hl.Float(32).min()


def powered(desc: OpDesc, shifted: Any, power: Any) -> Any:
    """Return a power of ``shifted``, which is NaN where that is; 0 instead if NaN is to be 0."""
    return hl.select(_is_nan(shifted), hl.cast(power.type(), 0), power) if desc.attrs.get("zeros") == "nan" else power


def inverse(desc: OpDesc, total: Any) -> Any:
    """Return the inverse of a sum of powers; 0 of one that is nothing if weights are to be 0 there."""
    found = hl.cast(total.type(), 1) / total
    if "zeros" not in desc.attrs:
        return found
    is_nothing = _bits(hl.cast(FLOAT32, total)) < _bits(hl.f32(NOTHING))
    return hl.select(is_nothing, hl.cast(total.type(), 0), found)


def _is_nan(x: Any) -> Any:
    return (_bits(x) & hl.u32(0x7FFFFFFF)) > hl.u32(INFINITE)


def _bits(x: Any) -> Any:
    return hl.reinterpret(hl.UInt(32), x)
