"""Special functions: gamma, zeta, Bessel and their kin, computed on data."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore import names
from opbuild.mindspore.execution import in_floats, on_data
from opbuild.mindspore.ops.arithmetic import div, exp, mul, neg, where
from opbuild.mindspore.ops.declaration import formula, named, spelled

_ANGLES = (np.arange(256) + 0.5) * math.pi / 256
_STEPS = np.linspace(0, 1, 1025)
_EULER_MACLAURIN = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000)

lgamma = formula("the logarithm of the absolute value of the gamma function of each element",
                 in_floats(lambda input: _each(_lgamma, input)))  # fmt: skip
zeta = formula("Hurwitz's zeta function: the sum of ``(k + other) ** -input`` over all k",
               in_floats(lambda input, other: _zeta(input, np.asarray(other, np.float64))))  # fmt: skip
igamma = formula("the regularized lower incomplete gamma function of shape ``input`` at ``other``",
                 in_floats(lambda input, other: _each(lambda a, x: _incomplete(a, x)[0], input, other)))  # fmt: skip
igammac = formula("the regularized upper incomplete gamma function of shape ``input`` at ``other``",
                  in_floats(lambda input, other: _each(lambda a, x: _incomplete(a, x)[1], input, other)))  # fmt: skip
betainc = formula("the regularized incomplete beta function of shapes ``a`` and ``b`` at ``x``",
                  in_floats(lambda a, b, x: _each(_beta, a, b, x)))  # fmt: skip


def _lgamma(value: float) -> float:
    if math.isnan(value):
        return value
    return math.inf if math.isinf(value) or (value <= 0 and value == int(value)) else math.lgamma(value)


def _each(function: Any, *arrays: Any) -> Array:
    return np.asarray(np.vectorize(function, otypes=[np.float64])(*arrays))


@in_floats
def digamma(input: Any) -> Any:
    """Return the derivative of ``lgamma`` at each element."""
    poles = (input <= 0) & (input == np.floor(input))
    small = input < 0.5
    high = np.where(small, 1 - input, input)
    result = np.zeros_like(high)
    for _ in range(10):  # the series below converges from 6 on
        low = high < 6
        result -= np.where(low, 1 / np.where(low, high, 1), 0)
        high = high + low
    inverse = 1 / (high * high)
    series = inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse * (1 / 240 - inverse / 132))))
    result += np.log(high) - 0.5 / high - series
    result = np.where(small, result - math.pi / np.tan(math.pi * input), result)
    return np.where(poles, np.nan, result)


@in_floats
def erfinv(input: Any) -> Any:
    """Return the number whose ``erf`` each element is."""
    log = np.log1p(-input * input)
    first = 2 / (math.pi * 0.147) + log / 2
    guess = np.sign(input) * np.sqrt(np.sqrt(first * first - log / 0.147) - first)
    for _ in range(4):
        guess = guess - (_each(math.erf, guess) - input) * math.sqrt(math.pi) / 2 * np.exp(guess * guess)
    guess = np.where(input == 0, input, guess)
    return np.where(np.abs(input) == 1, np.sign(input) * np.inf, guess)


def _zeta(exponent: Array, start: Array) -> Array:
    exponent, start = np.broadcast_arrays(exponent, start)
    total = sum((start + k) ** -exponent for k in range(12))
    last = start + 12
    total = total + last ** (1 - exponent) / (exponent - 1) + 0.5 * last**-exponent
    factor = exponent * last ** (-exponent - 1)
    for k, weight in enumerate(_EULER_MACLAURIN):
        total = total + weight * factor
        factor = factor * (exponent + 2 * k + 1) * (exponent + 2 * k + 2) / (last * last)
    return np.asarray(np.where(exponent > 1, total, np.where(exponent == 1, np.inf, np.nan)))


def polygamma(n: Any, input: Any) -> Any:
    """Return the ``n``-th derivative of ``digamma`` at each element."""
    order = int(n if isinstance(n, int) else n.asnumpy().item())
    return digamma(input) if order == 0 else _polygamma(input, order)


@in_floats
def _polygamma(input: Any, order: int) -> Any:
    return (-1) ** (order + 1) * math.factorial(order) * _zeta(np.asarray(order + 1.0), input)


def _incomplete(a: float, x: float) -> tuple[float, float]:
    """Return the lower and the upper part: by the series below ``a + 1``, else by the continued fraction."""
    if not (a > 0 and x >= 0):
        return math.nan, math.nan
    if x == 0:
        return 0.0, 1.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for k in range(1, 500):
            term *= x / (a + k)
            total += term
        return total * scale, 1 - total * scale
    b, c, d = x + 1 - a, 1e300, 1 / (x + 1 - a)
    fraction = d
    for k in range(1, 500):
        factor = -k * (k - a)
        b += 2
        d, c = 1 / (factor * d + b), b + factor / c
        fraction *= d * c
    return 1 - fraction * scale, fraction * scale


def _beta(a: float, b: float, x: float) -> float:
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(b, a, 1 - x)
    scale = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 300):
        for factor in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                       -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):  # fmt: skip
            d, c = 1 / (1 + factor * d), 1 + factor / c
            fraction *= d * c
    return scale * fraction


@in_floats
def mvlgamma(input: Any, p: int) -> Any:
    """Return the logarithm of the multivariate gamma function of dimension ``p``."""
    return p * (p - 1) / 4 * math.log(math.pi) + sum(_each(_lgamma, input - j / 2) for j in range(p))


def _first_kind(order: int, oscillating: bool) -> Any:
    """Return the Bessel function J (oscillating) or I scaled by ``exp(-|x|)``, as an integral over half a period."""

    def function(x: Any) -> Any:
        x = x[..., None]
        if oscillating:
            return np.cos(order * _ANGLES - x * np.sin(_ANGLES)).mean(-1)
        return (np.exp(x * np.cos(_ANGLES) - np.abs(x)) * np.cos(order * _ANGLES)).mean(-1)

    name = f"bessel_j{order}" if oscillating else f"bessel_i{order}e"
    doc = f"Return the Bessel function of the first kind of order {order} of each element."
    return in_floats(named(function, name, doc))


def _second_kind(order: int) -> Any:
    """Return the modified Bessel function K scaled by ``exp(x)``: an integral that vanishes doubly exponentially."""

    def function(x: Any) -> Any:
        positive = np.where(x > 0, x, 1.0)[..., None]
        end = np.arccosh(1 + 750 / positive)
        t = end * _STEPS
        values = np.exp(-positive * (np.cosh(t) - 1)) * np.cosh(order * t)
        result = (values.sum(-1) - (values[..., 0] + values[..., -1]) / 2) / 1024 * end[..., 0]
        return np.where(x > 0, result, np.where(x == 0, np.inf, np.nan))

    doc = f"Return the modified Bessel function K of order {order} of each element times ``exp(x)``."
    return in_floats(named(function, f"bessel_k{order}e", doc))


@lru_cache(maxsize=1)
def _legendre() -> tuple[Array, Array]:
    """Return places from 0 to 1 and their weights in an integral; they take 0.1 s to compute."""
    nodes, weights = np.polynomial.legendre.leggauss(256)
    return (1 + nodes) / 2, weights / 2


def _neumann(order: int) -> Any:
    """Return the Bessel function Y: one integral oscillates over half a period, another vanishes exponentially."""

    def function(x: Any) -> Any:
        nodes, weights = _legendre()
        positive = np.where(x > 0, x, 1.0)[..., None]
        angles = math.pi * nodes
        oscillating = (np.sin(positive * np.sin(angles) - order * angles) * weights).sum(-1)
        end = np.arcsinh(750 / positive)
        t = end * nodes
        growing = np.exp(order * t) + (-1) ** order * np.exp(-order * t)
        vanishing = (growing * np.exp(-positive * np.sinh(t)) * weights).sum(-1) * end[..., 0] / math.pi
        return np.where(x > 0, oscillating - vanishing, np.where(x == 0, -np.inf, np.nan))

    doc = f"Return the Bessel function of the second kind of order {order} of each element."
    return in_floats(named(function, f"bessel_y{order}", doc))


bessel_y0, bessel_y1 = _neumann(0), _neumann(1)
bessel_j0, bessel_j1 = _first_kind(0, True), _first_kind(1, True)
bessel_i0e, bessel_i1e = _first_kind(0, False), _first_kind(1, False)
bessel_k0e, bessel_k1e = _second_kind(0), _second_kind(1)


def _unscaled(scaled: Any, name: str, order: int) -> Any:
    def function(x: Any) -> Any:
        return mul(scaled(x), exp(where(x > 0, x, neg(x)))) if name == "i" else div(scaled(x), exp(x))

    what = f"Return the modified Bessel function {name.upper()} of order {order} of each element."
    return named(function, f"bessel_{name}{order}", what)


bessel_i0, bessel_i1 = _unscaled(bessel_i0e, "i", 0), _unscaled(bessel_i1e, "i", 1)
bessel_k0, bessel_k1 = _unscaled(bessel_k0e, "k", 0), _unscaled(bessel_k1e, "k", 1)
i0 = spelled(bessel_i0, input="x")


def _of_two(name: str, what: str) -> Any:
    def function(input: Any, other: Any) -> Any:
        return getattr(np, name)(input, other)

    return on_data(named(function, name, f"Return {what}."))


gcd = _of_two("gcd", "the greatest common divisors of integers")
lcm = _of_two("lcm", "the least common multiples of integers")
nextafter = _of_two("nextafter", "the next float after each element of ``input`` towards ``other``")


@on_data
def population_count(input_x: Any) -> Any:
    """Return the number of set bits of each integer, as uint8."""
    octets = np.ascontiguousarray(input_x).view(np.uint8).reshape(*input_x.shape, input_x.itemsize)
    return np.unpackbits(octets, axis=-1).sum(-1).astype(np.uint8)


names.export(vars(), but="betainc")
