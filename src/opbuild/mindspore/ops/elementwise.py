"""Elementwise functions that are made of other operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.dtypes import float_limits, is_float
from opbuild.mindspore import promotion
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.execution import cast
from opbuild.mindspore.ops.activation import softshrink
from opbuild.mindspore.ops.arithmetic import (
    abs,
    add,
    addn,
    as_operand,
    div,
    exp2,
    fmod,
    log,
    log1p,
    maximum,
    minimum,
    mul,
    neg,
    pow,
    reciprocal,
    sign,
    sin,
    sub,
    trunc,
)  # fmt: skip
from opbuild.mindspore.ops.comparison import (
    bitwise_not,
    equal,
    greater,
    isinf,
    isnan,
    less,
    logical_and,
    logical_or,
    where,
)  # fmt: skip
from opbuild.mindspore.ops.creation import full_like, ones_like, zeros_like
from opbuild.mindspore.ops.declaration import floating, formula, need_tensor, of_floats, of_tensor, spelled
from opbuild.mindspore.ops.random import drawn
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "accumulate_n", "angle", "approximate_equal", "bool_not", "conj", "copysign", "deg2rad", "eps", "float_power",
    "fmax", "fmin", "frac", "heaviside", "imag", "inv", "invert", "is_complex", "is_floating_point", "is_nonzero",
    "isneginf", "isposinf", "isreal", "ldexp", "logaddexp2", "logit", "nan_to_num", "positive", "rad2deg", "real",
    "rrelu", "sgn", "signbit", "sinc", "soft_shrink", "truncate_div", "truncate_mod", "type_as", "xdivy", "xlogy",
]  # fmt: skip

angle = formula("angle", "the angle of each number: 0, or pi where it is negative",
                of_floats(lambda input: where(isnan(input), input, where(less(input, 0), math.pi, 0.0))))  # fmt: skip
approximate_equal = formula("approximate_equal", "whether elements differ by less than ``tolerance``",
                            lambda x, y, tolerance=1e-5: less(abs(sub(x, y)), tolerance))  # fmt: skip
bool_not = formula("bool_not", "whether an element is false", of_tensor(lambda x: equal(cast(x, "bool"), False)))
isreal = formula("isreal", "True for each element: no element type here is complex",
                 lambda input: full_like(input, True, dtype=bool))  # fmt: skip
is_floating_point = formula("is_floating_point", "whether the element type is a float",
                            of_tensor(lambda input: input.is_floating_point()))  # fmt: skip
is_nonzero = formula("is_nonzero", "whether the one element of a tensor is not 0", of_tensor(lambda input: bool(input)))
deg2rad = formula("deg2rad", "degrees as radians", of_floats(lambda x: mul(x, math.pi / 180)))
rad2deg = formula("rad2deg", "radians as degrees", of_floats(lambda x: mul(x, 180 / math.pi)))
div_no_nan = formula("div_no_nan", "``x / y``, and 0 where ``y`` is 0",
                     lambda x, y: where(equal(y, 0), 0.0, div(x, where(equal(y, 0), 1, y))))  # fmt: skip
mul_no_nan = formula("mul_no_nan", "``x * y``, and 0 where ``y`` is 0, also if ``x`` is not finite",
                     lambda x, y: where(equal(y, 0), zeros_like(add(x, y)), mul(x, y)))  # fmt: skip
frac = formula("frac", "each element without its whole part", lambda x: sub(x, trunc(x)))
ldexp = formula("ldexp", "``x * 2 ** other``",
                lambda x, other: mul(x, exp2(other) if isinstance(other, Tensor) else 2.0**other))  # fmt: skip
type_as = formula("type_as", "the tensor in the element type of another",
                  of_tensor(lambda input, other: cast(input, need_tensor(other, "type_as").type.dtype)))  # fmt: skip
xdivy = formula("xdivy", "``x / y``, and 0 where ``x`` is 0", lambda x, y: _zero_where_first_is(x, y, div))
xlogy = formula(
    "xlogy", "``input * log(other)``, and 0 where ``input`` is 0",
    lambda input, other: _zero_where_first_is(input, other, lambda first, second: mul(first, log(second))),
)  # fmt: skip


accumulate_n = spelled(addn, "accumulate_n")
inv = spelled(reciprocal, "inv", x="input")
invert = spelled(bitwise_not, "invert", x="input")
sgn = spelled(sign, "sgn")
soft_shrink = spelled(softshrink, "soft_shrink")
truncate_mod = spelled(fmod, "truncate_mod", x="input", y="other")


def _same(name: str, what: str) -> Callable[[Any], Tensor]:
    def function(input: Any) -> Tensor:
        return need_tensor(input, name)

    return formula(name, f"the tensor{what}", function)


conj, real = _same("conj", ": its numbers are real"), _same("real", ": its numbers are real")
positive = _same("positive", "")
imag = spelled(zeros_like, "imag", "Return zeros: the tensor's numbers are real.", {"dtype": None})
truncate_div = spelled(div, "truncate_div", "Return quotients rounded towards 0.", {"rounding_mode": "trunc"},
                       x="input", y="other")  # fmt: skip


def is_complex(input: Any) -> bool:
    """Return False: no element type here is complex."""
    need_tensor(input, "is_complex")
    return False


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


def eps(x: Any) -> Tensor:
    """Return the smallest step from 1 of the element type, in every element."""
    tensor = need_tensor(x, "Eps")
    return full_like(tensor, float(float_limits(tensor.type.dtype).eps))


def float_power(input: Any, exponent: Any) -> Tensor:
    """Return powers, computed in float64."""
    first, second = (
        cast(item, "float64") if isinstance(item, Tensor) else Tensor(item, np.float64) for item in (input, exponent)
    )
    return pow(first, second)


def _of_numbers(name: str, function: Callable[[Any, Any], Tensor], which: str) -> Callable[[Any, Any], Tensor]:
    def chosen(input: Any, other: Any) -> Tensor:
        common, first, second = promotion.operands(input, other, name)
        result = function(first, second)
        if not is_float(common):
            return result
        for item, instead in ((first, second), (second, first)):
            if isinstance(item, Tensor):
                result = where(isnan(item), instead, result)
        return result

    return formula(name, f"the {which} of two elements; of NaN and a number the number", chosen)


fmax, fmin = _of_numbers("fmax", maximum, "greater"), _of_numbers("fmin", minimum, "smaller")


def heaviside(input: Any, values: Any) -> Tensor:
    """Return 0 where ``input`` is negative, 1 where it is positive, and ``values`` where it is 0."""
    tensor = need_tensor(input, "heaviside")
    steps = cast(greater(tensor, 0), tensor.type.dtype)
    steps = where(isnan(tensor), tensor, steps) if tensor.is_floating_point() else steps
    return where(equal(tensor, 0), values, steps)


def _infinite(name: str, sign: str, compared: Callable[[Any, Any], Tensor]) -> Callable[[Any], Tensor]:
    def function(input: Any) -> Tensor:
        return logical_and(isinf(input), compared(input, 0))

    return formula(name, f"whether an element is {sign} infinity", function)


isneginf, isposinf = _infinite("isneginf", "minus", less), _infinite("isposinf", "plus", greater)


def logaddexp2(input: Any, other: Any) -> Tensor:
    """Return ``log2(2 ** input + 2 ** other)``."""
    high = maximum(input, other)
    return add(high, mul(log1p(exp2(neg(abs(sub(input, other))))), 1 / math.log(2)))


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


def rrelu(input: Any, lower: float = 1 / 8, upper: float = 1 / 3) -> Tensor:
    """Return ``input`` where it is not negative, elsewhere times slopes that each call draws, as in MindSpore."""
    if lower > upper:
        raise ArgumentValueError(f"rrelu from {lower} to {upper}", "lower must not be above upper")
    x = need_tensor(input, "rrelu")
    slopes = lower if lower == upper else drawn("rrelu", lambda g: g.uniform(lower, upper, x.shape), x.dtype)
    return where(less(x, 0), mul(x, slopes), x)


def sinc(input: Any) -> Tensor:
    """Return ``sin(pi * x) / (pi * x)``, 1 at 0."""
    tensor = floating(input, "sinc")
    zero = equal(tensor, 0)
    scaled = where(zero, ones_like(tensor), mul(tensor, math.pi))
    return where(zero, ones_like(tensor), div(sin(scaled), scaled))


def _zero_where_first_is(first: Any, second: Any, function: Any) -> Tensor:
    common, first, second = promotion.operands(first, second, "xlogy")
    common = common if is_float(common) else "float32"
    left, right = (
        item if isinstance(item, Tensor) else Tensor.of(item)
        for item in (as_operand(first, common), as_operand(second, common))
    )
    return where(equal(left, 0), zeros_like(left), function(left, right))
