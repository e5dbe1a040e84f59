"""Functions of a float32 that come out as the nearest float32, almost always: computed in float64 and rounded once.

This is what the implementation mode ``high_precision`` compiles in place of the functions in ``mathematics`` and
``transcendental``. All of it is vector code. The polynomials are exact to 1e-11 or better, ten thousand times finer
than a float32, so a result is wrong only where the true value lies that close to the middle between two neighbours:
errors are below 0.501 ulp, denormals included.

The functions of the first part take finite float64 numbers in a range that keeps everything finite; ``limited`` limits
the argument to that range and puts the values beyond it, infinities and NaN in place.
"""

# ruff: noqa: F401 - formulas read the primitives by name

from __future__ import annotations

import math
from collections.abc import Callable

import halide as hl

from opbuild.backend.halide.mathematics import (
    FLOAT32,
    FLOAT64,
    Expr,
    absolute,
    bounded,
    literal,
    narrow,
    polynomial,
    relu,
    restore_nan,
    widen,
    with_sign,
    zero,
)
from opbuild.backend.halide.transcendental import (
    Function,
    atan_parts,
    exp2_double,
    is_in,
    log2_double,
    quadrant,
    split_power,
)

GREATEST = 3.4028234663852886e38
"""The greatest finite float32."""

ERFC = (
    -6.186830695331087e-08, 1.2975590611864413e-07, 3.51396109793611e-07, -1.6079051699633857e-06,
    6.712484429319372e-07, 1.0372939921158708e-05, -2.5343493396112335e-05, -4.146185782488172e-05,
    0.00029106424035938794, 6.249064377401305e-05, -0.0032382259352389687, -0.0008796663153133097,
    0.04888688630066822, 0.20046591087810373, 0.42928972402783266, 0.3251787659438862,
)  # fmt: skip
"""``erfc(z) exp(z z)`` for z from 0 to 10.5 as a polynomial in ``t = 2 / (2 + z)`` mapped from 0.15..1 to -1..1.

Interpolated at the Chebyshev nodes with 40 digits; relative error 6e-12.
"""


select = hl.select


def exp(x: Expr) -> Expr:
    """Return e to the power of a float64 from -600 to 600."""
    return exp2_double(x * hl.f64(1.0 / math.log(2.0)))


def expm1(x: Expr) -> Expr:
    """Return ``exp(x) - 1``, accurate near zero too, for x from -600 to 600."""
    rest, scale = split_power(x * hl.f64(1.0 / math.log(2.0)))
    near = polynomial(rest, [1.0 / math.factorial(k) for k in range(12, 0, -1)]) * rest
    return hl.select(x == hl.f64(0.0), x, scale * near + (scale - hl.f64(1.0)))


def log(x: Expr) -> Expr:
    """Return the natural logarithm of a positive number."""
    return log2_double(x) * hl.f64(math.log(2.0))


def log1p(x: Expr) -> Expr:
    """Return ``log(1 + x)`` for ``x > -1``; the factor ``x / d`` mends the rounding of ``1 + x``."""
    u = hl.f64(1.0) + x
    d = u - hl.f64(1.0)
    return hl.select(d == hl.f64(0.0), x, log(u) * (x / d))


def tanh(x: Expr) -> Expr:
    """Return the hyperbolic tangent of a number from -100 to 100."""
    t = expm1(absolute(x) * hl.f64(2.0))
    return with_sign(t / (t + hl.f64(2.0)), x)


def sigmoid(x: Expr) -> Expr:
    """Return ``1 / (1 + exp(-x))``."""
    return hl.f64(1.0) / (hl.f64(1.0) + exp(-x))


def erfc(z: Expr) -> Expr:
    """Return ``1 - erf(z)`` for z from 0 to 10.5, to 1e-11 of itself."""
    t = hl.f64(2.0) / (hl.f64(2.0) + z)
    mapped = t * hl.f64(2.0 / 0.85) - hl.f64(2.0 * 0.15 / 0.85 + 1.0)
    return exp(-(z * z)) * polynomial(mapped, ERFC)


def erf(x: Expr) -> Expr:
    """Return the error function: its series below 0.5, the complement of ``erfc`` above."""
    a = absolute(x)
    square = x * x
    series = [2.0 / math.sqrt(math.pi) * (-1.0) ** k / (math.factorial(k) * (2 * k + 1)) for k in range(9, -1, -1)]
    return with_sign(hl.select(a < hl.f64(0.5), a * polynomial(square, series), hl.f64(1.0) - erfc(a)), x)


def gelu(x: Expr) -> Expr:
    """Return ``x`` times the normal distribution, accurate in the far negative tail too."""
    half = erfc(absolute(x) * hl.f64(math.sqrt(0.5))) * hl.f64(0.5)
    return x * hl.select(x < hl.f64(0.0), half, hl.f64(1.0) - half)


def gelu_tanh(x: Expr) -> Expr:
    """Return GELU by its approximation, ``x / 2 (1 + tanh(y))``, which is ``x sigmoid(2 y)``."""
    y = hl.f64(math.sqrt(2.0 / math.pi)) * (x + hl.f64(0.044715) * (x * x * x))
    return x * sigmoid(y * hl.f64(2.0))


def silu(x: Expr) -> Expr:
    """Return ``x * sigmoid(x)``."""
    return x * sigmoid(x)


