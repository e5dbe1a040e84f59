"""Mathematical functions as Halide expressions: vectorised for float32, right at NaN, infinities, zeros and denormals.

Halide's own ``exp``, ``log``, ``max`` and ``clamp`` lose NaN and infinities, and its ``tanh``, ``sin`` and the like are
scalar library calls, 60 times slower than a vector form. The float32 functions here and in ``transcendental`` are
vector code. Sources of the approximations: S. Moshier's Cephes library, single precision (log, sin, cos, asin, atan,
sinh: polynomials after a range reduction; expm1's coefficients are fitted by Lawson's algorithm) and Eigen's packet
math (tanh, erf: rational functions). ``pow`` and the reduction of angles work in float64. In float64 the functions are
the C library's, because accuracy goes first there; erf, expm1 and log1p are built upon them.

Largest errors, tested: float32 3e-7 relative (2.5e-7 absolute for tanh, erf and angles, however large these are).
float64: 1e-15 relative.

Every result is meant to be wrapped by ``hl.strict_float`` once, at the end, by ``expression.compile_expression``:
without it the compiler may assume that there are no NaNs, contract and reassociate. ``contracted`` exempts polynomials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import halide as hl

Expr = Any
INT32, UINT32, INT64, UINT64 = hl.Int(32), hl.UInt(32), hl.Int(64), hl.UInt(64)
FLOAT16, FLOAT32, FLOAT64, BFLOAT16 = hl.Float(16), hl.Float(32), hl.Float(64), hl.BFloat(16)
ROUNDER = 12582912.0
"""1.5 * 2**23: adding it to a float32 leaves the nearest integer in the low bits of the sum."""

LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
TANH = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08, 1.48572235717979e-05,
    6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
TANH_DIVISOR = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
ERF = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04,
    -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
ERF_DIVISOR = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02,
)  # fmt: skip
"""Coefficients of the approximations, highest power first."""


def literal(like: Expr, value: float) -> Expr:
    """Return a constant of the same type as ``like``."""
    if value == 0.0 and math.copysign(1.0, value) < 0.0:
        return negative_zero(like)
    return hl.cast(like.type(), hl.f64(value)) if like.type() != FLOAT32 else hl.f32(value)


def zero(like: Expr) -> Expr:
    """Return 0 of the same type as ``like``."""
    return literal(like, 0.0)


def one(like: Expr) -> Expr:
    """Return 1 of the same type as ``like``."""
    return literal(like, 1.0)


def is_double(x: Expr) -> bool:
    """Return whether an expression is float64."""
    return bool(x.type() == FLOAT64)


def quotient(a: Expr, b: Expr) -> Expr:
    """Return ``a / b`` of floats, of which Halide refuses ``b`` where it finds out that it is always 0.

    It does not look into the sum, and the sum costs nothing: it changes no number.
    """
    return a / (b + negative_zero(b))


def negative_zero(like: Expr) -> Expr:
    """Return -0 of the same type as ``like``: Halide takes a literal -0.0 for equal to 0.0, and uses one for both."""
    bits = like.type().bits()
    return hl.reinterpret(like.type(), hl.cast(hl.UInt(bits), hl.u64(1 << (bits - 1))))


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Return a polynomial by Horner's rule, highest power first."""
    result = literal(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + literal(x, coefficient)
    return result


def contracted(formula: Callable[..., Expr], *operands: Expr) -> Expr:
    """Return a formula of float32 in which products and sums are one instruction where a machine has that.

    What is strict does not reach into a function, which is inlined later; its arguments are integers, so operands pass
    as bits. The compiler may reassociate, too, and takes all for finite numbers: infinities are kept from it. NaN goes
    through, but the result counts as a number: NaN must be possible by an operand of what follows, or nobody sees it.
    """
    bits = [hl.Var(f"bits{number}") for number in range(len(operands))]
    function = hl.Func("contracted")
    function[bits] = formula(*(hl.reinterpret(FLOAT32, each) for each in bits))
    return hl.Expr(function[[hl.reinterpret(INT32, each) for each in operands]])


def bounded(x: Expr, low: float, high: float) -> Expr:
    """Return ``x`` limited to two finite numbers; NaN becomes one of them, so the caller restores it."""
    return hl.min(hl.max(x, literal(x, low)), literal(x, high))


def clip(x: Expr, low: Expr, high: Expr) -> Expr:
    """Return ``min(max(x, low), high)``; NaN stays NaN, whether it is the number or a bound that is compared last."""
    x = hl.select(x < low, low, x)
    return hl.select(x > high, high, x)


def restore_nan(x: Expr, result: Expr) -> Expr:
    """Return ``result``, or ``x`` where that is NaN."""
    return hl.select(hl.is_nan(x), x, result)


def maximum(a: Expr, b: Expr) -> Expr:
    """Return the greater of two floats, NaN if either is NaN."""
    return hl.select((a > b) | hl.is_nan(a), a, b)


def minimum(a: Expr, b: Expr) -> Expr:
    """Return the smaller of two floats, NaN if either is NaN."""
    return hl.select((a < b) | hl.is_nan(a), a, b)


def relu(x: Expr) -> Expr:
    """Return ``max(x, 0)``, NaN for NaN. One instruction."""
    zero = literal(x, 0.0)
    return hl.select(x < zero, zero, x)


def _bits(x: Expr) -> tuple[Expr, Any, int]:
    """Return a float's bits, their type and its sign bit."""
    wide = is_double(x)
    kind = UINT64 if wide else UINT32
    return hl.reinterpret(kind, x), kind, 1 << (63 if wide else 31)


def absolute(x: Expr) -> Expr:
    """Return the magnitude; by its bits, because ``hl.abs`` lets the compiler assume that there is no infinity."""
    bits, kind, sign = _bits(x)
    return hl.reinterpret(x.type(), bits & hl.cast(kind, hl.u64(sign - 1)))


def negate(x: Expr) -> Expr:
    """Return ``-x``, of zero too: Halide's own is ``0 - x``."""
    bits, kind, sign = _bits(x)
    return hl.reinterpret(x.type(), bits ^ hl.cast(kind, hl.u64(sign)))


def with_sign(magnitude: Expr, sign: Expr) -> Expr:
    """Return a magnitude with the sign of another float."""
    bits, kind, mask = _bits(sign)
    return hl.reinterpret(sign.type(), _bits(magnitude)[0] | (bits & hl.cast(kind, hl.u64(mask))))


def widen(x: Expr) -> Expr:
    """Return a float as float64; of Halide's conversion the compiler may assume that it meets no NaN or infinity."""
    if is_double(x):
        return x
    finite = absolute(x) < hl.f32(math.inf)
    special = hl.select(hl.is_nan(x), hl.f64(math.nan), with_sign(hl.f64(math.inf), hl.cast(FLOAT64, x)))
    return hl.select(finite, hl.cast(FLOAT64, x), special)


def narrow(x: Expr) -> Expr:
    """Return a float64 as float32, with the same care."""
    finite = absolute(x) < hl.f64(3.4028235677973366e38)
    infinite = hl.select(x < hl.f64(0.0), hl.f32(-math.inf), hl.f32(math.inf))
    return hl.select(finite, hl.cast(FLOAT32, x), hl.select(hl.is_nan(x), hl.f32(math.nan), infinite))


def is_narrow(kind: Any) -> bool:
    """Return whether a type has 16 bits and the arithmetic of float32: float16 or bfloat16."""
    return bool(kind in (FLOAT16, BFLOAT16))


def widened(x: Expr) -> Expr:
    """Return a value of 16 bits as float32, with the same care; any other value as it is."""
    if x.type() == BFLOAT16:
        return hl.reinterpret(FLOAT32, hl.cast(UINT32, hl.reinterpret(hl.UInt(16), x)) << 16)
    if x.type() != FLOAT16:
        return x
    bits = hl.cast(INT32, hl.reinterpret(hl.Int(16), x)) << 13  # the sign is in the highest bits
    special = (bits & hl.i32(0x0F800000)) == hl.i32(0x0F800000)
    return hl.select(special, hl.reinterpret(FLOAT32, bits | hl.i32(0x7F800000)), hl.cast(FLOAT32, x))


def rounded(x: Expr, kind: Any) -> Expr:
    """Return a float32 rounded to a value of float16 or bfloat16, ties to even."""
    if kind == BFLOAT16:
        return hl.reinterpret(FLOAT32, _rounded_bits(x) & hl.u32(0xFFFF0000))
    inside = absolute(x) < hl.f32(65520.0)
    # NaN stays NaN: where ``x`` is a sum of products the compiler takes it for a number, and would not ask.
    outside = x * hl.f32(math.inf)
    return hl.select(inside, hl.cast(FLOAT32, hl.cast(FLOAT16, x)), outside)


def _rounded_bits(x: Expr) -> Expr:
    """Return the bits of a float32 of which the upper half is the nearest bfloat16; those below it are any."""
    bits = hl.reinterpret(UINT32, x)
    nan = (bits & hl.u32(0x80000000)) | hl.u32(0x7FC00000)
    return hl.select(hl.is_nan(x), nan, bits + hl.u32(0x7FFF) + ((bits >> 16) & hl.u32(1)))


def narrowed(x: Expr, kind: Any, rounds: bool = True) -> Expr:
    """Return a float32 as float16 or bfloat16, the nearest, ties to even.

    Halide's own conversion to float16 makes infinity of NaN without F16C's instructions, that to bfloat16 truncates.

    Args:
        x: The number.
        kind: The type.
        rounds: False if the number is one of the type's already.
    """
    if kind == BFLOAT16:
        bits = _rounded_bits(x) if rounds else hl.reinterpret(UINT32, x)
        return hl.reinterpret(BFLOAT16, hl.cast(hl.UInt(16), bits >> 16))
    nan = hl.reinterpret(FLOAT16, hl.u16(0x7E00))
    return hl.select(hl.is_nan(x), nan, hl.cast(FLOAT16, x))


# -- logarithms and hyperbolic functions ------------------------------------------------------------------------------


def log(x: Expr) -> Expr:
    """Return the natural logarithm; -inf of 0, NaN below."""
    if is_double(x):
        return _log_domain(x, hl.log(x))
    tiny = x < hl.f32(1.17549435e-38)
    bits = hl.reinterpret(UINT32, hl.select(tiny, x * hl.f32(8388608.0), x))
    mantissa = hl.reinterpret(FLOAT32, (bits & hl.u32(0x007FFFFF)) | hl.u32(0x3F000000))
    low = mantissa < hl.f32(0.707106781186547524)
    exponent = hl.cast(INT32, bits >> 23) - hl.select(tiny, 149, 126) - hl.select(low, 1, 0)
    e = hl.cast(FLOAT32, exponent)
    z = hl.select(low, mantissa + mantissa, mantissa) - hl.f32(1.0)
    square = z * z
    p = contracted(lambda z: polynomial(z, LOG), z)
    tail = (p * z * square + e * hl.f32(-2.12194440e-4)) - hl.f32(0.5) * square
    return _log_domain(x, (z + tail) + e * hl.f32(0.693359375))


def _log_domain(x: Expr, inside: Expr) -> Expr:
    zero, infinity = literal(x, 0.0), literal(x, math.inf)
    outside = hl.select(x == zero, -infinity, literal(x, math.nan))
    return hl.select(x > zero, hl.select(x < infinity, inside, x), outside)


def log1p(x: Expr) -> Expr:
    """Return ``log(1 + x)``, accurate near zero too; the factor ``x / d`` mends the rounding of ``1 + x``."""
    one = literal(x, 1.0)
    u = one + x
    d = u - one
    y = log(u)
    return hl.select(u == one, x, hl.select(d == x, y, y * (x / d)))


def tanh(x: Expr) -> Expr:
    """Return the hyperbolic tangent; Eigen's rational function of degree 13 over 6."""
    if is_double(x):
        return hl.tanh(x)
    # From there on 1 is as near as what the quotient rounds to, which is below 1 before.
    return hl.select(absolute(x) > hl.f32(8.0), with_sign(hl.f32(1.0), x), _odd_quotient(x, 8.0, TANH, TANH_DIVISOR))


def _odd_quotient(x: Expr, limit: float, dividend: Sequence[float], divisor: Sequence[float]) -> Expr:
    """Return a float32, limited, times the quotient of two polynomials of its square."""
    limited = clip(x, hl.f32(-limit), hl.f32(limit))
    square = limited * limited
    p, q = (contracted(partial(polynomial, coefficients=each), square) for each in (dividend, divisor))
    return limited * p / q


def asinh(x: Expr) -> Expr:
    """Return the inverse hyperbolic sine."""
    a, one = absolute(x), literal(x, 1.0)
    square = a * a
    large = a > literal(x, 1e8)
    near = log1p(hl.select(large, a - one, a + square / (one + hl.sqrt(square + one))))
    return with_sign(hl.select(large, near + literal(x, math.log(2.0)), near), x)


def acosh(x: Expr) -> Expr:
    """Return the inverse hyperbolic cosine; NaN below 1."""
    one = literal(x, 1.0)
    t = x - one
    large = x > literal(x, 1e8)
    near = log1p(hl.select(large, t, t + hl.sqrt(t * (x + one))))
    result = hl.select(large, near + literal(x, math.log(2.0)), near)
    return hl.select(x < one, literal(x, math.nan), result)


def atanh(x: Expr) -> Expr:
    """Return the inverse hyperbolic tangent; infinite at -1 and 1, NaN beyond."""
    a = absolute(x)
    return with_sign(literal(x, 0.5) * log1p((a + a) / (literal(x, 1.0) - a)), x)


# -- error function ---------------------------------------------------------------------------------------------------


def erf(x: Expr) -> Expr:
    """Return the error function; float32: Eigen's rational function, exactly 1 in magnitude where it rounds to it."""
    if is_double(x):
        return _erf_double(x)
    return hl.select(absolute(x) > hl.f32(3.92), with_sign(hl.f32(1.0), x), _odd_quotient(x, 4.0, ERF, ERF_DIVISOR))


def normal(x: Expr) -> Expr:
    """Return the normal distribution, ``(1 + erf(x / sqrt(2))) / 2``; float64: accurate in the lower tail too."""
    half, z = literal(x, 0.5), x * literal(x, math.sqrt(0.5))
    if not is_double(x):
        return half * (one(x) + erf(z))
    below = half * _erfc_double(bounded(absolute(z), 0.0, 28.0))
    return restore_nan(x, hl.select(x < zero(x), below, one(x) - below))


_SERIES_END = 1.75
"""Where the series of the error function, which has lost digits there, is left for the fraction, which has enough."""


def _erf_double(x: Expr) -> Expr:
    """A series of positive terms; beyond it the complement, of which few digits count there."""
    a = bounded(absolute(x), 0.0, 6.0)
    magnitude = hl.select(a < hl.f64(_SERIES_END), _erf_series(a), one(a) - _erfc_fraction(a))
    return restore_nan(x, with_sign(magnitude, x))


def _erfc_double(a: Expr) -> Expr:
    return hl.select(a < hl.f64(_SERIES_END), one(a) - _erf_series(a), _erfc_fraction(a))


def _erf_series(a: Expr) -> Expr:
    coefficients = [1.0]
    for k in range(1, 40):
        coefficients.append(coefficients[-1] * 2.0 / (2 * k + 1))
    a = bounded(a, 0.0, _SERIES_END)
    gauss = hl.exp(-(a * a))
    return polynomial(a * a, coefficients[::-1]) * a * gauss * hl.f64(2.0 / math.sqrt(math.pi))


def _erfc_fraction(a: Expr) -> Expr:
    fraction = a
    for k in range(60, 0, -1):
        fraction = a + hl.f64(k / 2.0) / fraction
    # The square in two parts, of which the first is exact: what is rounded of it the power would multiply.
    upper = hl.cast(FLOAT64, hl.cast(FLOAT32, a))
    gauss = hl.exp(-(upper * upper)) * hl.exp(-((a - upper) * (a + upper)))
    return gauss / (fraction * hl.f64(math.sqrt(math.pi)))
