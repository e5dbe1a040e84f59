"""Functions of floating numbers that ONNX has no operator for."""

from __future__ import annotations

from math import log
from typing import Any

from opbuild.dtypes import NARROW_FLOATS
from opbuild.frontend.torch.promotion import category
from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.rules.elementwise import power
from opbuild.frontend.torch.writing import StepBuilder, Value


@rule("isnan.default", "isinf.default")
def is_special(of: StepBuilder, x: Value) -> Value:
    """Whether an element is no number, or none that is finite."""
    if category(x.dtype) < 2:
        return of("Expand", of.constant(False, "bool"), of.ints(*x.shape)) if x.shape else of.constant(False, "bool")
    return of("IsNaN" if "nan" in of.step.target else "IsInf", x)


@rule("log1p.default")
def log1p(of: StepBuilder, x: Value) -> Value:
    """``log(1 + x)``, near zero by the series of the inverse hyperbolic tangent, which loses nothing there."""
    x = of.cast(x, of.dtype)
    one = of.constant(1, of.dtype)
    part = of("Div", x, of("Add", x, of.constant(2, of.dtype)))
    square = of("Mul", part, part)
    series = of.constant(2 / 11, of.dtype)
    for power_of in (9, 7, 5, 3, 1):
        series = of("Add", of("Mul", series, square), of.constant(2 / power_of, of.dtype))
    near = of("Less", of("Abs", x), of.constant(0.5, of.dtype))
    return of("Where", near, of("Mul", part, series), of("Log", of("Add", x, one)))


@rule("expm1.default")
def expm1(of: StepBuilder, x: Value) -> Value:
    """``exp(x) - 1`` as ``tanh(x / 2) * (exp(x) + 1)``, which loses nothing near zero."""
    x = of.cast(x, of.dtype)
    half = of("Tanh", of("Mul", x, of.constant(0.5, of.dtype)))
    return of("Mul", half, of("Add", of("Exp", x), of.constant(1, of.dtype)))


@rule("log2.default", "log10.default")
def log_of_base(of: StepBuilder, x: Value) -> Value:
    """Logarithms of base 2 and 10."""
    base = 2 if "log2" in of.step.target else 10
    return of("Mul", of("Log", of.cast(x, of.dtype)), of.constant(1 / log(base), of.dtype))


@rule("exp2.default")
def exp2(of: StepBuilder, x: Value) -> Value:
    """``2 ** x``."""
    return power(of, of.constant(2, of.dtype), of.cast(x, of.dtype))


@rule("round.decimals")
def round_decimals(of: StepBuilder, x: Value, decimals: int = 0) -> Value:
    """Rounded to some decimals, or to tens."""
    if category(x.dtype) < 2:
        of.refuse("integers")
    if decimals == 0:
        return of("Round", x)
    wide = "float32" if x.dtype in NARROW_FLOATS else x.dtype  # whose products have room
    factor = of.constant(10.0 ** abs(decimals), wide)
    there, back = ("Mul", "Div") if decimals > 0 else ("Div", "Mul")
    return of.cast(of(back, of("Round", of(there, of.cast(x, wide), factor)), factor), x.dtype)


@rule("fmax.default", "fmin.default")
def extreme_number(of: StepBuilder, x: Value, other: Value) -> Value:
    """The greater or smaller one; the other one if one is no number."""
    x, other = of.cast(x, of.dtype), of.cast(other, of.dtype)
    found = of("Max" if "fmax" in of.step.target else "Min", x, other)
    if category(of.dtype) < 2:
        return found
    return of("Where", of("IsNaN", x), other, of("Where", of("IsNaN", other), x, found))


@rule("ldexp.Tensor")
def ldexp(of: StepBuilder, x: Value, exponent: Value) -> Value:
    """``x * 2 ** exponent``."""
    two = of.constant(2, of.dtype)
    return of("Mul", of.cast(x, of.dtype), of("Pow", two, of.cast(exponent, of.dtype)))


@rule("elu.default")
def elu(of: StepBuilder, x: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Value:
    """Elu; with a scale it is Selu."""
    if input_scale != 1:
        of.refuse("a scale of the input")
    result = of("Elu", x, alpha=float(alpha))
    return result if scale == 1 else of("Mul", result, of.constant(scale, of.dtype))


@rule("softplus.default")
def softplus(of: StepBuilder, x: Value, beta: Any = 1, threshold: Any = 20) -> Value:
    """Softplus; ``x`` itself above the threshold."""
    scaled = x if beta == 1 else of("Mul", x, of.constant(beta, of.dtype))
    result = of("Softplus", scaled)
    result = result if beta == 1 else of("Div", result, of.constant(beta, of.dtype))
    return of("Where", of("Greater", scaled, of.constant(threshold, of.dtype)), x, result)


@rule("mish.default")
def mish(of: StepBuilder, x: Value) -> Value:
    """Mish."""
    return of("Mish", x)
