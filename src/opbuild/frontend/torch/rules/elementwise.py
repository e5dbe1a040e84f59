"""Operators that compute element by element."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan, log
from typing import Any

import numpy as np

from opbuild.dtypes import NARROW_FLOATS
from opbuild.frontend.torch.builder import RULES, StepBuilder, Value, category, promoted, rule


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


def difference(of: StepBuilder, x: Any, other: Any, alpha: Any = 1) -> Value:
    """``x - alpha * other``."""
    return of("Sub", of.operand(x, of.dtype), of.operand(scaled(of, other, alpha), of.dtype))


@rule("mul.Tensor", "mul.Scalar")
def mul(of: StepBuilder, x: Value, other: Any) -> Value:
    """``x * other``."""
    if of.dtype == "bool":
        return of("And", x, of.operand(other, "bool"))
    return of("Mul", of.operand(x, of.dtype), of.operand(other, of.dtype))


@rule("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(of: StepBuilder, x: Any, exponent: Any) -> Value:
    """``x ** exponent``."""
    of.refuse_if(category(of.dtype) < 2, "powers of integers wrap around")
    x = of.operand(x, of.dtype)
    if isinstance(exponent, (int, float)) and exponent == 2:
        return of("Mul", x, x)
    if isinstance(exponent, (int, float)) and abs(exponent) == 0.5:  # NaN of -inf, which has a power
        return of("Sqrt", x) if exponent > 0 else of("Reciprocal", of("Sqrt", x))
    return of("Pow", x, of.operand(exponent, of.dtype))


@rule("sign.default", "sgn.default")
def sign(of: StepBuilder, x: Value) -> Value:
    """The sign; that of NaN is 0."""
    if category(x.dtype) == 0:
        return x
    found = of("Sign", x)
    return of("Where", of("IsNaN", x), of.constant(0, x.dtype), found) if category(x.dtype) == 2 else found


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
    """The remainder of ``x``, with the sign of ``other``."""
    x, other = _operands(of, x, other)
    if category(of.dtype) < 2:
        return of("Mod", x, other, fmod=0)
    rest = of("Mod", x, other, fmod=1)
    return of("Where", _differs(of, rest, other), of("Add", rest, other), rest)


def truncated(of: StepBuilder, x: Value) -> Value:
    """Write a rounding towards zero."""
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
    """Return the quotient rounded down as Python does it: of the rest after the whole part, not of the quotient."""
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
        return of.filled(False, "bool", x.shape)
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


@rule("round.decimals")
def round_decimals(of: StepBuilder, x: Value, decimals: int = 0) -> Value:
    """Rounded to some decimals, or to tens."""
    of.refuse_if(category(x.dtype) < 2, "integers")
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


@rule("elu.default")
def elu(of: StepBuilder, x: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Value:
    """Elu; with a scale it is Selu."""
    of.refuse_if(input_scale != 1, "a scale of the input")
    result = of("Elu", x, alpha=float(alpha))
    return result if scale == 1 else of("Mul", result, of.constant(scale, of.dtype))


@rule("softplus.default")
def softplus(of: StepBuilder, x: Value, beta: Any = 1, threshold: Any = 20) -> Value:
    """Softplus; ``x`` itself above the threshold."""
    scaled = x if beta == 1 else of("Mul", x, of.constant(beta, of.dtype))
    result = of("Softplus", scaled)
    result = result if beta == 1 else of("Div", result, of.constant(beta, of.dtype))
    return of("Where", of("Greater", scaled, of.constant(threshold, of.dtype)), x, result)


@rule("convert_element_type.default", domain="prims")
def _to_copy(of: StepBuilder, x: Value, *_: Any, **__: Any) -> Value:
    """Another element type."""
    return of.cast(x, of.dtype)


@rule("fma.default", domain="prims")
def multiply_add(of: StepBuilder, x: Value, y: Any, z: Any) -> Value:
    """``x * y + z``."""
    return _binary("Add")(of, _binary("Mul")(of, x, y), z)


@rule("expm1.default")
def expm1(of: StepBuilder, x: Value) -> Value:
    """``exp(x) - 1`` as ``tanh(x / 2) * (exp(x) + 1)``, which loses nothing near zero."""
    x = of.cast(x, of.dtype)
    half = of("Tanh", of("Mul", x, of.constant(0.5, of.dtype)))
    return of("Mul", half, of("Add", of("Exp", x), of.constant(1, of.dtype)))


@rule("ldexp.Tensor")
def ldexp(of: StepBuilder, x: Value, exponent: Value) -> Value:
    """``x * 2 ** exponent``."""
    two = of.constant(2, of.dtype)
    return of("Mul", of.cast(x, of.dtype), of("Pow", two, of.cast(exponent, of.dtype)))


def _unary_rule(op_type: str) -> Callable[..., Value]:
    """Return the rule of an operator of one tensor, in the result's type."""
    return lambda of, x: of(op_type, of.cast(x, of.dtype))


