"""Divisions that round, and what they leave."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.frontend.torch.promotion import category
from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.writing import StepBuilder, Value


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
