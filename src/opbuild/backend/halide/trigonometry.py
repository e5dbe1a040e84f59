"""Sine, cosine, tangent and their inverses as Halide expressions: Cephes' polynomials, angles reduced in float64."""

from __future__ import annotations

import math

import halide as hl

from opbuild.backend.halide.mathematics import (
    FLOAT32,
    INT32,
    INT64,
    Expr,
    absolute,
    is_double,
    literal,
    negate,
    polynomial,
    widen,
    with_sign,
)

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
    if is_double(x):
        return hl.sin(x)
    q, r = _quadrant(x)
    value = hl.select(is_in(q, 1.0, 3.0), _small_cos(r), _small_sin(r))
    return hl.select(is_in(q, 2.0, 3.0), negate(value), value)


def cos(x: Expr) -> Expr:
    """Return the cosine of an angle in radians."""
    if is_double(x):
        return hl.cos(x)
    q, r = _quadrant(x)
    value = hl.select(is_in(q, 1.0, 3.0), _small_sin(r), _small_cos(r))
    return hl.select(is_in(q, 1.0, 2.0), negate(value), value)


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
