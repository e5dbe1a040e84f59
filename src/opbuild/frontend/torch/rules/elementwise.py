"""Operators that compute element by element."""

from __future__ import annotations

from math import isnan
from typing import Any

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
