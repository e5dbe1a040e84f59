"""Every function over the whole range of float32 and float64, against mpmath: as code, and as the host computes it.

Arguments are drawn with all exponents, near 0 and 1, and on both sides of the places where algorithms change, ulp by
ulp. A campaign draws more. Errors are counted in ulp, the distance of neighbouring numbers at the true value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from mpmath import mp, mpf

from kernels.test_expression_values import evaluate
from opbuild.operations.evaluation import evaluate_expression
from opbuild.operations.expression import Expression, arg
from opbuild.operations.table import OPERATIONS
from support.fuzzing import CAMPAIGN, SEED
from support.tiers import halved

Array = npt.NDArray[Any]
Exact = Callable[..., Any]

pytestmark = pytest.mark.timeout(14400 if CAMPAIGN else 300)

COUNT = CAMPAIGN or 40
"""Arguments of each kind."""

DIGITS = 240
"""Bits of true values."""


def _softplus(x: Any) -> Any:
    return max(x, mpf(0)) + mp.log1p(mp.exp(-abs(x)))


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def _gelu(x: Any) -> Any:
    return (x if x > 0 else mpf(0)) if abs(x) > 60 else x * mp.erfc(-x / mp.sqrt(2)) / 2


def _gelu_tanh(x: Any) -> Any:
    return x * _sigmoid(2 * mp.sqrt(2 / mp.pi) * (x + mpf("0.044715") * x**3))


UNARY: dict[str, Exact] = {
    "exp": mp.exp, "expm1": mp.expm1, "log": mp.log, "log1p": mp.log1p, "sin": mp.sin, "cos": mp.cos, "tan": mp.tan,
    "asin": mp.asin, "acos": mp.acos, "atan": mp.atan, "sinh": mp.sinh, "cosh": mp.cosh, "tanh": mp.tanh,
    "asinh": mp.asinh, "acosh": mp.acosh, "atanh": mp.atanh, "sqrt": mp.sqrt,
    "erf": lambda x: mp.erf(x) if abs(x) < 100 else mp.sign(x),
    "rsqrt": lambda x: 1 / mp.sqrt(x), "reciprocal": lambda x: 1 / x, "sigmoid": _sigmoid, "softplus": _softplus,
    "softsign": lambda x: x / (1 + abs(x)), "silu": lambda x: x * _sigmoid(x),
    "mish": lambda x: x * mp.tanh(_softplus(x)), "gelu": _gelu, "gelu_tanh": _gelu_tanh,
    "square": lambda x: x * x,
}  # fmt: skip


def _power(x: Any, y: Any) -> Any:
    return mp.nan if x < 0 and y != mp.floor(y) else mp.power(x, y)


def _remainder(x: Any, y: Any) -> Any:
    a, b = Fraction(float(x)), Fraction(float(y))
    rest = abs(a) % abs(b)
    return mpf(rest.numerator) / rest.denominator * (-1 if a < 0 else 1)


def _modulo(x: Any, y: Any) -> Any:
    rest = Fraction(float(x)) % Fraction(float(y))
    return mpf(rest.numerator) / rest.denominator


BINARY: dict[str, Exact] = {"pow": _power, "atan2": mp.atan2, "fmod": _remainder, "mod": _modulo}

ULP = {"float32": 5.0, "float64": 4.0}
"""What errors are below, but for ``TAILS``, ``STEEP`` and numbers below the least normal one."""

TAILS = {"gelu": 1.0, "gelu_tanh": 1.0, "silu": 1.0, "mish": 1.0}
"""Errors relative to the argument, in units of rounding, that activations of float32 have where they are small: what
``1 + erf`` leaves, or a sigmoid that is below the least normal number."""

STEEP: dict[str, Callable[[Array], Array]] = {
    "gelu": lambda x: 64 + 4 * x * x,
    "gelu_tanh": lambda x: 8 * (x + 0.044715 * x**3),
}
"""Functions that fall as the power of a square or a cube: how many ulp an argument's last digit is worth there, and
what is left of a float64 where the distribution is made of its complement."""

PLACES = (
    0.2, math.sqrt(0.5), 0.5, 1.0, math.sqrt(2) - 1, math.sqrt(2) + 1, math.pi / 2, math.pi, 1.75, 2.5, 3.92, 4.0, 6.0,
    7.0, 8.0, 8.5, 9.0, 18.5, 20.0, 22.0, 26.5, 28.0, 36.0, 38.0, 40.0, 88.0, 104.0, 350.0, 700.0, 709.78, 710.47,
    745.1, 1e-7, 1e5, 2.0**20, 1e8, 1e9, 2.0**26, 2.0**28, 2.0**53, 1e16, 1e17, 1e19, 1e22, 1e154, 1.34e154,
)  # fmt: skip
"""Where algorithms change, here and in libraries, and where results overflow."""


def arguments(dtype: str, rng: np.random.Generator) -> Array:
    """Return arguments in the whole range of a type."""
    kind, limits = np.dtype(dtype), np.finfo(dtype)
    signs = rng.choice([-1, 1], COUNT)
    places = np.array([each for each in PLACES if each <= float(limits.max)], kind)
    near = [places]
    for _ in range(3):
        near += [np.nextafter(near[-1] if len(near) % 2 else near[-2], kind.type(end)) for end in (np.inf, 0)]
    parts = [
        np.exp2(rng.uniform(limits.minexp - limits.nmant, limits.maxexp - 1e-3, COUNT)) * signs,
        np.exp2(rng.uniform(-12, 12, COUNT)) * signs,
        rng.uniform(-1, 1, COUNT),
        1 + signs * np.exp2(rng.uniform(-limits.nmant, 0, COUNT)),
        rng.uniform(-1, 1, COUNT) * (110 if dtype == "float32" else 750),
        np.concatenate(near),
        -np.concatenate(near),
    ]
    return np.unique(np.concatenate([part.astype(kind) for part in parts]))


def errors(got: Array, wanted: list[Any]) -> Array:
    """Return errors in ulp: infinity for NaN or infinity in the place of a number, or the other way round."""
    limits = np.finfo(got.dtype)
    tiny, most = mpf(2) ** (limits.minexp - limits.nmant), mpf(float(limits.max)) * (1 + mpf(2) ** -(limits.nmant + 2))

    def one(value: Any, true: Any) -> float:
        if mp.isnan(true):
            return 0.0 if np.isnan(value) else math.inf
        if abs(true) > most:
            near = mpf(float(value)) / true if np.isfinite(value) else 1 if value * mp.sign(true) > 0 else 0
            return 0.0 if abs(near - 1) < mpf(2) ** (3 - limits.nmant) else math.inf
        if np.isinf(value) and abs(true) * (1 + mpf(2) ** (2 - limits.nmant)) > float(limits.max):
            return 1.0
        if not np.isfinite(value):
            return math.inf
        spacing = max(tiny, mpf(2) ** (mp.floor(mp.log(abs(true), 2)) - limits.nmant)) if true else tiny
        return float(abs(mpf(float(value)) - true) / spacing)

    return np.array([one(value, true) for value, true in zip(got, wanted, strict=True)])


def bounds(name: str, how: str, x: Array, wanted: list[Any]) -> Array:
    """Return the most ulp that errors may have."""
    limits, true = np.finfo(x.dtype), np.abs(np.array([0.0 if mp.isnan(each) else float(each) for each in wanted]))
    with np.errstate(all="ignore"):
        spacing = np.maximum(np.spacing(true.astype(x.dtype)).astype("f8"), float(limits.smallest_subnormal))
        most = np.full(x.shape, ULP[str(x.dtype)])
        if name in STEEP:
            most += STEEP[name](np.minimum(np.abs(x.astype("f8")), 40))
        # Below the least normal number there are few digits, of what results are made of too.
        most += float(limits.smallest_normal) * np.maximum(1, np.abs(x.astype("f8"))) * 4 / spacing
        if x.dtype == np.float32 and name in TAILS and how == "code":
            most += TAILS[name] * float(limits.eps) * np.minimum(np.abs(x.astype("f8")), 1e4) / spacing
    return np.where(np.isfinite(most), most, ULP[str(x.dtype)])


def check(expression: Expression, operands: list[Array], exact: Exact) -> None:
    """Assert that code and host are as near to the true values as they may be."""
    name, dtype = expression[0], str(operands[0].dtype)
    with mp.workprec(DIGITS if name not in ("fmod", "mod") else 2400):
        wanted = [exact(*(mpf(float(x)) for x in each)) for each in zip(*operands, strict=True)]
        wanted = [mp.nan if isinstance(true, mp.mpc) else true for true in wanted]
        with np.errstate(all="ignore"):
            found = {"host": evaluate_expression(expression, operands)}
        if dtype == "float32" or OPERATIONS[name].float64:
            found["code"] = evaluate([(expression, dtype)], operands)[0]
        for how, got in found.items():
            excess = errors(got, wanted) - bounds(name, how, operands[0], wanted)
            at = int(np.argmax(excess))
            given = [float(x[at]) for x in operands]
            assert not excess[at] > 0, f"{how} {name}{given}: {got[at]!r}, not {mp.nstr(wanted[at], 18)} ({dtype})"


@halved
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_number_are_right_to_a_few_ulp(name: str, dtype: str) -> None:
    """Over all exponents and ulp by ulp where an algorithm changes, also of angles of any size."""
    x = arguments(dtype, np.random.default_rng(SEED))
    if name in ("log", "rsqrt", "reciprocal"):
        x = x[x != 0]
    if name in ("log1p", "atanh"):
        x = x[np.abs(x) != 1]
    check((name, arg(0)), [x], UNARY[name])


@halved
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_numbers_are_right_to_a_few_ulp(name: str, dtype: str) -> None:
    """Whatever their quotient is: a remainder is exact also where that has hundreds of bits."""
    rng = np.random.default_rng(SEED)
    x = arguments(dtype, rng)
    x = x[x != 0]
    y = rng.permutation(x)
    if name == "pow":
        x = np.abs(x)
        with np.errstate(all="ignore"):
            y = np.where(np.abs(np.log2(x.astype("f8")) * y) < 4000, y, y.dtype.type(0.5))
    check((name, arg(0), arg(1)), [x, y], BINARY[name])


@pytest.mark.parametrize("x", [1e8, 100000000.00000001, 1e9, 1e15, 1e17, 1e154, 1.7e308])
def test_the_inverse_hyperbolic_sine_of_a_large_float64_keeps_its_digits(x: float) -> None:
    """It was 2.6 million ulp off beyond 1e8, where float32 may leave something out."""
    check(("asinh", arg(0)), [np.array([x, -x])], mp.asinh)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_beyond_a_billion_have_a_sine(name: str) -> None:
    """Of 1e17 float32 had the sine of 1, where a turn is less than a number's spacing."""
    check((name, arg(0)), [np.array([1e9, 1e10, 1e17, 5.9623133e17, 3.4028229e38], np.float32)], UNARY[name])
