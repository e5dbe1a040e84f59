"""The primitives of formulas for float32 and float64, and for comparisons and truth values of any type."""

# ruff: noqa: F401 - formulas read them by name

from __future__ import annotations

import math
from operator import add
from operator import mul as multiply
from operator import sub as subtract
from typing import Any

import halide as hl

from opbuild.backend.halide.integers import unsigned
from opbuild.backend.halide.mathematics import (
    absolute,
    acosh,
    asinh,
    atanh,
    clip,
    erf,
    literal,
    log,
    log1p,
    maximum,
    minimum,
    negate,
    normal,
    one,
    quotient,
    tanh,
    widened,
    zero,
)
from opbuild.backend.halide.transcendental import (
    acos,
    asin,
    atan,
    atan2,
    cos,
    cosh,
    exp,
    expm1,
    power,
    remainder,
    sigmoid,
    sin,
    sinh,
    tan,
)

Expr = Any
BOOL, BYTE = hl.UInt(1), hl.UInt(8)

select, sqrt, is_nan = hl.select, hl.sqrt, hl.is_nan
floor, ceil, round_to_even, trunc = hl.floor, hl.ceil, hl.round, hl.trunc


def floor_quotient(a: Expr, b: Expr) -> Expr:
    """Return ``a / b`` rounded down."""
    return hl.floor(quotient(a, b))


def sign(x: Expr) -> Expr:
    """Return -1, 0 or 1; zeros and NaN stay."""
    return hl.select(x > zero(x), one(x), hl.select(x < zero(x), -one(x), x))


def is_inf(x: Expr) -> Expr:
    """Return whether a number is infinite."""
    return absolute(x) == literal(x, math.inf)


def is_finite(x: Expr) -> Expr:
    """Return whether a number is neither infinite nor NaN."""
    return absolute(x) < literal(x, math.inf)


# -- of any type ------------------------------------------------------------------------------------------------------


def stored(x: Expr) -> Expr:
    """Return a value as a buffer holds it: a truth value as a byte of 0 or 1."""
    return hl.cast(BYTE, x) if x.type() == BOOL else x


def truth(x: Expr) -> Expr:
    """Return whether a value is not 0."""
    if x.type() == BOOL:
        return x
    x = widened(x)
    return x != hl.cast(x.type(), hl.i32(0))


def equal(a: Expr, b: Expr) -> Expr:
    """Return whether two values are equal."""
    return _pattern(a) == _pattern(b)


def not_equal(a: Expr, b: Expr) -> Expr:
    """Return whether two values differ."""
    return _pattern(a) != _pattern(b)


def less(a: Expr, b: Expr) -> Expr:
    """Return whether ``a`` is less than ``b``."""
    return _comparable(a) < _comparable(b)


def less_equal(a: Expr, b: Expr) -> Expr:
    """Return whether ``a`` is at most ``b``; Halide makes ``not (b < a)`` of that, which is true of NaN."""
    a, b = _comparable(a), _comparable(b)
    return (a < b) | (a == b)


def _comparable(x: Expr) -> Expr:
    return stored(widened(x))


def _pattern(x: Expr) -> Expr:
    # Halide subtracts what it compares, and refuses where the difference of two signed literals overflows.
    x = _comparable(x)
    return unsigned(x) if x.type().is_int() else x
