"""Operators that compute element by element."""

from __future__ import annotations

from math import isnan, log
from typing import Any

import numpy as np

from opbuild.dtypes import NARROW_FLOATS
from opbuild.frontend.torch.promotion import category, promoted
from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.writing import StepBuilder, Value

UNARY = {
    "abs.default": "Abs",
    "ceil.default": "Ceil",
    "floor.default": "Floor",
    "neg.default": "Neg",
    "relu.default": "Relu",
    "round.default": "Round",
}
"""Operators of one tensor whose type stays, by ONNX's."""

FLOATING = {
    "acos.default": "Acos", "acosh.default": "Acosh", "asin.default": "Asin", "asinh.default": "Asinh",
    "atan.default": "Atan", "atanh.default": "Atanh", "cos.default": "Cos", "cosh.default": "Cosh",
    "erf.default": "Erf", "exp.default": "Exp", "log.default": "Log", "reciprocal.default": "Reciprocal",
    "sigmoid.default": "Sigmoid", "sin.default": "Sin", "sinh.default": "Sinh", "sqrt.default": "Sqrt",
    "tan.default": "Tan", "tanh.default": "Tanh",
}  # fmt: skip
"""Operators of one tensor that make floating numbers of integers."""

BINARY = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "maximum": "Max", "minimum": "Min",
}  # fmt: skip

COMPARISONS = {
    "eq": ("Equal", False), "ne": ("Equal", True), "lt": ("Less", False), "le": ("LessOrEqual", False),
    "gt": ("Greater", False), "ge": ("GreaterOrEqual", False),
}  # fmt: skip
"""Comparisons by ONNX's operator, and whether that is inverted."""


def _unary(name: str, op_type: str) -> None:
    @rule(name)
    def write(of: StepBuilder, x: Value) -> Value:
        if category(x.dtype) < 2 and op_type in ("Ceil", "Floor", "Round"):
            return x
        return of(op_type, x)


def _floating(name: str, op_type: str) -> None:
    @rule(name)
    def write(of: StepBuilder, x: Value) -> Value:
        return of(op_type, of.cast(x, of.dtype))


def _comparison(name: str, op_type: str, inverted: bool) -> None:
    @rule(f"{name}.Tensor", f"{name}.Scalar")
    def write(of: StepBuilder, x: Value, other: Any) -> Value:
        kind = promoted((x, other))
        result = of(op_type, of.operand(x, kind), of.operand(other, kind))
        return of("Not", result) if inverted else result


for _name, _type in UNARY.items():
    _unary(_name, _type)
for _name, _type in FLOATING.items():
    _floating(_name, _type)
for _name, (_type, _inverted) in COMPARISONS.items():
    _comparison(_name, _type, _inverted)


def scaled(of: StepBuilder, value: Any, alpha: Any) -> Any:
    """Return an operand times ``alpha``, in the element type of the result."""
    if isinstance(value, Value):
        value = of.cast(value, of.dtype)
        return value if alpha == 1 else of("Mul", value, of.operand(alpha, of.dtype))
    return value * alpha


@rule("add.Tensor", "add.Scalar")
def add(of: StepBuilder, x: Value, other: Any, alpha: Any = 1) -> Value:
    """``x + alpha * other``."""
    if of.dtype == "bool":
        other = of.operand(other, "bool")
        return of("Or", x, other if alpha else of("And", other, of.constant(False, "bool")))
    if category(of.dtype) == 1 and x.dtype == of.dtype and type(other) is int and not other:
        return x  # as positions are counted after an empty cache; a float's zero changes a negative one
    return of("Add", of.operand(x, of.dtype), of.operand(scaled(of, other, alpha), of.dtype))


@rule("sub.Tensor", "sub.Scalar")
def sub(of: StepBuilder, x: Value, other: Any, alpha: Any = 1) -> Value:
    """``x - alpha * other``."""
    return of("Sub", of.operand(x, of.dtype), of.operand(scaled(of, other, alpha), of.dtype))


@rule("rsub.Tensor", "rsub.Scalar")
def rsub(of: StepBuilder, x: Value, other: Any, alpha: Any = 1) -> Value:
    """``other - alpha * x``."""
    return of("Sub", of.operand(other, of.dtype), of.operand(scaled(of, x, alpha), of.dtype))


@rule("mul.Tensor", "mul.Scalar")
def mul(of: StepBuilder, x: Value, other: Any) -> Value:
    """``x * other``."""
    if of.dtype == "bool":
        return of("And", x, of.operand(other, "bool"))
    return of("Mul", of.operand(x, of.dtype), of.operand(other, of.dtype))


@rule("div.Tensor", "div.Scalar")
def div(of: StepBuilder, x: Value, other: Any) -> Value:
    """``x / other``, of integers too a floating number."""
    return of("Div", of.operand(x, of.dtype), of.operand(other, of.dtype))


