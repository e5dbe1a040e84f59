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
    floating,
    fmod,
    log,
    log1p,
    maximum,
    minimum,
    mul,
    need_tensor,
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
from opbuild.mindspore.ops.declaration import named, spelled
from opbuild.mindspore.ops.random import drawn
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "accumulate_n", "angle", "approximate_equal", "bool_not", "conj", "copysign", "deg2rad", "eps", "float_power",
    "fmax", "fmin", "frac", "heaviside", "imag", "inv", "invert", "is_complex", "is_floating_point", "is_nonzero",
    "isneginf", "isposinf", "isreal", "ldexp", "logaddexp2", "logit", "nan_to_num", "positive", "rad2deg", "real",
    "rrelu", "sgn", "signbit", "sinc", "soft_shrink", "truncate_div", "truncate_mod", "type_as", "xdivy", "xlogy",
]  # fmt: skip


accumulate_n = spelled(addn, "accumulate_n")
inv = spelled(reciprocal, "inv", x="input")
invert = spelled(bitwise_not, "invert", x="input")
sgn = spelled(sign, "sgn")
soft_shrink = spelled(softshrink, "soft_shrink")
truncate_mod = spelled(fmod, "truncate_mod", x="input", y="other")


def angle(input: Any) -> Tensor:
    """Return the angle of each number: 0, or pi where it is negative."""
    tensor = floating(input, "angle")
    return where(isnan(tensor), tensor, where(less(tensor, 0), math.pi, 0.0))


def approximate_equal(x: Any, y: Any, tolerance: float = 1e-5) -> Tensor:
    """Return whether elements differ by less than ``tolerance``."""
    return less(abs(sub(x, y)), tolerance)


def bool_not(x: Any) -> Tensor:
    """Return whether an element is false."""
    return equal(cast(need_tensor(x, "bool_not"), "bool"), False)


def _same(name: str, what: str) -> Callable[[Any], Tensor]:
    def function(input: Any) -> Tensor:
        return need_tensor(input, name)

    return named(function, name, f"Return the tensor{what}.")


conj, real = _same("conj", ": its numbers are real"), _same("real", ": its numbers are real")
positive = _same("positive", "")
imag = spelled(zeros_like, "imag", "Return zeros: the tensor's numbers are real.", {"dtype": None})
truncate_div = spelled(div, "truncate_div", "Return quotients rounded towards 0.", {"rounding_mode": "trunc"},
                       x="input", y="other")  # fmt: skip


def is_complex(input: Any) -> bool:
    """Return False: no element type here is complex."""
    need_tensor(input, "is_complex")
    return False


def isreal(input: Any) -> Tensor:
    """Return True for each element: no element type here is complex."""
    return full_like(input, True, dtype=bool)


def is_floating_point(input: Any) -> bool:
    """Return whether the element type is a float."""
    return need_tensor(input, "is_floating_point").is_floating_point()


def is_nonzero(input: Any) -> bool:
    """Return whether the one element of a tensor is not 0."""
    return bool(need_tensor(input, "is_nonzero"))


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


def deg2rad(x: Any) -> Tensor:
    """Return degrees as radians."""
    return mul(floating(x, "deg2rad"), math.pi / 180)


def rad2deg(x: Any) -> Tensor:
    """Return radians as degrees."""
    return mul(floating(x, "rad2deg"), 180 / math.pi)


def div_no_nan(x: Any, y: Any) -> Tensor:
    """Return ``x / y``, and 0 where ``y`` is 0."""
    return where(equal(y, 0), 0.0, div(x, where(equal(y, 0), 1, y)))


def mul_no_nan(x: Any, y: Any) -> Tensor:
    """Return ``x * y``, and 0 where ``y`` is 0, also if ``x`` is not finite."""
    return where(equal(y, 0), zeros_like(add(x, y)), mul(x, y))


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

    return named(chosen, name, f"Return the {which} of two elements; of NaN and a number the number.")


fmax, fmin = _of_numbers("fmax", maximum, "greater"), _of_numbers("fmin", minimum, "smaller")


def frac(x: Any) -> Tensor:
    """Return each element without its whole part."""
    return sub(x, trunc(x))


def heaviside(input: Any, values: Any) -> Tensor:
    """Return 0 where ``input`` is negative, 1 where it is positive, and ``values`` where it is 0."""
    tensor = need_tensor(input, "heaviside")
    steps = cast(greater(tensor, 0), tensor.type.dtype)
    steps = where(isnan(tensor), tensor, steps) if tensor.is_floating_point() else steps
    return where(equal(tensor, 0), values, steps)


def _infinite(name: str, sign: str, compared: Callable[[Any, Any], Tensor]) -> Callable[[Any], Tensor]:
    def function(input: Any) -> Tensor:
        return logical_and(isinf(input), compared(input, 0))

    return named(function, name, f"Return whether an element is {sign} infinity.")


isneginf, isposinf = _infinite("isneginf", "minus", less), _infinite("isposinf", "plus", greater)


def ldexp(x: Any, other: Any) -> Tensor:
    """Return ``x * 2 ** other``."""
    return mul(x, exp2(other) if isinstance(other, Tensor) else 2.0**other)


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


def type_as(input: Any, other: Any) -> Tensor:
    """Return the tensor in the element type of another."""
    return cast(need_tensor(input, "type_as"), need_tensor(other, "type_as").type.dtype)


def xdivy(x: Any, y: Any) -> Tensor:
    """Return ``x / y``, and 0 where ``x`` is 0."""
    return _zero_where_first_is(x, y, div)


def xlogy(input: Any, other: Any) -> Tensor:
    """Return ``input * log(other)``, and 0 where ``input`` is 0."""
    return _zero_where_first_is(input, other, lambda first, second: mul(first, log(second)))


def _zero_where_first_is(first: Any, second: Any, function: Any) -> Tensor:
    common, first, second = promotion.operands(first, second, "xlogy")
    common = common if is_float(common) else "float32"
    left, right = (
        item if isinstance(item, Tensor) else Tensor.of(item)
        for item in (as_operand(first, common), as_operand(second, common))
    )
    return where(equal(left, 0), zeros_like(left), function(left, right))
