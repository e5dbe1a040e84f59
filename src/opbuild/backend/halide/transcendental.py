"""Transcendental functions: of powers of e, general powers, and of angles. See ``mathematics``.

``x = n ln 2 + r`` with an integer ``n``: a polynomial in ``r``, times 2 to the power of ``n``. ``n`` is found by adding
a number so large that it stands in the low bits of the sum, from where one shift makes it a float's exponent.
Polynomials are fitted by Lawson's algorithm; ``EXP``, whose lowest two coefficients are 1, is 1e-7 off. NaN goes
through all of it, as through any arithmetic.

Powers and remainders go by way of float64, in which a float32 result comes out right; sine, cosine, tangent and their
inverses are Cephes' polynomials, of angles reduced in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import halide as hl

from opbuild.backend.halide.mathematics import (
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    ROUNDER,
    UINT32,
    UINT64,
    Expr,
    absolute,
    bounded,
    clip,
    contracted,
    is_double,
    literal,
    narrow,
    negate,
    one,
    polynomial,
    restore_nan,
    widen,
    with_sign,
    zero,
)

Function = Callable[[Expr], Expr]

LN2, LN2_REST = 0.693145751953125, 1.4286068202862268e-6
"""The first 16 bits of ln 2, and what they lack."""

EXP = (8.3125215e-3, 4.1890144e-2, 1.66671157e-1, 4.9999231e-1, 1.0, 1.0)
EXPM1 = (1.38145405799e-3, 8.36874544620e-3, 4.16683889925e-2, 1.66665211320e-1, 4.99999940395e-1)
"""``exp(r)``, and ``(expm1(r) - r) / r**2``."""


def _shifted(x: Expr, bias: int) -> Expr:
    """Return a float32 in whose low bits ``n + bias`` stands; ``n`` is the nearest integer to ``x / ln 2``."""
    return contracted(lambda x: x * hl.f32(1.44269504088896341) + hl.f32(ROUNDER + bias), x)


def _power(shifted: Expr) -> Expr:
    """Return 2 to the power of the low bits, less 127; 0 and infinity where these are 0 and 255."""
    return hl.reinterpret(FLOAT32, hl.reinterpret(UINT32, shifted) << 23)


def _series(x: Expr, shifted: Expr, bias: int, coefficients: Sequence[float]) -> tuple[Expr, Expr]:
    """Return ``r = x - n ln 2`` and a polynomial of it, in a contracted formula.

    The first difference is exact with fused multiply-add or without, as its factors have 8 bits and 16. The compiler
    would make a single difference of both, which is not exact, if the first one served for nothing else: so it is what
    the highest power is made of, where it is near enough (1.8e-4 off at most).
    """
    n = hl.strict_float(shifted - hl.f32(ROUNDER + bias))
    near = x - n * hl.f32(LN2)
    r = near - n * hl.f32(LN2_REST)
    result = near * hl.f32(coefficients[0]) + hl.f32(coefficients[1])
    for coefficient in coefficients[2:]:
        result = result * r + hl.f32(coefficient)
    return r, result


def _twice_rest(x: Expr, shifted: Expr, bias: int) -> Expr:
    """Return ``2 exp(x - n ln 2)``."""
    doubled = [2.0 * coefficient for coefficient in EXP]
    return contracted(lambda x, shifted: _series(x, shifted, bias, doubled)[1], x, shifted)


def exp(x: Expr) -> Expr:
    """Return e to the power of ``x``, down to the last denormal."""
    if is_double(x):
        return hl.exp(x)
    x = clip(x, hl.f32(-104.5), hl.f32(89.4))
    # Half the power of two, or it would overflow where the result does not. Multiplications that give a denormal take
    # several times as long as others, so the multiples of the least denormal are counted: they are its bits.
    shifted = _shifted(x, 126)
    tiny = shifted < hl.f32(ROUNDER + 1.0)
    raised = hl.reinterpret(UINT32, shifted) + hl.select(tiny, hl.u32(149), hl.u32(0))
    scaled = _twice_rest(x, shifted, 126) * _power(raised)
    return hl.select(tiny, hl.reinterpret(FLOAT32, hl.cast(INT32, scaled + hl.f32(0.5))), scaled)


def exp_below_zero(x: Expr) -> Expr:
    """Return e to the power of a float32 ``x <= 0`` or NaN, as softmax takes it of each score; below 2**-126.5 it is 0.

    Cheaper than ``exp``: no upper limit to care for, and no denormal.
    """
    x = hl.strict_float(hl.select(x < hl.f32(-88.0), hl.f32(-88.0), x))
    shifted = _shifted(x, 127)
    return contracted(lambda x, shifted: _series(x, shifted, 127, EXP)[1], x, shifted) * _power(shifted)


def half_exp(x: Expr) -> Expr:
    """Return ``exp(x) / 2`` of a float32 that is at least 0, without overflow before the end."""
    x = clip(x, hl.f32(0.0), hl.f32(90.0))
    shifted = _shifted(x, 125)
    return _twice_rest(x, shifted, 125) * _power(shifted)


def sigmoid(x: Expr) -> Expr:
    """Return ``1 / (1 + exp(-x))``; float32: accurate in the far tail too, 0 where that is below 2**-127.5."""
    if is_double(x):
        e = exp(negate(absolute(x)))
        return hl.select(x < zero(x), e, one(x)) / (one(x) + e)

    x = clip(x, hl.f32(-88.7), hl.f32(88.0))
    shifted = contracted(lambda x: _shifted(-x, 127), x)
    rest = contracted(lambda x, shifted: _series(-x, shifted, 127, EXP)[1], x, shifted)
    return hl.f32(1.0) / (hl.f32(1.0) + rest * _power(shifted))


def expm1(x: Expr) -> Expr:
    """Return ``exp(x) - 1``, accurate near zero too."""
    if is_double(x):
        # Kahan: the error of log(u) cancels that of u - 1.
        u, one = hl.exp(x), literal(x, 1.0)
        middle = (u - one) * x / hl.log(u)
        outer = hl.select(x < literal(x, -40.0), -one, hl.select(x > literal(x, 40.0), u, middle))
        return hl.select(u == one, x, outer)

    def rest(x: Expr, shifted: Expr) -> Expr:
        r, above = _series(x, shifted, 126, EXPM1)
        return above * (r * r) + r

    limited = clip(x, hl.f32(-20.0), hl.f32(88.9))
    shifted = _shifted(limited, 126)
    q, half = contracted(rest, limited, shifted), _power(shifted)
    near = (half * q + (half - hl.f32(0.5))) * hl.f32(2.0)
    return hl.select(absolute(x) < hl.f32(1e-7), x, near)


def sinh(x: Expr) -> Expr:
    """Return the hyperbolic sine."""
    if is_double(x):
        return hl.sinh(x)
    half = half_exp(absolute(x))
    square = x * x
    near = polynomial(square, (2.03721912945e-4, 8.33028376239e-3, 1.66667160211e-1)) * square * x + x
    return hl.select(absolute(x) < hl.f32(1.0), near, with_sign(half - hl.f32(0.25) / half, x))


def cosh(x: Expr) -> Expr:
    """Return the hyperbolic cosine."""
    if is_double(x):
        return hl.cosh(x)
    half = half_exp(absolute(x))
    return half + hl.f32(0.25) / half


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


PI_2_HIGH, PI_2_MIDDLE, PI_2_LOW = 1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21
"""pi / 2 in three float64 parts of which the first two have 33 bits, so that small multiples are exact."""


TURNS = (
    float.fromhex("0x1.45f306cp-3"), float.fromhex("0x1.c9c882ap-31"), float.fromhex("0x1.4fe13a8p-61"),
    float.fromhex("0x1.f47d4d3p-88"), float.fromhex("0x1.dc0db62p-118"), float.fromhex("0x1.2b32788720840p-147"),
)  # fmt: skip
"""1 / (2 pi) in float64 parts of which all but the last have 29 bits, so that products with a float32 are exact."""


def quadrant(x: Expr) -> tuple[Expr, Expr]:
    """Return the quadrant (0 to 3) and the remaining angle of a float64 that was a float32."""
    near = hl.round(x * hl.f64(2.0 / math.pi))
    rest = ((x - near * hl.f64(PI_2_HIGH)) - near * hl.f64(PI_2_MIDDLE)) - near * hl.f64(PI_2_LOW)
    turned = _turned(x)
    far = hl.round(turned)
    is_far = absolute(x) > hl.f64(2.0**20)  # from there on multiples of the first part are not exact
    n = hl.select(is_far, far, near)
    rest = hl.select(is_far, (turned - far) * hl.f64(math.pi / 2), rest)
    return n - hl.f64(4.0) * hl.floor(n * hl.f64(0.25)), rest


def _turned(x: Expr) -> Expr:
    """Return the quarters of a turn in an angle, without its whole turns: Payne and Hanek's reduction."""
    *parts, last = [x * hl.f64(part) for part in TURNS]
    left = sum((part - hl.round(part) for part in parts[1:]), parts[0] - hl.round(parts[0]))
    return (left + last) * hl.f64(4.0)