@rule("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(of: StepBuilder, x: Any, exponent: Any) -> Value:
    """``x ** exponent``."""
    if category(of.dtype) < 2:
        of.refuse("powers of integers wrap around")
    x = of.operand(x, of.dtype)
    if isinstance(exponent, (int, float)) and exponent == 2:
        return of("Mul", x, x)
    if isinstance(exponent, (int, float)) and abs(exponent) == 0.5:  # NaN of -inf, which has a power
        return of("Sqrt", x) if exponent > 0 else of("Reciprocal", of("Sqrt", x))
    return of("Pow", x, of.operand(exponent, of.dtype))


@rule("fma.default", domain="prims")
def multiply_add(of: StepBuilder, x: Value, y: Any, z: Any) -> Value:
    """``x * y + z``."""
    scaled = of("Mul", of.operand(x, of.dtype), of.operand(y, of.dtype))
    return of("Add", scaled, of.operand(z, of.dtype))


@rule("maximum.default")
def maximum(of: StepBuilder, x: Value, other: Value) -> Value:
    """The greater one."""
    return of("Max", of.cast(x, of.dtype), of.cast(other, of.dtype))


@rule("minimum.default")
def minimum(of: StepBuilder, x: Value, other: Value) -> Value:
    """The smaller one."""
    return of("Min", of.cast(x, of.dtype), of.cast(other, of.dtype))


@rule("sign.default", "sgn.default")
def sign(of: StepBuilder, x: Value) -> Value:
    """The sign; that of NaN is 0."""
    if category(x.dtype) == 0:
        return x
    found = of("Sign", x)
    return of("Where", of("IsNaN", x), of.constant(0, x.dtype), found) if category(x.dtype) == 2 else found


@rule("rsqrt.default")
def rsqrt(of: StepBuilder, x: Value) -> Value:
    """``1 / sqrt(x)``."""
    return of("Reciprocal", of("Sqrt", of.cast(x, of.dtype)))


@rule("clamp.default", "clamp.Tensor")
def clamp(of: StepBuilder, x: Value, low: Any = None, high: Any = None) -> Value:
    """Between two bounds, of which one that is NaN gives NaN, and one that is none keeps infinity.

    Those of ONNX's operator are ignored then, and the greatest finite number.
    """
    x, is_plain = of.cast(x, of.dtype), all(isinstance(each, (int, float)) and not isnan(each) for each in (low, high))
    low, high = (None if each is None else of.operand(each, of.dtype) for each in (low, high))
    if is_plain:
        return of("Clip", x, low, high)
    x = x if low is None else of("Max", x, low)
    return x if high is None else of("Min", x, high)


@rule("hardtanh.default")
def hardtanh(of: StepBuilder, x: Value, low: Any = -1, high: Any = 1) -> Value:
    """Between two bounds, -1 and 1 if none are given."""
    return clamp(of, x, low, high)


@rule("logical_not.default")
def logical_not(of: StepBuilder, x: Value) -> Value:
    """Whether an element is zero."""
    return of("Not", of.cast(x, "bool"))


@rule("logical_and.default", "logical_or.default", "logical_xor.default")
def logical(of: StepBuilder, x: Value, other: Value) -> Value:
    """Of truth values."""
    kinds = {"and": "And", "or": "Or", "xor": "Xor"}
    op_type = kinds[of.step.target.removeprefix("aten.logical_").removesuffix(".default")]
    return of(op_type, of.cast(x, "bool"), of.cast(other, "bool"))


@rule("bitwise_not.default")
def bitwise_not(of: StepBuilder, x: Value) -> Value:
    """Bit by bit."""
    return of("Not" if x.dtype == "bool" else "BitwiseNot", x)


@rule("bitwise_and.Tensor", "bitwise_or.Tensor", "bitwise_xor.Tensor")
@rule("bitwise_and.Scalar", "bitwise_or.Scalar", "bitwise_xor.Scalar")
def bitwise(of: StepBuilder, x: Value, other: Any) -> Value:
    """Bit by bit."""
    op_type = of.step.target.split("_")[1].split(".")[0].capitalize()
    return of(op_type if of.dtype == "bool" else f"Bitwise{op_type}", of.cast(x, of.dtype), of.operand(other, of.dtype))


@rule("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(of: StepBuilder, condition: Value, x: Any, other: Any) -> Value:
    """Elements of one or the other."""
    return of("Where", of.cast(condition, "bool"), of.operand(x, of.dtype), of.operand(other, of.dtype))


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(of: StepBuilder, x: Value, mask: Value, value: Any) -> Value:
    """Elements of ``x``, and ``value`` where ``mask`` is."""
    return of("Where", mask, of.operand(value, of.dtype), x)


# -- activations -------------------------------------------------------------------------------------------------------


@rule("gelu.default")
def gelu(of: StepBuilder, x: Value, approximate: str = "none") -> Value:
    """Gelu."""
    return of("Gelu", x, approximate=approximate)


@rule("silu.default")
def silu(of: StepBuilder, x: Value) -> Value:
    """``x * sigmoid(x)``."""
    return of("Mul", x, of("Sigmoid", x))


@rule("hardswish.default")
def hardswish(of: StepBuilder, x: Value) -> Value:
    """HardSwish."""
    return of("HardSwish", x)


@rule("hardsigmoid.default")
def hardsigmoid(of: StepBuilder, x: Value) -> Value:
    """HardSigmoid with torch's slope of one sixth."""
    return of("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@rule("leaky_relu.default")
def leaky_relu(of: StepBuilder, x: Value, slope: float = 0.01) -> Value:
    """LeakyRelu."""
    return of("LeakyRelu", x, alpha=slope)


# -- types -------------------------------------------------------------------------------------------------------------


@rule("_to_copy.default", "to.dtype")
@rule("convert_element_type.default", domain="prims")
def to_copy(of: StepBuilder, x: Value, *_: Any, **__: Any) -> Value:
    """Another element type."""
    return of.cast(x, of.dtype)


@rule("clone.default", "alias.default", "detach.default", "lift_fresh_copy.default", "contiguous.default")
def clone(of: StepBuilder, x: Value, *_: Any, **__: Any) -> Value:
    """The same values: a graph has no memory."""
    return x


@rule("div.Tensor_mode", "div.Scalar_mode", "floor_divide.default", "floor_divide.Scalar")
def div_mode(of: StepBuilder, x: Value, other: Any, rounding_mode: str | None = "floor") -> Value:
    """``x / other``, rounded towards zero (``trunc``) or down (``floor``)."""
    x, other = _operands(of, x, other)
    if category(of.dtype) < 2:
        quotient = of("Div", x, other)
        if rounding_mode == "trunc":
            return quotient
        rest = of("Sub", x, of("Mul", quotient, other))
        return of("Sub", quotient, of.cast(_differs(of, rest, other), of.dtype))
    quotient = of("Div", x, other)
    if rounding_mode is None:
        return quotient
    return truncated(of, quotient) if rounding_mode == "trunc" else _floored(of, x, other, quotient)


@rule("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(of: StepBuilder, x: Any, other: Any) -> Value:
    """What is left of ``x``, with the sign of ``other``."""
    x, other = _operands(of, x, other)
    if category(of.dtype) < 2:
        return of("Mod", x, other, fmod=0)
    rest = of("Mod", x, other, fmod=1)
    return of("Where", _differs(of, rest, other), of("Add", rest, other), rest)


@rule("fmod.Tensor", "fmod.Scalar")
def fmod(of: StepBuilder, x: Value, other: Any) -> Value:
    """What is left of ``x``, with its sign."""
    x, other = _operands(of, x, other)
    return of("Mod", x, other, fmod=1)


@rule("trunc.default")
def trunc(of: StepBuilder, x: Value) -> Value:
    """Rounded towards zero."""
    return x if category(x.dtype) < 2 else truncated(of, x)


def truncated(of: StepBuilder, x: Value) -> Value:
    """Write what rounds towards zero."""
    return of("Where", of("Less", x, of.constant(0, x.dtype)), of("Ceil", x), of("Floor", x))


def _operands(of: StepBuilder, x: Any, other: Any) -> tuple[Value, Value]:
    """Return both in the result's type; integers only if nothing is divided by zero, which torch raises."""
    x, other = of.operand(x, of.dtype), of.operand(other, of.dtype)
    if category(of.dtype) == 2:
        return x, other
    divisor = of.known(other)
    if of.dtype == "bool" or divisor is None or np.any(divisor == 0) or np.any(divisor == -1):
        of.refuse("integers by a divisor that may be 0 or -1")
    return x, other


def _differs(of: StepBuilder, rest: Value, other: Value) -> Value:
    """Return whether something is left whose sign is not that of the divisor."""
    zero = of.constant(0, rest.dtype)
    signs = of("Xor", of("Less", rest, zero), of("Less", other, zero))
    return of("And", of("Not", of("Equal", rest, zero)), signs)


def _floored(of: StepBuilder, x: Value, other: Value, quotient: Value) -> Value:
    """Return the quotient rounded down as Python does it: of what is left after the whole part, not of the quotient."""
    rest = of("Mod", x, other, fmod=1)
    one, half = of.constant(1, x.dtype), of.constant(0.5, x.dtype)
    whole = of("Div", of("Sub", x, rest), other)
    whole = of("Where", _differs(of, rest, other), of("Sub", whole, one), whole)
    floor = of("Floor", whole)
    floor = of("Where", of("Greater", of("Sub", whole, floor), half), of("Add", floor, one), floor)
    is_zero = of("Equal", other, of.constant(0, x.dtype))
    return of("Where", is_zero, quotient, floor)


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
