"""Elementwise arithmetic: MindSpore's names, argument order and type rules."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opbuild.dtypes import is_float
from opbuild.frontend.cell import location
from opbuild.mindspore import promotion
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.ops.declaration import named, spelled
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


def need_tensor(value: Any, name: str) -> Tensor:
    """Return ``value`` if it is a tensor.

    Raises:
        ArgumentTypeError: If it is not.
    """
    if not isinstance(value, Tensor):
        raise ArgumentTypeError(f"{name} was given a {type(value).__name__}{location()}", "give a Tensor")
    return value


def as_operand(value: Any, dtype: str) -> Any:
    """Return a tensor converted to ``dtype``, or a Python number as an array of it."""
    return cast(value, dtype) if isinstance(value, Tensor) else np.asarray(value).astype(dtype)


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

    return named(function, name, f"Return {what}.")


def floating(value: Any, name: str) -> Tensor:
    """Return the tensor, converted to float32 if it holds integers or truth values."""
    tensor = need_tensor(value, name)
    return tensor if tensor.is_floating_point() else cast(tensor, "float32")


def _unary(op_type: str, domain: str = "", integers: str = "float32") -> Callable[[Any], Tensor]:
    """Return the function that is an operator of one operand; integers ``stay``, are ``computed`` or become float32."""

    def function(input: Any) -> Tensor:
        tensor = floating(input, op_type) if integers == "float32" else need_tensor(input, op_type)
        return tensor if integers == "stay" and not tensor.is_floating_point() else emit(op_type, tensor, domain=domain)

    rule = {"float32": "; integers become float32", "computed": ", in the element type of the tensor",
            "stay": "; integers stay as they are"}[integers]  # fmt: skip
    return named(function, op_type.lower(), f"Return {op_type} of each element{rule}.")


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


def erfc(input: Any) -> Tensor:
    """Return 1 - erf of each element."""
    return sub(1, erf(input))


def log2(input: Any) -> Tensor:
    """Return the logarithm to base 2 of each element."""
    return mul(log(input), 1.0 / math.log(2.0))


def log10(input: Any) -> Tensor:
    """Return the logarithm to base 10 of each element."""
    return mul(log(input), 1.0 / math.log(10.0))


def exp2(input: Any) -> Tensor:
    """Return 2 to the power of each element."""
    return pow(2.0, floating(input, "exp2"))


add = pairwise("add", "Add", "``input + other``", of_bool="Or")
sub = pairwise("sub", "Sub", "``input - other``; of truth values whether they differ", of_bool="Xor")
mul = multiply = pairwise("mul", "Mul", "``input * other``", of_bool="And")


def subtract(input: Any, other: Any, *, alpha: float = 1) -> Tensor:
    """Return ``input - alpha * other``."""
    return sub(input, other if alpha == 1 else mul(other, alpha))


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


def pow(input: Any, exponent: Any) -> Tensor:
    """Return ``input`` to the power of ``exponent``."""
    return binary("Pow", input, exponent)


def squared_difference(x: Any, y: Any) -> Tensor:
    """Return ``(x - y) ** 2``."""
    return binary("SquaredDifference", x, y, OWN)


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


def addcmul(input: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Tensor:
    """Return ``input + value * tensor1 * tensor2``."""
    return add(input, mul(mul(tensor1, tensor2), value))


def addcdiv(input: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Tensor:
    """Return ``input + value * tensor1 / tensor2``."""
    return add(input, mul(div(tensor1, tensor2), value))


def lerp(input: Any, end: Any, weight: Any) -> Tensor:
    """Return ``input + weight * (end - input)``."""
    return add(input, mul(weight, sub(end, input)))


def logaddexp(input: Any, other: Any) -> Tensor:
    """Return ``log(exp(input) + exp(other))``."""
    high = maximum(input, other)
    return add(high, log1p(exp(neg(abs(sub(input, other))))))


def hypot(input: Any, other: Any) -> Tensor:
    """Return ``sqrt(input**2 + other**2)``."""
    return sqrt(add(square(input), square(other)))


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
