"""Elementwise arithmetic, comparison, logic, bits and activations: MindSpore's names, argument order and type rules."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from opbuild.dtypes import float_limits, is_float
from opbuild.mindspore import execution, names
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, Attributes, axis_in, one_of
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.ops.declaration import floating, formula, need_tensor, of_floats, of_tensor, spelled
from opbuild.mindspore.ops.shaping import full_like, ones_like, zeros_like
from opbuild.mindspore.tensor import Tensor

OWN = "opbuild"
"""The domain of operators that ONNX does not have."""


def as_operand(value: Any, dtype: str) -> Any:
    """Return a tensor converted to ``dtype``, or a Python number as an array of it."""
    return cast(value, dtype) if isinstance(value, Tensor) else np.asarray(value).astype(dtype)


def binary(op_type: str, first: Any, second: Any, domain: str = "", dtype: str = "") -> Tensor:
    """Apply an operator of two operands in their common type, or in ``dtype``."""
    common, first, second = execution.operands(first, second, op_type)
    common = dtype or common
    return emit(op_type, as_operand(first, common), as_operand(second, common), domain=domain)


def pairwise(op_type: str, what: str, domain: str = "", *, dtype: str = "", of_bool: str = "",
             bool_as: str = "") -> Callable[[Any, Any], Tensor]:  # fmt: skip
    """Return the function that is an operator of two operands, computed in ``dtype`` or else in their common type.

    Of two truth values it is ``of_bool``, where that is another operator, or computed in ``bool_as``.
    """

    def function(input: Any, other: Any) -> Tensor:
        common, first, second = execution.operands(input, other, op_type)
        if common == "bool" and of_bool:
            return binary(of_bool, first, second)
        return binary(op_type, first, second, domain, bool_as if common == "bool" and bool_as else dtype)

    return formula(what, function)


def _unary(op_type: str, domain: str = "", integers: str = "float32") -> Callable[[Any], Tensor]:
    """Return the function that is an operator of one operand; integers ``stay``, are ``computed`` or become float32."""

    def function(input: Any) -> Tensor:
        tensor = floating(input, op_type) if integers == "float32" else need_tensor(input, op_type)
        return tensor if integers == "stay" and not tensor.is_floating_point() else emit(op_type, tensor, domain=domain)

    rule = {"float32": "; integers become float32", "computed": ", in the element type of the tensor",
            "stay": "; integers stay as they are"}[integers]  # fmt: skip
    return formula(f"{op_type} of each element{rule}", function)


def round(input: Any, *, decimals: int = 0) -> Tensor:
    """Round each element to ``decimals`` places, halves to even."""
    if decimals == 0:
        return _round(input)
    scale = 10.0**decimals
    return div(_round(mul(input, scale)), scale)


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """Return ``input / other``; integers are divided as float32.

    The quotient is rounded as ``rounding_mode`` says: ``None``, ``"floor"`` or ``"trunc"``.
    """
    if rounding_mode == "floor":
        return floor_divide(input, other)
    common, first, second = execution.operands(input, other, "Div")
    if rounding_mode == "trunc":
        return trunc(binary("Div", first, second))
    if rounding_mode is not None:
        raise ArgumentValueError(f"rounding_mode is {rounding_mode!r}", "it must be None, 'floor' or 'trunc'")
    return binary("Div", first, second, dtype=common if is_float(common) else "float32")


def floor_mod(x: Any, y: Any) -> Tensor:
    """Return the remainder of ``floor_div``; it has the sign of ``y``."""
    common, first, second = execution.operands(x, y, "FloorMod")
    return binary("Mod", first, second, OWN if is_float(common) else "")


def fmod(input: Any, other: Any) -> Tensor:
    """Return the remainder of a division rounded towards zero; it has the sign of ``input``."""
    common, first, second = execution.operands(input, other, "fmod")
    return emit("Mod", as_operand(first, common), as_operand(second, common), fmod=1)


def atan2(input: Any, other: Any) -> Tensor:
    """Return the angle of the point (``other``, ``input``)."""
    common, first, second = execution.operands(input, other, "atan2")
    return binary("Atan2", first, second, OWN, common if is_float(common) else "float32")


def addn(x: Sequence[Tensor]) -> Tensor:
    """Return the sum of several tensors."""
    if isinstance(x, Tensor) or not x:
        raise ArgumentTypeError("addn was given no sequence of tensors", "give a tuple or list of them")
    return functools.reduce(add, x)


def clamp(input: Any, min: Any = None, max: Any = None) -> Tensor:
    """Return each element limited to ``min`` and ``max``; a limit of None is none."""
    if min is None and max is None:
        raise ArgumentValueError("clip was given neither min nor max", "give at least one of them")
    tensor = need_tensor(input, "clip")
    numbers = [item for item in (min, max) if isinstance(item, (int, float))]
    dtype = tensor.type.dtype
    for number in numbers:
        dtype = execution.with_number(dtype, number)
    if len(numbers) == (min is not None) + (max is not None):
        none = (None, None) if not is_float(dtype) else (-np.inf, np.inf)  # ONNX's own are finite
        limits = (other if item is None else item for item, other in zip((min, max), none, strict=True))
        low, high = (None if item is None else np.asarray(item, dtype) for item in limits)
        return emit("Clip", cast(tensor, dtype), low, high)
    result = tensor if min is None else maximum(tensor, min)
    return result if max is None else minimum(result, max)


def _of_float(op_type: str, what: str, of_integers: bool, domain: str = "") -> Callable[[Any], Tensor]:
    def function(input: Any) -> Tensor:
        tensor = need_tensor(input, op_type)
        if tensor.is_floating_point():
            return emit(op_type, tensor, domain=domain)
        return Tensor.of(np.full(tensor.shape, of_integers))

    return formula(f"whether an element is {what}", function)


def isclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Return ``|input - other| <= atol + rtol * |other|``; with ``equal_nan`` NaN is close to NaN."""
    first, second = need_tensor(input, "isclose"), need_tensor(other, "isclose")
    near = less_equal(abs(sub(first, second)), add(mul(abs(second), rtol), atol))
    close = logical_or(equal(first, second), logical_and(near, isfinite(second)))
    return logical_or(close, logical_and(isnan(first), isnan(second))) if equal_nan else close