def _rounding(op_type: str) -> Callable[..., Value]:
    """Return the rule of an operator that leaves integers as they are."""
    return lambda of, x: x if category(x.dtype) < 2 else of(op_type, x)


def _binary(op_type: str, dtype: str = "", *, meets: bool = False) -> Callable[..., Value]:
    """Return the rule of an operator of two tensors or numbers.

    They are of the result's type if no other is given, or of the type in which operands meet.
    """

    def write(of: StepBuilder, x: Any, other: Any) -> Value:
        kind = promoted((x, other)) if meets else dtype or of.dtype
        return of(op_type, of.operand(x, kind), of.operand(other, kind))

    return write


def _bitwise(op_type: str) -> Callable[..., Value]:
    """Return the rule of an operator on bits, which of truth values has another name."""
    return lambda of, x, other: of(
        op_type if of.dtype == "bool" else f"Bitwise{op_type}", of.cast(x, of.dtype), of.operand(other, of.dtype)
    )


_LOGICAL = ("and", "or", "xor")
_ALONE = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "log", "mish", "neg"),
    *("reciprocal", "relu", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh"),
)
_EQUAL = _binary("Equal", meets=True)

RULES.register_all(
    {
        **{f"{name}.default": _unary_rule(name.capitalize()) for name in _ALONE},
        **{f"{name}.default": _rounding(name.capitalize()) for name in ("ceil", "floor", "round")},
        **{f"logical_{name}.default": _binary(name.capitalize(), "bool") for name in _LOGICAL},
        **{f"bitwise_{name}.Tensor bitwise_{name}.Scalar": _bitwise(name.capitalize()) for name in _LOGICAL},
        "eq.Tensor eq.Scalar": _EQUAL,
        "ne.Tensor ne.Scalar": lambda of, x, other: of("Not", _EQUAL(of, x, other)),
        "lt.Tensor lt.Scalar": _binary("Less", meets=True),
        "le.Tensor le.Scalar": _binary("LessOrEqual", meets=True),
        "gt.Tensor gt.Scalar": _binary("Greater", meets=True),
        "ge.Tensor ge.Scalar": _binary("GreaterOrEqual", meets=True),
        "sub.Tensor sub.Scalar": difference,
        "rsub.Tensor rsub.Scalar": lambda of, x, other, alpha=1: difference(of, other, x, alpha),
        "div.Tensor div.Scalar": _binary("Div"),
        "maximum.default": _binary("Max"),
        "minimum.default": _binary("Min"),
        "rsqrt.default": lambda of, x: of("Reciprocal", of("Sqrt", of.cast(x, of.dtype))),
        "hardtanh.default": lambda of, x, low=-1, high=1: clamp(of, x, low, high),
        "logical_not.default": lambda of, x: of("Not", of.cast(x, "bool")),
        "bitwise_not.default": lambda of, x: of("Not" if x.dtype == "bool" else "BitwiseNot", x),
        "where.self where.ScalarOther where.ScalarSelf where.Scalar": lambda of, condition, x, other: of(
            "Where", of.cast(condition, "bool"), of.operand(x, of.dtype), of.operand(other, of.dtype)
        ),
        "masked_fill.Scalar masked_fill.Tensor": lambda of, x, mask, value: of(
            "Where", mask, of.operand(value, of.dtype), x
        ),
        "gelu.default": lambda of, x, approximate="none": of("Gelu", x, approximate=approximate),
        "silu.default": lambda of, x: of("Mul", x, of("Sigmoid", x)),
        "hardswish.default": _unary_rule("HardSwish"),
        "hardsigmoid.default": lambda of, x: of("HardSigmoid", x, alpha=1 / 6, beta=0.5),
        "leaky_relu.default": lambda of, x, slope=0.01: of("LeakyRelu", x, alpha=slope),
        "_to_copy.default to.dtype": _to_copy,
        "clone.default alias.default detach.default lift_fresh_copy.default contiguous.default": (
            lambda of, x, *_, **__: x  # a graph has no memory
        ),
        "fmod.Tensor fmod.Scalar": lambda of, x, other: of("Mod", *_operands(of, x, other), fmod=1),
        "trunc.default": lambda of, x: x if category(x.dtype) < 2 else truncated(of, x),
        "log2.default": lambda of, x: of("Mul", of("Log", of.cast(x, of.dtype)), of.constant(1 / log(2), of.dtype)),
        "log10.default": lambda of, x: of("Mul", of("Log", of.cast(x, of.dtype)), of.constant(1 / log(10), of.dtype)),
        "exp2.default": lambda of, x: power(of, of.constant(2, of.dtype), of.cast(x, of.dtype)),
    },
    domain="aten",
)
