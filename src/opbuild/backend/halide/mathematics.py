"""Mathematical functions as Halide expressions: vectorised for float32, right at NaN, infinities, zeros and denormals.

Halide's own ``exp``, ``log``, ``max`` and ``clamp`` lose NaN and infinities, and its ``tanh``, ``sin`` and the like are
scalar library calls, 60 times slower than a vector form. The float32 functions here are vector code. Sources of the
approximations: S. Moshier's Cephes library, single precision (exp, log, sin, cos, asin, atan, sinh: polynomials after a
range reduction) and Eigen's packet math (tanh, erf: rational functions). ``pow`` and the reduction of angles work in float64.
In float64 the functions are the C library's, because accuracy goes first there; erf, expm1 and log1p are built upon them.

Largest errors, tested: float32 3e-7 relative (2.5e-7 absolute for tanh, erf and angles); sin, cos and tan of angles beyond 1e9 radians
lose accuracy as the spacing of float32 there exceeds a whole turn. float64: 1e-14 relative.

Every result is meant to be wrapped by ``hl.strict_float`` once, at the end, by ``expression.compile_expression``: without it
the compiler may assume that there are no NaNs, contract and reassociate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import halide as hl

Expr = Any
INT32, UINT32, INT64, UINT64 = hl.Int(32), hl.UInt(32), hl.Int(64), hl.UInt(64)
FLOAT32, FLOAT64 = hl.Float(32), hl.Float(64)
ROUNDER = 12582912.0
"""1.5 * 2**23: adding it to a float32 leaves the nearest integer in the low bits of the sum."""
PI_2_HIGH, PI_2_MIDDLE, PI_2_LOW = 1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21
"""pi / 2 in three float64 parts of which the first two have 33 bits, so that small multiples are exact."""


def literal(like: Expr, value: float) -> Expr:
    """Return a constant of the same type as ``like``."""
    return hl.cast(like.type(), hl.f64(value)) if like.type() != FLOAT32 else hl.f32(value)


def is_double(x: Expr) -> bool:
    """Return whether an expression is float64."""
    return bool(x.type() == FLOAT64)


def polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Return a polynomial by Horner's rule, highest power first."""
    result = literal(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + literal(x, coefficient)
    return result


def bounded(x: Expr, low: float, high: float) -> Expr:
    """Return ``x`` limited to two finite numbers; NaN becomes one of them, so the caller restores it."""
    return hl.min(hl.max(x, literal(x, low)), literal(x, high))


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
    """Return a float as float64; the compiler may take Halide's own conversion for one that meets no NaN and no infinity."""
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


def widen_half(x: Expr) -> Expr:
    """Return a float16 as float32, with the same care."""
    bits = hl.cast(UINT32, hl.reinterpret(hl.UInt(16), x))
    special = ((bits & hl.u32(0x8000)) << 16) | ((bits & hl.u32(0x03FF)) << 13) | hl.u32(0x7F800000)
    return hl.select((bits & hl.u32(0x7C00)) == hl.u32(0x7C00), hl.reinterpret(FLOAT32, special), hl.cast(FLOAT32, x))


# -- exponentials -----------------------------------------------------------------------------------------------------


def _power_of_two(exponent: Expr) -> Expr:
    """Return 2 to an int32 from -126 to 127."""
    return hl.reinterpret(FLOAT32, hl.cast(UINT32, exponent + 127) << 23)


def _reduce_exp(x: Expr) -> tuple[Expr, Expr]:
    """Return ``n`` (int32) and ``expm1(r)`` with ``x = n ln 2 + r``; Cephes expf's constants."""
    shifted = x * hl.f32(1.44269504088896341) + hl.f32(ROUNDER)
    whole = shifted - hl.f32(ROUNDER)
    n = hl.reinterpret(INT32, shifted) - 0x4B400000
    r = (x - whole * hl.f32(0.693359375)) - whole * hl.f32(-2.12194440e-4)
    p = polynomial(
        r, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
    )
    return n, p * (r * r) + r


def exp(x: Expr) -> Expr:
    """Return e to the power of ``x``, down to the last denormal."""
    return hl.exp(x) if is_double(x) else scaled_exp(x, 0)


def scaled_exp(x: Expr, shift: int) -> Expr:
    """Return ``exp(x) * 2**shift`` of a float32 without overflow before the end."""
    n, q = _reduce_exp(bounded(x, -104.5, 90.5))
    # Two factors: one alone would overflow where the result does not, and would miss the denormals.
    first = (n + shift) >> 1
    return restore_nan(x, ((q + hl.f32(1.0)) * _power_of_two(first)) * _power_of_two(n + shift - first))


def expm1(x: Expr) -> Expr:
    """Return ``exp(x) - 1``, accurate near zero too."""
    if is_double(x):
        # Kahan: the error of log(u) cancels that of u - 1.
        u, one = hl.exp(x), literal(x, 1.0)
        middle = (u - one) * x / hl.log(u)
        return hl.select(
            u == one, x, hl.select(x < literal(x, -40.0), -one, hl.select(x > literal(x, 40.0), u, middle))
        )
    n, q = _reduce_exp(bounded(x, -20.0, 88.9))
    half = _power_of_two(n - 1)
    near = (half * q + (half - hl.f32(0.5))) * hl.f32(2.0)
    return hl.select(hl.is_nan(x) | (absolute(x) < hl.f32(1e-7)), x, near)


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
    p = polynomial(
        z,
        (
            7.0376836292e-2,
            -1.1514610310e-1,
            1.1676998740e-1,
            -1.2420140846e-1,
            1.4249322787e-1,
            -1.6668057665e-1,
            2.0000714765e-1,
            -2.4999993993e-1,
            3.3333331174e-1,
        ),
    )
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


def sigmoid(x: Expr) -> Expr:
    """Return ``1 / (1 + exp(-x))``, accurate in the far tail too."""
    one = literal(x, 1.0)
    e = exp(negate(absolute(x)))
    return hl.select(x < literal(x, 0.0), e, one) / (one + e)


def softplus(x: Expr) -> Expr:
    """Return ``log(1 + exp(x))`` without overflow."""
    return log1p(exp(negate(absolute(x)))) + relu(x)


def mish(x: Expr) -> Expr:
    """Return ``x * tanh(softplus(x))``: with ``e = exp(x)`` the factor is ``(e e + 2 e) / (e e + 2 e + 2)``."""
    limit, two = literal(x, 20.0), literal(x, 2.0)
    e = exp(hl.select(x > limit, limit, x))
    n = e * (e + two)
    return x * (n / (n + two))


def tanh(x: Expr) -> Expr:
    """Return the hyperbolic tangent; Eigen's rational function of degree 13 over 6."""
    if is_double(x):
        return hl.tanh(x)
    limited = bounded(x, -7.90531110763549805, 7.90531110763549805)
    square = limited * limited
    p = polynomial(
        square,
        (
            -2.76076847742355e-16,
            2.00018790482477e-13,
            -8.60467152213735e-11,
            5.12229709037114e-08,
            1.48572235717979e-05,
            6.37261928875436e-04,
            4.89352455891786e-03,
        ),
    )
    q = polynomial(square, (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03))
    return restore_nan(x, bounded(limited * p / q, -1.0, 1.0))


def sinh(x: Expr) -> Expr:
    """Return the hyperbolic sine."""
    if is_double(x):
        return hl.sinh(x)
    half = scaled_exp(absolute(x), -1)
    square = x * x
    near = polynomial(square, (2.03721912945e-4, 8.33028376239e-3, 1.66667160211e-1)) * square * x + x
    return hl.select(absolute(x) < hl.f32(1.0), near, with_sign(half - hl.f32(0.25) / half, x))


def cosh(x: Expr) -> Expr:
    """Return the hyperbolic cosine."""
    if is_double(x):
        return hl.cosh(x)
    half = scaled_exp(absolute(x), -1)
    return half + hl.f32(0.25) / half


def asinh(x: Expr) -> Expr:
    """Return the inverse hyperbolic sine."""
    a, one = absolute(x), literal(x, 1.0)
    square = a * a
    large = a > literal(x, 1e8)
    near = log1p(hl.select(large, a, a + square / (one + hl.sqrt(square + one))))
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
    limited = bounded(x, -4.0, 4.0)
    square = limited * limited
    p = polynomial(
        square,
        (
            -2.72614225801306e-10,
            2.77068142495902e-08,
            -2.10102402082508e-06,
            -5.69250639462346e-05,
            -7.34990630326855e-04,
            -2.95459980854025e-03,
            -1.60960333262415e-02,
        ),
    )
    q = polynomial(
        square,
        (
            -1.45660718464996e-05,
            -2.13374055278905e-04,
            -1.68282697438203e-03,
            -7.37332916720468e-03,
            -1.42647390514189e-02,
        ),
    )
    one = with_sign(hl.f32(1.0), x)
    return restore_nan(x, hl.select(absolute(x) > hl.f32(3.92), one, limited * p / q))


def _erf_double(x: Expr) -> Expr:
    """Series of positive terms below 2.5; above it the continued fraction of erfc, of which few digits count there."""
    a = bounded(absolute(x), 0.0, 6.0)
    square = a * a
    gauss = hl.exp(-square)
    coefficients = [1.0]
    for k in range(1, 56):
        coefficients.append(coefficients[-1] * 2.0 / (2 * k + 1))
    series = polynomial(square, coefficients[::-1]) * a * gauss * hl.f64(2.0 / math.sqrt(math.pi))
    fraction = a
    for k in range(60, 0, -1):
        fraction = a + hl.f64(k / 2.0) / fraction
    complement = gauss / (fraction * hl.f64(math.sqrt(math.pi)))
    return restore_nan(x, with_sign(hl.select(a < hl.f64(2.5), series, hl.f64(1.0) - complement), x))


# -- powers -----------------------------------------------------------------------------------------------------------


def power(x: Expr, y: Expr) -> Expr:
    """Return ``x`` to the power of ``y`` as C's ``pow`` defines it, special values included."""
    if is_double(x):
        return _power_cases(x, y, hl.pow(absolute(x), y))
    exponent = widen(y) * _log2_double(widen(absolute(x)))
    return _power_cases(x, y, narrow(restore_nan(exponent, _exp2_double(bounded(exponent, -200.0, 200.0)))))


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


def _log2_double(a: Expr) -> Expr:
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


def _exp2_double(t: Expr) -> Expr:
    """Return 2 to a float64 from -200 to 200, to 1e-11."""
    rounder = hl.f64(6755399441055744.0)
    shifted = t + rounder
    fraction = (t - (shifted - rounder)) * hl.f64(math.log(2.0))
    n = hl.reinterpret(INT64, shifted) - hl.reinterpret(INT64, rounder)
    scale = hl.reinterpret(FLOAT64, hl.cast(UINT64, n + hl.i64(1023)) << hl.u64(52))
    return polynomial(fraction, [1.0 / math.factorial(k) for k in range(10, -1, -1)]) * scale


# -- trigonometry -----------------------------------------------------------------------------------------------------


def _quadrant(x: Expr) -> tuple[Expr, Expr]:
    """Return the quadrant (0 to 3, float64) and the remaining angle (float32) of a float32 angle."""
    wide = widen(x)
    n = hl.round(wide * hl.f64(2.0 / math.pi))
    rest = ((wide - n * hl.f64(PI_2_HIGH)) - n * hl.f64(PI_2_MIDDLE)) - n * hl.f64(PI_2_LOW)
    return n - hl.f64(4.0) * hl.floor(n * hl.f64(0.25)), hl.cast(FLOAT32, restore_nan(rest, bounded(rest, -1.0, 1.0)))


def _small_sin(r: Expr) -> Expr:
    square = r * r
    return polynomial(square, (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)) * square * r + r


def _small_cos(r: Expr) -> Expr:
    square = r * r
    p = polynomial(square, (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2))
    return (p * square * square - hl.f32(0.5) * square) + hl.f32(1.0)


def _is(quadrant: Expr, *values: float) -> Expr:
    result = quadrant == hl.f64(values[0])
    for value in values[1:]:
        result = result | (quadrant == hl.f64(value))
    return result


def sin(x: Expr) -> Expr:
    """Return the sine of an angle in radians."""
    if is_double(x):
        return hl.sin(x)
    q, r = _quadrant(x)
    value = hl.select(_is(q, 1.0, 3.0), _small_cos(r), _small_sin(r))
    return hl.select(_is(q, 2.0, 3.0), negate(value), value)


def cos(x: Expr) -> Expr:
    """Return the cosine of an angle in radians."""
    if is_double(x):
        return hl.cos(x)
    q, r = _quadrant(x)
    value = hl.select(_is(q, 1.0, 3.0), _small_sin(r), _small_cos(r))
    return hl.select(_is(q, 1.0, 2.0), negate(value), value)


def tan(x: Expr) -> Expr:
    """Return the tangent of an angle in radians."""
    if is_double(x):
        return hl.tan(x)
    q, r = _quadrant(x)
    s, c = _small_sin(r), _small_cos(r)
    turned = _is(q, 1.0, 3.0)
    return hl.select(turned, negate(c), s) / hl.select(turned, s, c)


def _asin_near(z: Expr, w: Expr) -> Expr:
    p = polynomial(z, (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1))
    return p * z * w + w


def asin(x: Expr) -> Expr:
    """Return the arc sine; NaN outside -1 to 1."""
    if is_double(x):
        return hl.asin(x)
    a = absolute(x)
    outer = a > hl.f32(0.5)
    z = hl.select(outer, hl.f32(0.5) * (hl.f32(1.0) - a), a * a)
    y = _asin_near(z, hl.select(outer, hl.sqrt(z), a))
    return with_sign(hl.select(outer, hl.f32(math.pi / 2) - (y + y), y), x)


def acos(x: Expr) -> Expr:
    """Return the arc cosine; NaN outside -1 to 1."""
    if is_double(x):
        return hl.acos(x)
    a = absolute(x)
    outer = a > hl.f32(0.5)
    z = hl.select(outer, hl.f32(0.5) * (hl.f32(1.0) - a), a * a)
    y = _asin_near(z, hl.select(outer, hl.sqrt(z), a))
    far = hl.select(x < hl.f32(0.0), hl.f32(math.pi) - (y + y), y + y)
    return hl.select(outer, far, hl.f32(math.pi / 2) - with_sign(y, x))


def atan(x: Expr) -> Expr:
    """Return the arc tangent."""
    if is_double(x):
        return hl.atan(x)
    a, one = absolute(x), hl.f32(1.0)
    far, middle = a > hl.f32(2.414213562373095), a > hl.f32(0.4142135623730950)
    start = hl.select(far, hl.f32(math.pi / 2), hl.select(middle, hl.f32(math.pi / 4), hl.f32(0.0)))
    z = hl.select(far, -one / a, hl.select(middle, (a - one) / (a + one), a))
    square = z * z
    p = polynomial(square, (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1))
    return with_sign(start + (p * square * z + z), x)


def atan2(y: Expr, x: Expr) -> Expr:
    """Return the angle of the point ``(x, y)``, from -pi to pi."""
    zero, pi = literal(x, 0.0), literal(x, math.pi)
    ay, ax, infinity = absolute(y), absolute(x), literal(x, math.inf)
    both = (ay == infinity) & (ax == infinity)
    quotient = hl.select(both, literal(x, 1.0), hl.select((ay == zero) & (ax == zero), zero, ay / ax))
    angle = atan(quotient)
    integer = INT64 if is_double(x) else INT32
    angle = hl.select(hl.reinterpret(integer, x) < 0, pi - angle, angle)
    result = hl.select(hl.reinterpret(integer, y) < 0, negate(angle), angle)
    return hl.select(hl.is_nan(x) | hl.is_nan(y), literal(x, math.nan), result)


def remainder(x: Expr, y: Expr) -> Expr:
    """Return C's ``fmod``, with the sign of ``x``: exact while the quotient is below 2**66."""
    a, b = widen(absolute(x)), widen(absolute(y))
    zero, rest = hl.f64(0.0), a
    high = _truncated(b, 27)
    low = b - high
    for _ in range(3):
        # The upper 24 bits of the quotient times each half of b are exact products.
        quotient = hl.trunc(_truncated(rest / b, 29))
        rest = (rest - high * quotient) - low * quotient
    rest = hl.select(rest < zero, rest + b, hl.select(rest >= b, rest - b, rest))
    rest = hl.select((b == hl.f64(math.inf)) & (a < b), a, rest)
    return with_sign(rest if is_double(x) else hl.cast(FLOAT32, rest), x)


def _truncated(x: Expr, bits: int) -> Expr:
    """Return a float64 with its lowest bits cleared."""
    return hl.reinterpret(FLOAT64, hl.reinterpret(UINT64, x) & hl.u64(2**64 - 2**bits))


UNARY: dict[str, Callable[[Expr], Expr]] = {
    "exp": exp, "expm1": expm1, "log": log, "log1p": log1p, "erf": erf, "sin": sin, "cos": cos, "tan": tan, "asin": asin,
    "acos": acos, "atan": atan, "sinh": sinh, "cosh": cosh, "tanh": tanh, "asinh": asinh, "acosh": acosh, "atanh": atanh,
    "sigmoid": sigmoid, "softplus": softplus, "mish": mish,
}  # fmt: skip
"""Functions of one floating-point operand by their names in ``kernel.expression``."""