def _quadrant(x: Expr) -> tuple[Expr, Expr]:
    """Return the quadrant (float64) and the remaining angle (float32) of a float32 angle."""
    number, rest = quadrant(widen(x))
    return number, hl.cast(FLOAT32, rest)


def _small_sin(r: Expr) -> Expr:
    square = r * r
    return polynomial(square, (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)) * square * r + r


def _small_cos(r: Expr) -> Expr:
    square = r * r
    p = polynomial(square, (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2))
    return (p * square * square - hl.f32(0.5) * square) + hl.f32(1.0)


def is_in(q: Expr, first: float, second: float) -> Expr:
    """Return whether a quadrant is one of two."""
    return (q == hl.f64(first)) | (q == hl.f64(second))


def sin(x: Expr) -> Expr:
    """Return the sine of an angle in radians."""
    return hl.sin(x) if is_double(x) else _of_angle(x, _small_sin, _small_cos, (2.0, 3.0))


def cos(x: Expr) -> Expr:
    """Return the cosine of an angle in radians."""
    return hl.cos(x) if is_double(x) else _of_angle(x, _small_cos, _small_sin, (1.0, 2.0))


def _of_angle(x: Expr, straight: Function, turned: Function, negative: tuple[float, float]) -> Expr:
    """Return a function of the rest of an angle, another one in odd quadrants, negated in two of them."""
    q, r = _quadrant(x)
    value = hl.select(is_in(q, 1.0, 3.0), turned(r), straight(r))
    return hl.select(is_in(q, *negative), negate(value), value)


