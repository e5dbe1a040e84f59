"""Functions made of e to the power of a number: exp, expm1, sigmoid, sinh and cosh. See ``mathematics``.

``x = n ln 2 + r`` with an integer ``n``: a polynomial in ``r``, times 2 to the power of ``n``. ``n`` is found by adding
a number so large that it stands in the low bits of the sum, from where one shift makes it a float's exponent.
Polynomials are fitted by Lawson's algorithm; ``EXP``, whose lowest two coefficients are 1, is 1e-7 off. NaN goes
through all of it, as through any arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import halide as hl

from opbuild.backend.halide.mathematics import (
    FLOAT32,
    INT32,
    ROUNDER,
    UINT32,
    absolute,
    clip,
    contracted,
    is_double,
    literal,
    negate,
    one,
    polynomial,
    with_sign,
    zero,
)

Expr = Any
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
