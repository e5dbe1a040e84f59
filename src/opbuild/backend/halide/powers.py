"""Powers and remainders as Halide expressions: by way of float64, in which a float32 result comes out right."""

from __future__ import annotations

import math

import halide as hl

from opbuild.backend.halide.mathematics import (
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    UINT64,
    Expr,
    absolute,
    bounded,
    is_double,
    literal,
    narrow,
    negate,
    polynomial,
    restore_nan,
    widen,
    with_sign,
)


def power(x: Expr, y: Expr) -> Expr:
    """Return ``x`` to the power of ``y`` as C's ``pow`` defines it, special values included."""
    if is_double(x):
        return _power_cases(x, y, hl.pow(absolute(x), y))
    exponent = widen(y) * log2_double(widen(absolute(x)))
    return _power_cases(x, y, narrow(restore_nan(exponent, exp2_double(bounded(exponent, -200.0, 200.0)))))


def _power_cases(x: Expr, y: Expr, magnitude: Expr) -> Expr:
    """Give ``|x| ** y`` its sign and C's values where it has none of its own."""
    one, zero, infinity = literal(x, 1.0), literal(x, 0.0), literal(x, math.inf)
    a = absolute(x)
    whole = y == hl.floor(y)
    half = y * literal(y, 0.5)
    odd = whole & (half != hl.floor(half))
    negative = hl.reinterpret(INT64 if is_double(x) else INT32, x) < 0
    magnitude = hl.select((a == one) & ~hl.is_nan(y), one, magnitude)
    result = hl.select(negative & odd, negate(magnitude), magnitude)
    result = hl.select(hl.is_nan(y), y, result)
    result = hl.select((x < zero) & (a < infinity) & ~whole & (absolute(y) < infinity), literal(x, math.nan), result)
    return hl.select((y == zero) | (x == one), one, result)


def log2_double(a: Expr) -> Expr:
    """Return the base 2 logarithm of a non-negative float64 that was a float32, to 1e-12."""
    bits = hl.reinterpret(UINT64, a)
    mantissa = hl.reinterpret(FLOAT64, (bits & hl.u64(0x000FFFFFFFFFFFFF)) | hl.u64(0x3FE0000000000000))
    low = mantissa < hl.f64(math.sqrt(0.5))
    m = hl.select(low, mantissa + mantissa, mantissa)
    exponent = hl.cast(INT32, bits >> 52) - hl.select(low, 1023, 1022)
    z = (m - hl.f64(1.0)) / (m + hl.f64(1.0))
    series = polynomial(z * z, [2.0 / math.log(2.0) / k for k in range(15, 0, -2)])
    result = hl.cast(FLOAT64, exponent) + z * series
    infinity = hl.f64(math.inf)
    return hl.select(a > hl.f64(0.0), hl.select(a < infinity, result, a), hl.select(a == hl.f64(0.0), -infinity, a))


def exp2_double(t: Expr) -> Expr:
    """Return 2 to a float64 from -1000 to 1000, to 1e-11."""
    rest, scale = split_power(t)
    return polynomial(rest, [1.0 / math.factorial(k) for k in range(10, -1, -1)]) * scale


def split_power(t: Expr) -> tuple[Expr, Expr]:
    """Return 2 to a float64 as a natural exponent near 0, and a power of two to multiply its exponential by."""
    rounder = hl.f64(6755399441055744.0)  # 1.5 * 2**52: added, it leaves the nearest integer in the low bits
    shifted = t + rounder
    rest = (t - (shifted - rounder)) * hl.f64(math.log(2.0))
    n = hl.reinterpret(INT64, shifted) - hl.reinterpret(INT64, rounder)
    return rest, hl.reinterpret(FLOAT64, hl.cast(UINT64, n + hl.i64(1023)) << hl.u64(52))


def remainder(x: Expr, y: Expr) -> Expr:
    """Return C's ``fmod`` of float32, with the sign of ``x``: exact whatever the quotient is.

    There is none of float64 (``Operation.float64``).
    """
    a, b = widen(absolute(x)), widen(absolute(y))
    zero, rest, inverse = hl.f64(0.0), a, hl.f64(1.0) / b
    for _ in range(10):  # quotients have up to 277 bits
        # The upper 29 bits of a quotient times the 24 of b are an exact product, and take away 28 at least.
        rest = rest - b * hl.trunc(_truncated(rest * inverse, 24))
    rest = hl.select(rest < zero, rest + b, hl.select(rest >= b, rest - b, rest))
    rest = hl.select((b == hl.f64(math.inf)) & (a < b), a, rest)
    return with_sign(hl.cast(FLOAT32, rest), x)


def _truncated(x: Expr, bits: int) -> Expr:
    """Return a float64 with its lowest bits cleared."""
    return hl.reinterpret(FLOAT64, hl.reinterpret(UINT64, x) & hl.u64(2**64 - 2**bits))