def softplus(x: Expr) -> Expr:
    """Return ``log(1 + exp(x))``."""
    return log1p(exp(-absolute(x))) + relu(x)


def mish(x: Expr) -> Expr:
    """Return ``x * tanh(softplus(x))`` for x up to 100."""
    e = exp(x)
    n = e * (e + hl.f64(2.0))
    return x * (n / (n + hl.f64(2.0)))


def sinh(x: Expr) -> Expr:
    """Return the hyperbolic sine."""
    t = expm1(absolute(x))
    return with_sign((t + t / (t + hl.f64(1.0))) * hl.f64(0.5), x)


def cosh(x: Expr) -> Expr:
    """Return the hyperbolic cosine."""
    e = exp(absolute(x))
    return (e + hl.f64(1.0) / e) * hl.f64(0.5)


def asinh(x: Expr) -> Expr:
    """Return the inverse hyperbolic sine."""
    a = absolute(x)
    square = a * a
    return with_sign(log1p(a + square / (hl.f64(1.0) + hl.sqrt(square + hl.f64(1.0)))), x)


def acosh(x: Expr) -> Expr:
    """Return the inverse hyperbolic cosine of a number of at least 1."""
    t = x - hl.f64(1.0)
    return log1p(t + hl.sqrt(t * (x + hl.f64(1.0))))


def atanh(x: Expr) -> Expr:
    """Return the inverse hyperbolic tangent of a number between -1 and 1."""
    a = absolute(x)
    return with_sign(hl.f64(0.5) * log1p((a + a) / (hl.f64(1.0) - a)), x)


# -- angles -----------------------------------------------------------------------------------------------------------


def _small_sin(r: Expr) -> Expr:
    return polynomial(r * r, [(-1.0) ** k / math.factorial(2 * k + 1) for k in range(8, -1, -1)]) * r


def _small_cos(r: Expr) -> Expr:
    return polynomial(r * r, [(-1.0) ** k / math.factorial(2 * k) for k in range(8, -1, -1)])


def _turned(x: Expr, straight: Function, turned: Function, negative: tuple[float, float]) -> Expr:
    q, r = quadrant(x)
    value = hl.select(is_in(q, 1.0, 3.0), turned(r), straight(r))
    return hl.select(is_in(q, *negative), -value, value)


def sin(x: Expr) -> Expr:
    """Return the sine of an angle in radians."""
    return _turned(x, _small_sin, _small_cos, (2.0, 3.0))


def cos(x: Expr) -> Expr:
    """Return the cosine of an angle in radians."""
    return _turned(x, _small_cos, _small_sin, (1.0, 2.0))


def tan(x: Expr) -> Expr:
    """Return the tangent of an angle in radians."""
    q, r = quadrant(x)
    s, c = _small_sin(r), _small_cos(r)
    turned = is_in(q, 1.0, 3.0)
    return hl.select(turned, -c, s) / hl.select(turned, s, c)


def atan(x: Expr) -> Expr:
    """Return the arc tangent, of an infinite number too."""
    start, z = atan_parts(x)
    series = polynomial(z * z, [(-1.0) ** k / (2 * k + 1) for k in range(14, -1, -1)])
    return with_sign(start + z * series, x)


def asin(x: Expr) -> Expr:
    """Return the arc sine of a number from -1 to 1."""
    one = hl.f64(1.0)
    return atan(x / hl.sqrt((one - x) * (one + x)))


def acos(x: Expr) -> Expr:
    """Return the arc cosine of a number from -1 to 1."""
    one = hl.f64(1.0)
    return hl.f64(2.0) * atan(hl.sqrt((one - x) / (one + x)))


# -- functions of a float32 -------------------------------------------------------------------------------------------


def wide(x: Expr, low: float = -GREATEST, high: float = GREATEST) -> Expr:
    """Return a float32 limited to a range as float64; NaN becomes one of the bounds."""
    return hl.cast(FLOAT64, bounded(x, low, high))


def rounded(x: Expr) -> Expr:
    """Return a float64 as float32."""
    return hl.cast(FLOAT32, x)


def limited(
    function: Function,
    x: Expr,
    low: float = -GREATEST,
    high: float = GREATEST,
    below: float = math.nan,
    above: float | None = math.inf,
    lowest: float | None = None,
) -> Expr:
    """Return a function of a float32 made of one of a float64.

    Args:
        function: What is computed, on float64 numbers from ``low`` to ``high``.
        x: The argument.
        low: The least argument that the function is given.
        high: The greatest.
        below: The value below ``low``.
        above: The value above ``high``; None: the argument itself.
        lowest: The value at minus infinity, if not ``below``.
    """
    value = rounded(function(wide(x, low, high)))
    value = hl.select(x < hl.f32(low), literal(x, below), value)
    value = hl.select(x > hl.f32(high), x if above is None else hl.f32(above), value)
    if lowest is not None:
        value = hl.select(x == hl.f32(-math.inf), hl.f32(lowest), value)
    return restore_nan(x, value)


def pole(x: Expr, place: float, value: Expr) -> Expr:
    """Return a value, or minus infinity where the argument is at a pole."""
    return hl.select(x == hl.f32(place), hl.f32(-math.inf), value)


def poles(x: Expr, place: float, value: Expr) -> Expr:
    """Return a value, or infinity with the argument's sign where that is at one of two opposite poles."""
    return hl.select(absolute(x) == hl.f32(place), with_sign(hl.f32(math.inf), x), value)