def tan(x: Expr) -> Expr:
    """Return the tangent of an angle in radians."""
    if is_double(x):
        return hl.tan(x)
    q, r = _quadrant(x)
    s, c = _small_sin(r), _small_cos(r)
    turned = is_in(q, 1.0, 3.0)
    return hl.select(turned, negate(c), s) / hl.select(turned, s, c)


def _asin_parts(x: Expr) -> tuple[Expr, Expr]:
    """Return whether a number is beyond a half, and the arc sine of its magnitude or half of the rest to a turn."""
    a = absolute(x)
    outer = a > hl.f32(0.5)
    z = hl.select(outer, hl.f32(0.5) * (hl.f32(1.0) - a), a * a)
    w = hl.select(outer, hl.sqrt(z), a)
    p = polynomial(z, (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1))
    return outer, p * z * w + w


def asin(x: Expr) -> Expr:
    """Return the arc sine; NaN outside -1 to 1."""
    if is_double(x):
        return hl.asin(x)
    outer, y = _asin_parts(x)
    return with_sign(hl.select(outer, hl.f32(math.pi / 2) - (y + y), y), x)


def acos(x: Expr) -> Expr:
    """Return the arc cosine; NaN outside -1 to 1."""
    if is_double(x):
        return hl.acos(x)
    outer, y = _asin_parts(x)
    far = hl.select(x < hl.f32(0.0), hl.f32(math.pi) - (y + y), y + y)
    return hl.select(outer, far, hl.f32(math.pi / 2) - with_sign(y, x))


def atan(x: Expr) -> Expr:
    """Return the arc tangent."""
    if is_double(x):
        return hl.atan(x)
    start, z = atan_parts(x)
    square = z * z
    p = polynomial(square, (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1))
    return with_sign(start + (p * square * z + z), x)


def atan_parts(x: Expr) -> tuple[Expr, Expr]:
    """Return an angle, and the tangent of the rest of the magnitude's arc tangent: below a half."""
    a, one = absolute(x), literal(x, 1.0)
    far, middle = a > literal(x, math.sqrt(2.0) + 1.0), a > literal(x, math.sqrt(2.0) - 1.0)
    start = hl.select(far, literal(x, math.pi / 2), hl.select(middle, literal(x, math.pi / 4), literal(x, 0.0)))
    return start, hl.select(far, -one / a, hl.select(middle, (a - one) / (a + one), a))


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