def where(condition: Any, input: Any, other: Any) -> Tensor:
    """Return elements of ``input`` where ``condition`` is true and of ``other`` elsewhere."""
    chosen = cast(need_tensor(condition, "where"), "bool")
    common, first, second = execution.operands(input, other, "where")
    return emit("Where", chosen, as_operand(first, common), as_operand(second, common))


def masked_fill(input_x: Any, mask: Any, value: Any) -> Tensor:
    """Return the tensor with ``value`` where ``mask`` is true; its element type stays."""
    tensor = need_tensor(input_x, "masked_fill")
    dtype = tensor.type.dtype
    return emit("Where", cast(need_tensor(mask, "masked_fill"), "bool"), as_operand(value, dtype), tensor)


def copysign(x: Any, other: Any) -> Tensor:
    """Return the absolute values of ``x`` with the signs of ``other``."""
    tensor = floating(x, "copysign")
    negative = signbit(other) if isinstance(other, Tensor) else math.copysign(1, other) < 0
    magnitude = abs(tensor)
    if isinstance(negative, Tensor):
        return where(negative, neg(magnitude), magnitude)
    return neg(magnitude) if negative else magnitude


def signbit(input: Any) -> Tensor:
    """Return whether the sign of each element is set, also that of zeros."""
    tensor = need_tensor(input, "signbit")
    if not tensor.is_floating_point():
        return less(tensor, 0)
    return logical_or(less(tensor, 0), logical_and(equal(tensor, 0), less(reciprocal(tensor), 0)))


def float_power(input: Any, exponent: Any) -> Tensor:
    """Return powers, computed in float64."""
    first, second = (
        cast(item, "float64") if isinstance(item, Tensor) else Tensor(item, np.float64) for item in (input, exponent)
    )
    return pow(first, second)


def _of_numbers(name: str, function: Callable[[Any, Any], Tensor], which: str) -> Callable[[Any, Any], Tensor]:
    def chosen(input: Any, other: Any) -> Tensor:
        common, first, second = execution.operands(input, other, name)
        result = function(first, second)
        if not is_float(common):
            return result
        for item, instead in ((first, second), (second, first)):
            if isinstance(item, Tensor):
                result = where(isnan(item), instead, result)
        return result

    return formula(f"the {which} of two elements; of NaN and a number the number", chosen)


