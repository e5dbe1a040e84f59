"""Elementwise arithmetic: MindSpore's names, argument order and type rules."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opbuild.dtypes import is_float
from opbuild.mindspore import promotion
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.ops.declaration import floating, formula, need_tensor, of_floats, spelled
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "abs", "absolute", "acos", "acosh", "add", "addcdiv", "addcmul", "addn", "arccos", "arccosh", "arcsin", "arcsinh",
    "arctan", "arctan2", "arctanh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "clamp", "clip", "clip_by_value",
    "cos", "cosh", "div", "divide", "erf", "erfc", "exp", "exp2", "expm1", "floor", "floor_div", "floor_divide",
    "floor_mod", "fmod", "hypot", "lerp", "log", "log1p", "log2", "log10", "logaddexp", "maximum", "minimum", "mul",
    "multiply", "neg", "negative", "pow", "reciprocal", "remainder", "round", "rsqrt", "sign", "sin", "sinh", "sqrt",
    "square", "sub", "subtract", "tan", "tanh", "true_divide", "trunc",
]  # fmt: skip

OWN = "opbuild"
"""The domain of operators that ONNX does not have."""

as_operand = formula(
    "as_operand", "a tensor converted to ``dtype``, or a Python number as an array of it",
    lambda value, dtype: cast(value, dtype) if isinstance(value, Tensor) else np.asarray(value).astype(dtype),
)  # fmt: skip
erfc = formula("erfc", "1 - erf of each element", lambda input: sub(1, erf(input)))
log2 = formula("log2", "the logarithm to base 2 of each element", lambda input: mul(log(input), 1.0 / math.log(2.0)))
log10 = formula("log10", "the logarithm to base 10 of each element",
                lambda input: mul(log(input), 1.0 / math.log(10.0)))  # fmt: skip
exp2 = formula("exp2", "2 to the power of each element", of_floats(lambda input: pow(2.0, input)))
subtract = formula("subtract", "``input - alpha * other``",
                   lambda input, other, *, alpha=1: sub(input, other if alpha == 1 else mul(other, alpha)))  # fmt: skip
pow = formula("pow", "``input`` to the power of ``exponent``", lambda input, exponent: binary("Pow", input, exponent))
squared_difference = formula("squared_difference", "``(x - y) ** 2``",
                             lambda x, y: binary("SquaredDifference", x, y, OWN))  # fmt: skip
addcmul = formula("addcmul", "``input + value * tensor1 * tensor2``",
                  lambda input, tensor1, tensor2, value=1: add(input, mul(mul(tensor1, tensor2), value)))  # fmt: skip
addcdiv = formula("addcdiv", "``input + value * tensor1 / tensor2``",
                  lambda input, tensor1, tensor2, value=1: add(input, mul(div(tensor1, tensor2), value)))  # fmt: skip
lerp = formula("lerp", "``input + weight * (end - input)``",
               lambda input, end, weight: add(input, mul(weight, sub(end, input))))  # fmt: skip
hypot = formula("hypot", "``sqrt(input**2 + other**2)``", lambda input, other: sqrt(add(square(input), square(other))))


def binary(op_type: str, first: Any, second: Any, domain: str = "", dtype: str = "") -> Tensor:
    """Apply an operator of two operands in their common type, or in ``dtype``."""
    common, first, second = promotion.operands(first, second, op_type)
    common = dtype or common
    return emit(op_type, as_operand(first, common), as_operand(second, common), domain=domain)


def pairwise(name: str, op_type: str, what: str, domain: str = "", *, dtype: str = "", of_bool: str = "",
             bool_as: str = "") -> Callable[[Any, Any], Tensor]:  # fmt: skip
    """Return the function that is an operator of two operands.

    Args:
        name: Its name.
        op_type: The operator.
        what: What it returns.
        domain: The operator's.
        dtype: The element type to compute in; by default the operands' common one.
        of_bool: The operator of two truth values, where it is another.
        bool_as: The element type that truth values are computed in.
    """

    def function(input: Any, other: Any) -> Tensor:
        common, first, second = promotion.operands(input, other, op_type)
        if common == "bool" and of_bool:
            return binary(of_bool, first, second)
        return binary(op_type, first, second, domain, bool_as if common == "bool" and bool_as else dtype)

    return formula(name, f"{what}", function)


def _unary(op_type: str, domain: str = "", integers: str = "float32") -> Callable[[Any], Tensor]:
    """Return the function that is an operator of one operand; integers ``stay``, are ``computed`` or become float32."""

    def function(input: Any) -> Tensor:
        tensor = floating(input, op_type) if integers == "float32" else need_tensor(input, op_type)
        return tensor if integers == "stay" and not tensor.is_floating_point() else emit(op_type, tensor, domain=domain)

    rule = {"float32": "; integers become float32", "computed": ", in the element type of the tensor",
            "stay": "; integers stay as they are"}[integers]  # fmt: skip
    return formula(op_type.lower(), f"{op_type} of each element{rule}", function)


abs = absolute = _unary("Abs", integers="computed")
neg = negative = _unary("Neg", integers="computed")
sign = _unary("Sign", integers="computed")
square = _unary("Square", OWN, integers="computed")
sqrt = _unary("Sqrt")
rsqrt = _unary("Rsqrt", OWN)
reciprocal = _unary("Reciprocal")
exp = _unary("Exp")
expm1 = _unary("Expm1", OWN)
log = _unary("Log")
log1p = _unary("Log1p", OWN)
erf = _unary("Erf")
sin = _unary("Sin")
cos = _unary("Cos")
tan = _unary("Tan")
asin = arcsin = _unary("Asin")
acos = arccos = _unary("Acos")
atan = arctan = _unary("Atan")
sinh = _unary("Sinh")
cosh = _unary("Cosh")
tanh = _unary("Tanh")
asinh = arcsinh = _unary("Asinh")
acosh = arccosh = _unary("Acosh")
atanh = arctanh = _unary("Atanh")
floor = _unary("Floor", integers="stay")
ceil = _unary("Ceil", integers="stay")
trunc = _unary("Trunc", OWN, integers="stay")
_round = _unary("Round", integers="stay")


def round(input: Any, *, decimals: int = 0) -> Tensor:
    """Round each element to ``decimals`` places, halves to even."""
    if decimals == 0:
        return _round(input)
    scale = 10.0**decimals
    return div(_round(mul(input, scale)), scale)


add = pairwise("add", "Add", "``input + other``", of_bool="Or")
sub = pairwise("sub", "Sub", "``input - other``; of truth values whether they differ", of_bool="Xor")
mul = multiply = pairwise("mul", "Mul", "``input * other``", of_bool="And")


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """Return ``input / other``; integers are divided as float32.

    Args:
        input: The dividend.
        other: The divisor.
        rounding_mode: ``None``, ``"floor"`` or ``"trunc"``.
    """
    if rounding_mode == "floor":
        return floor_divide(input, other)
    common, first, second = promotion.operands(input, other, "Div")
    if rounding_mode == "trunc":
        return trunc(binary("Div", first, second))
    if rounding_mode is not None:
        raise ArgumentValueError(f"rounding_mode is {rounding_mode!r}", "it must be None, 'floor' or 'trunc'")
    return binary("Div", first, second, dtype=common if is_float(common) else "float32")


divide = div
true_divide = spelled(div, "true_divide", "Return ``dividend / divisor``.", {"rounding_mode": None},
                      dividend="input", divisor="other")  # fmt: skip
floor_divide = pairwise("floor_divide", "FloorDiv", "the greatest integers not above ``input / other``", OWN)
floor_div = spelled(floor_divide, "floor_div", x="input", y="other")
maximum = pairwise("maximum", "Max", "the greater of two elements; NaN where either is NaN")
minimum = pairwise("minimum", "Min", "the smaller of two elements; NaN where either is NaN")


def floor_mod(x: Any, y: Any) -> Tensor:
    """Return the remainder of ``floor_div``; it has the sign of ``y``."""
    common, first, second = promotion.operands(x, y, "FloorMod")
    return binary("Mod", first, second, OWN if is_float(common) else "")


remainder = spelled(floor_mod, "remainder", input="x", other="y")


def fmod(input: Any, other: Any) -> Tensor:
    """Return the remainder of a division rounded towards zero; it has the sign of ``input``."""
    common, first, second = promotion.operands(input, other, "fmod")
    return emit("Mod", as_operand(first, common), as_operand(second, common), fmod=1)


def atan2(input: Any, other: Any) -> Tensor:
    """Return the angle of the point (``other``, ``input``)."""
    common, first, second = promotion.operands(input, other, "atan2")
    return binary("Atan2", first, second, OWN, common if is_float(common) else "float32")


arctan2 = atan2


def addn(x: Sequence[Tensor]) -> Tensor:
    """Return the sum of several tensors."""
    if isinstance(x, Tensor) or not x:
        raise ArgumentTypeError("addn was given no sequence of tensors", "give a tuple or list of them")
    return functools.reduce(add, x)


def logaddexp(input: Any, other: Any) -> Tensor:
    """Return ``log(exp(input) + exp(other))``."""
    high = maximum(input, other)
    return add(high, log1p(exp(neg(abs(sub(input, other))))))


def clamp(input: Any, min: Any = None, max: Any = None) -> Tensor:
    """Return each element limited to ``min`` and ``max``; a limit of None is none.

    Raises:
        ArgumentValueError: If both limits are None.
    """
    if min is None and max is None:
        raise ArgumentValueError("clip was given neither min nor max", "give at least one of them")
    tensor = need_tensor(input, "clip")
    numbers = [item for item in (min, max) if isinstance(item, (int, float))]
    dtype = tensor.type.dtype
    for number in numbers:
        dtype = promotion.with_number(dtype, number)
    if len(numbers) == (min is not None) + (max is not None):
        none = (None, None) if not is_float(dtype) else (-np.inf, np.inf)  # ONNX's own are finite
        limits = (other if item is None else item for item, other in zip((min, max), none, strict=True))
        low, high = (None if item is None else np.asarray(item, dtype) for item in limits)
        return emit("Clip", cast(tensor, dtype), low, high)
    result = tensor if min is None else maximum(tensor, min)
    return result if max is None else minimum(result, max)


clip = clamp
clip_by_value = spelled(clamp, "clip_by_value", x="input", clip_value_min="min", clip_value_max="max")