def heaviside(input: Any, values: Any) -> Tensor:
    """Return 0 where ``input`` is negative, 1 where it is positive, and ``values`` where it is 0."""
    tensor = need_tensor(input, "heaviside")
    steps = cast(greater(tensor, 0), tensor.type.dtype)
    steps = where(isnan(tensor), tensor, steps) if tensor.is_floating_point() else steps
    return where(equal(tensor, 0), values, steps)


def logit(input: Any, eps: float | None = None) -> Tensor:
    """Return ``log(x / (1 - x))``, of elements limited to ``eps`` and ``1 - eps`` if it is given."""
    tensor = floating(input, "logit")
    if eps is not None and eps >= 0:
        tensor = minimum(maximum(tensor, eps), 1 - eps)
    return log(div(tensor, sub(1, tensor)))


def nan_to_num(
    input: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Return the tensor with numbers for NaN (0) and for the infinities (the greatest and least finite ones)."""
    tensor = need_tensor(input, "nan_to_num")
    if not tensor.is_floating_point():
        return tensor
    limits = float_limits(tensor.type.dtype)
    tensor = where(isnan(tensor), 0.0 if nan is None else float(nan), tensor)
    tensor = where(isposinf(tensor), float(limits.max) if posinf is None else float(posinf), tensor)
    return where(isneginf(tensor), float(limits.min) if neginf is None else float(neginf), tensor)


def sinc(input: Any) -> Tensor:
    """Return ``sin(pi * x) / (pi * x)``, 1 at 0."""
    tensor = floating(input, "sinc")
    zero = equal(tensor, 0)
    scaled = where(zero, ones_like(tensor), mul(tensor, math.pi))
    return where(zero, ones_like(tensor), div(sin(scaled), scaled))


def _zero_where_first_is(first: Any, second: Any, function: Any) -> Tensor:
    common, first, second = execution.operands(first, second, "xlogy")
    common = common if is_float(common) else "float32"
    given = (as_operand(first, common), as_operand(second, common))
    left, right = (item if isinstance(item, Tensor) else Tensor.of(item) for item in given)
    return where(equal(left, 0), zeros_like(left), function(left, right))


def relu(input: Any, inplace: bool = False) -> Tensor:
    """Return ``max(input, 0)``."""
    if inplace:
        raise ArgumentValueError("relu was given inplace=True", "use its result instead")
    return emit("Relu", need_tensor(input, "relu"))


def gelu(input: Any, approximate: str = "none") -> Tensor:
    """Return ``input`` times the normal distribution's cumulative function of it.

    It is computed with erf, or with tanh where ``approximate`` is ``"tanh"`` and not ``"none"``.
    """
    one_of(approximate, ("none", "tanh"), "approximate")
    return emit("Gelu", need_tensor(input, "gelu"), approximate=approximate)


def _emitting(name: str, op_type: str, what: str, operand: str = "input", domain: str = "",
              fixed: Mapping[str, float] | None = None, **attributes: float) -> Callable[..., Tensor]:  # fmt: skip
    """Return the activation that is one operator, with ``fixed`` attributes and those that it takes by defaults."""
    taken = Attributes(name, {operand: ..., **attributes})

    def function(*args: Any, **kwargs: Any) -> Tensor:
        given = taken.bind(args, kwargs)
        tensor = need_tensor(given.pop(operand), name)
        numbers = {key: float(value) for key, value in given.items()}
        return emit(op_type, tensor, domain=domain, **numbers, **(fixed or {}))

    function.__signature__ = taken.signature  # type: ignore[attr-defined]
    return formula(what, function)


def celu(x: Any, alpha: float = 1.0) -> Tensor:
    """Return ``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))``."""
    if alpha == 0:
        raise ArgumentValueError("celu was given alpha=0", "give a float that is not 0")
    return emit("Celu", need_tensor(x, "celu"), alpha=float(alpha))


def softplus(input: Any, beta: float = 1, threshold: float = 20) -> Tensor:
    """Return ``log(1 + exp(beta * x)) / beta``, and ``x`` where ``beta * x`` is above ``threshold``."""
    tensor = need_tensor(input, "softplus")
    scaled = tensor if beta == 1 else mul(tensor, float(beta))
    soft = emit("Softplus", scaled)
    soft = soft if beta == 1 else mul(soft, 1.0 / beta)
    # Above 20 the two differ by less than an ulp of float32, so only a smaller threshold shows.
    return soft if threshold >= 20 else where(greater(scaled, threshold), tensor, soft)


def prelu(input: Any, weight: Any) -> Tensor:
    """Return ``input`` where it is positive, ``weight * input`` elsewhere, one weight or one a channel."""
    tensor, slope = need_tensor(input, "prelu"), need_tensor(weight, "prelu")
    if slope.size > 1 and tensor.ndim > 2:
        slope = emit("Reshape", slope, np.array([-1] + [1] * (tensor.ndim - 2), np.int64))
    return emit("PRelu", tensor, slope)


def _normalized(op_type: str, value: Any, axis: int, dtype: Any) -> Tensor:
    tensor = need_tensor(value, op_type)
    if dtype is not None:
        tensor = cast(tensor, to_type(dtype).name)
    axis_in(axis, tensor.ndim, op_type)
    return emit(op_type, tensor, axis=axis)


def glu(x: Any, axis: int = -1) -> Tensor:
    """Return the first half along ``axis`` times the sigmoid of the second."""
    first, second = _halves(x, axis, "glu")
    return mul(first, sigmoid(second))


def swiglu(input: Any, dim: int = -1) -> Tensor:
    """Return ``silu`` of the first half along ``dim`` times the second."""
    first, second = _halves(input, dim, "swiglu")
    return mul(silu(first), second)


def _halves(value: Any, axis: int, name: str) -> tuple[Tensor, Tensor]:
    from opbuild.mindspore.ops.shaping import split

    tensor = need_tensor(value, name)
    extent = tensor.shape[axis_in(axis, tensor.ndim, name)]
    if extent % 2:
        raise ArgumentValueError(f"{name} splits axis {axis} of size {extent}", "its size must be even")
    first, second = split(tensor, extent // 2, axis)
    return first, second


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
add = pairwise("Add", "``input + other``", of_bool="Or")
sub = pairwise("Sub", "``input - other``; of truth values whether they differ", of_bool="Xor")
mul = multiply = pairwise("Mul", "``input * other``", of_bool="And")
divide = div
true_divide = spelled(div, "Return ``dividend / divisor``.", {"rounding_mode": None}, dividend="input", divisor="other")
floor_divide = pairwise("FloorDiv", "the greatest integers not above ``input / other``", OWN)
floor_div = spelled(floor_divide, x="input", y="other")
maximum = pairwise("Max", "the greater of two elements; NaN where either is NaN")
minimum = pairwise("Min", "the smaller of two elements; NaN where either is NaN")
remainder = spelled(floor_mod, input="x", other="y")
arctan2 = atan2
pow = formula("``input`` to the power of ``exponent``", lambda input, exponent: binary("Pow", input, exponent))
erfc = formula("1 - erf of each element", lambda input: sub(1, erf(input)))
log2 = formula("the logarithm to base 2 of each element", lambda input: mul(log(input), 1.0 / math.log(2.0)))
log10 = formula("the logarithm to base 10 of each element", lambda input: mul(log(input), 1.0 / math.log(10.0)))
exp2 = formula("2 to the power of each element", of_floats(lambda input: pow(2.0, input)))
subtract = formula("``input - alpha * other``",
    lambda input, other, *, alpha=1: sub(input, other if alpha == 1 else mul(other, alpha)))  # fmt: skip
squared_difference = formula("``(x - y) ** 2``", lambda x, y: binary("SquaredDifference", x, y, OWN))
addcmul = formula("``input + value * tensor1 * tensor2``",
    lambda input, tensor1, tensor2, value=1: add(input, mul(mul(tensor1, tensor2), value)))  # fmt: skip
addcdiv = formula("``input + value * tensor1 / tensor2``",
    lambda input, tensor1, tensor2, value=1: add(input, mul(div(tensor1, tensor2), value)))  # fmt: skip
lerp = formula("``input + weight * (end - input)``",
    lambda input, end, weight: add(input, mul(weight, sub(end, input))))  # fmt: skip
hypot = formula("``sqrt(input**2 + other**2)``", lambda input, other: sqrt(add(square(input), square(other))))
logaddexp = formula("``log(exp(input) + exp(other))``",
    lambda input, other: add(maximum(input, other), log1p(exp(neg(abs(sub(input, other)))))))  # fmt: skip
clip = clamp
clip_by_value = spelled(clamp, x="input", clip_value_min="min", clip_value_max="max")
logical_not = formula("whether an element is false", of_tensor(lambda input: emit("Not", cast(input, "bool"))))
bitwise_not = formula("the bits that are not set; of truth values the opposite",
    of_tensor(lambda input: emit("Not" if input.type.dtype == "bool" else "BitwiseNot", input)))  # fmt: skip
equal = eq = pairwise("Equal", "whether elements are equal")
not_equal = ne = pairwise("NotEqual", "whether elements differ", OWN)
less = lt = pairwise("Less", "``input < other``", bool_as="uint8")
less_equal = le = pairwise("LessOrEqual", "``input <= other``", bool_as="uint8")
greater = gt = pairwise("Greater", "``input > other``", bool_as="uint8")
greater_equal = ge = pairwise("GreaterOrEqual", "``input >= other``", bool_as="uint8")
logical_and = pairwise("And", "whether both elements are true", dtype="bool")
logical_or = pairwise("Or", "whether any of two elements is true", dtype="bool")
logical_xor = pairwise("Xor", "whether exactly one of two elements is true", dtype="bool")
bitwise_and = pairwise("BitwiseAnd", "the bits set in both", of_bool="And")
bitwise_or = pairwise("BitwiseOr", "the bits set in any", of_bool="Or")
bitwise_xor = pairwise("BitwiseXor", "the bits set in exactly one", of_bool="Xor")
bitwise_left_shift = pairwise("ShiftLeft", "``input`` shifted left by ``other`` bits", OWN)
bitwise_right_shift = pairwise("ShiftRight", "``input`` shifted right by ``other`` bits", OWN)
isnan = _of_float("IsNaN", "NaN", False)
isinf = _of_float("IsInf", "an infinity", False)
isfinite = _of_float("IsFinite", "neither an infinity nor NaN", True, OWN)
select = spelled(where)
angle = formula("the angle of each number: 0, or pi where it is negative",
    of_floats(lambda input: where(isnan(input), input, where(less(input, 0), math.pi, 0.0))))  # fmt: skip
approximate_equal = formula("whether elements differ by less than ``tolerance``",
    lambda x, y, tolerance=1e-5: less(abs(sub(x, y)), tolerance))  # fmt: skip
bool_not = formula("whether an element is false", of_tensor(lambda x: equal(cast(x, "bool"), False)))
isreal = formula("True for each element: no element type here is complex",
    lambda input: full_like(input, True, dtype=bool))  # fmt: skip
is_floating_point = formula("whether the element type is a float", of_tensor(lambda input: input.is_floating_point()))
is_nonzero = formula("whether the one element of a tensor is not 0", of_tensor(lambda input: bool(input)))
deg2rad = formula("degrees as radians", of_floats(lambda x: mul(x, math.pi / 180)))
rad2deg = formula("radians as degrees", of_floats(lambda x: mul(x, 180 / math.pi)))
div_no_nan = formula("``x / y``, and 0 where ``y`` is 0",
    lambda x, y: where(equal(y, 0), 0.0, div(x, where(equal(y, 0), 1, y))))  # fmt: skip
mul_no_nan = formula("``x * y``, and 0 where ``y`` is 0, also if ``x`` is not finite",
    lambda x, y: where(equal(y, 0), zeros_like(add(x, y)), mul(x, y)))  # fmt: skip
frac = formula("each element without its whole part", lambda x: sub(x, trunc(x)))
ldexp = formula("``x * 2 ** other``", lambda x, other: mul(x, exp2(other) if isinstance(other, Tensor) else 2.0**other))
type_as = formula("the tensor in the element type of another",
    of_tensor(lambda input, other: cast(input, need_tensor(other, "type_as").type.dtype)))  # fmt: skip
xdivy = formula("``x / y``, and 0 where ``x`` is 0", lambda x, y: _zero_where_first_is(x, y, div))
xlogy = formula("``input * log(other)``, and 0 where ``input`` is 0",
    lambda input, other: _zero_where_first_is(input, other, lambda first, second: mul(first, log(second))))  # fmt: skip
accumulate_n = spelled(addn)
inv = spelled(reciprocal, x="input")
invert = spelled(bitwise_not, x="input")
sgn = spelled(sign)
truncate_mod = spelled(fmod, x="input", y="other")
conj = formula("the tensor: its numbers are real", of_tensor(lambda input: input))
real = formula("the tensor: its numbers are real", of_tensor(lambda input: input))
positive = formula("the tensor", of_tensor(lambda input: input))
imag = spelled(zeros_like, "Return zeros: the tensor's numbers are real.", {"dtype": None})
truncate_div = spelled(div, "Return quotients rounded towards 0.", {"rounding_mode": "trunc"}, x="input", y="other")
is_complex = formula("False: no element type here is complex", of_tensor(lambda input: False))
fmax, fmin = _of_numbers("fmax", maximum, "greater"), _of_numbers("fmin", minimum, "smaller")
isneginf = formula("whether an element is minus infinity", lambda input: logical_and(isinf(input), less(input, 0)))
isposinf = formula("whether an element is plus infinity", lambda input: logical_and(isinf(input), greater(input, 0)))
logaddexp2 = formula("``log2(2 ** input + 2 ** other)``",
    lambda input, other:
        add(maximum(input, other), mul(log1p(exp2(neg(abs(sub(input, other))))), 1 / math.log(2))))  # fmt: skip
silu = _emitting("silu", "Silu", "``input * sigmoid(input)``", domain=OWN)
hardswish = _emitting("hardswish", "HardSwish", "``input * relu6(input + 3) / 6``")
hardsigmoid = _emitting("hardsigmoid", "HardSigmoid", "``relu6(input + 3) / 6``",
    fixed={"alpha": 1.0 / 6.0, "beta": 0.5})  # fmt: skip
mish = _emitting("mish", "Mish", "``x * tanh(softplus(x))``", "x")
leaky_relu = _emitting("leaky_relu", "LeakyRelu", "``input`` where it is not negative, ``alpha * input`` elsewhere",
    alpha=0.2)  # fmt: skip
elu = _emitting("elu", "Elu", "``x`` where it is positive, ``alpha * (exp(x) - 1)`` elsewhere", "input_x", alpha=1.0)
selu = _emitting("selu", "Selu", "the scaled ELU", "input_x")
softsign = _emitting("softsign", "Softsign", "``x / (1 + |x|)``", "x")
hardshrink = _emitting("hardshrink", "Shrink", "elements whose absolute value is above ``lambd``, and 0 elsewhere",
    fixed={"bias": 0.0}, lambd=0.5)  # fmt: skip
hardtanh = formula("each element limited to ``min_val`` and ``max_val``",
    of_tensor(lambda input, min_val=-1.0, max_val=1.0:
        emit("Clip", input, np.asarray(min_val, input.type.dtype), np.asarray(max_val, input.type.dtype))))  # fmt: skip
relu6 = formula("each element limited to 0 and 6", of_tensor(lambda x: hardtanh(x, 0, 6)))
sigmoid = formula("``1 / (1 + exp(-input))``", of_floats(lambda input: emit("Sigmoid", input)))
softshrink = formula("elements moved by ``lambd`` towards 0, and 0 for those nearer",
    of_tensor(lambda input, lambd=0.5: emit("Shrink", input, lambd=float(lambd), bias=float(lambd))))  # fmt: skip
logsigmoid = formula("``log(sigmoid(x))``", of_tensor(lambda x: neg(emit("Softplus", neg(x)))))
tanhshrink = formula("``input - tanh(input)``", lambda input: sub(input, tanh(input)))
threshold = formula("elements above ``thr``, and ``value`` elsewhere",
    of_tensor(lambda input, thr, value:
        emit("Where", greater(input, thr), input, np.asarray(value, input.type.dtype))))  # fmt: skip
softmax = formula("``exp(input)`` divided by its sum along ``axis``",
    lambda input, axis=-1, *, dtype=None: _normalized("Softmax", input, axis, dtype))  # fmt: skip
log_softmax = formula("the logarithm of ``softmax(logits, axis)``",
    lambda logits, axis=-1: _normalized("LogSoftmax", logits, axis, None))  # fmt: skip
softmin = formula("``softmax(-x, axis)``", lambda x, axis=-1, *, dtype=None: softmax(neg(x), axis, dtype=dtype))
fast_gelu = formula("``x * sigmoid(1.702 * x)``", lambda x: mul(x, sigmoid(mul(x, 1.702))))
soft_shrink = spelled(softshrink)
eps = formula("the smallest step from 1 of the element type, in every element",
    of_tensor(lambda x: full_like(x, float(float_limits(x.type.dtype).eps))))  # fmt: skip

names.export(vars(), but="as_operand binary div_no_nan mul_no_nan pairwise squared_difference")
