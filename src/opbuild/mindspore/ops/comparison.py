"""Comparison, logic, selection and bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.mindspore import promotion
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.ops.arithmetic import OWN, abs, add, as_operand, binary, mul, need_tensor, sub
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "eq",
    "equal", "ge", "greater", "greater_equal", "gt", "isclose", "isfinite", "isinf", "isnan", "le", "less",
    "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "masked_fill", "ne", "not_equal",
    "select", "where",
]  # fmt: skip


def equal(input: Any, other: Any) -> Tensor:
    """Return whether elements are equal."""
    return binary("Equal", input, other)


def not_equal(input: Any, other: Any) -> Tensor:
    """Return whether elements differ."""
    return binary("NotEqual", input, other, OWN)


def less(input: Any, other: Any) -> Tensor:
    """Return ``input < other``."""
    return _ordered("Less", input, other)


def less_equal(input: Any, other: Any) -> Tensor:
    """Return ``input <= other``."""
    return _ordered("LessOrEqual", input, other)


def greater(input: Any, other: Any) -> Tensor:
    """Return ``input > other``."""
    return _ordered("Greater", input, other)


def greater_equal(input: Any, other: Any) -> Tensor:
    """Return ``input >= other``."""
    return _ordered("GreaterOrEqual", input, other)


eq, ne, lt, le, gt, ge = equal, not_equal, less, less_equal, greater, greater_equal


def _ordered(op_type: str, first: Any, second: Any) -> Tensor:
    common, first, second = promotion.operands(first, second, op_type)
    return binary(op_type, first, second, dtype="uint8" if common == "bool" else common)


def logical_and(input: Any, other: Any) -> Tensor:
    """Return whether both elements are true."""
    return binary("And", input, other, dtype="bool")


def logical_or(input: Any, other: Any) -> Tensor:
    """Return whether any of two elements is true."""
    return binary("Or", input, other, dtype="bool")


def logical_xor(input: Any, other: Any) -> Tensor:
    """Return whether exactly one of two elements is true."""
    return binary("Xor", input, other, dtype="bool")


def logical_not(input: Any) -> Tensor:
    """Return whether an element is false."""
    return emit("Not", cast(need_tensor(input, "logical_not"), "bool"))


def isnan(input: Any) -> Tensor:
    """Return whether an element is NaN."""
    return _of_float("IsNaN", input, False)


def isinf(input: Any) -> Tensor:
    """Return whether an element is an infinity."""
    return _of_float("IsInf", input, False)


def isfinite(input: Any) -> Tensor:
    """Return whether an element is neither an infinity nor NaN."""
    return _of_float("IsFinite", input, True, OWN)


def _of_float(op_type: str, value: Any, of_integers: bool, domain: str = "") -> Tensor:
    tensor = need_tensor(value, op_type)
    if tensor.is_floating_point():
        return emit(op_type, tensor, domain=domain)
    return Tensor.of(np.full(tensor.shape, of_integers))


def isclose(input: Any, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Return ``|input - other| <= atol + rtol * |other|``; with ``equal_nan`` NaN is close to NaN."""
    first, second = need_tensor(input, "isclose"), need_tensor(other, "isclose")
    near = less_equal(abs(sub(first, second)), add(mul(abs(second), rtol), atol))
    close = logical_or(equal(first, second), logical_and(near, isfinite(second)))
    return logical_or(close, logical_and(isnan(first), isnan(second))) if equal_nan else close


def where(condition: Any, input: Any, other: Any) -> Tensor:
    """Return elements of ``input`` where ``condition`` is true and of ``other`` elsewhere."""
    chosen = cast(need_tensor(condition, "where"), "bool")
    common, first, second = promotion.operands(input, other, "where")
    return emit("Where", chosen, as_operand(first, common), as_operand(second, common))


def select(condition: Any, input: Any, other: Any) -> Tensor:
    """Return ``where(condition, input, other)``."""
    return where(condition, input, other)


def masked_fill(input_x: Any, mask: Any, value: Any) -> Tensor:
    """Return the tensor with ``value`` where ``mask`` is true; its element type stays."""
    tensor = need_tensor(input_x, "masked_fill")
    dtype = tensor.type.dtype
    return emit("Where", cast(need_tensor(mask, "masked_fill"), "bool"), as_operand(value, dtype), tensor)


def bitwise_and(input: Any, other: Any) -> Tensor:
    """Return the bits set in both."""
    return _bits("BitwiseAnd", "And", input, other)


def bitwise_or(input: Any, other: Any) -> Tensor:
    """Return the bits set in any."""
    return _bits("BitwiseOr", "Or", input, other)


def bitwise_xor(input: Any, other: Any) -> Tensor:
    """Return the bits set in exactly one."""
    return _bits("BitwiseXor", "Xor", input, other)


def _bits(op_type: str, of_bool: str, first: Any, second: Any) -> Tensor:
    common, first, second = promotion.operands(first, second, op_type)
    return binary(of_bool if common == "bool" else op_type, first, second)


def bitwise_not(input: Any) -> Tensor:
    """Return the bits that are not set; of truth values the opposite."""
    tensor = need_tensor(input, "bitwise_not")
    return emit("Not" if tensor.type.dtype == "bool" else "BitwiseNot", tensor)


def bitwise_left_shift(input: Any, other: Any) -> Tensor:
    """Return ``input`` shifted left by ``other`` bits."""
    return binary("ShiftLeft", input, other, OWN)


def bitwise_right_shift(input: Any, other: Any) -> Tensor:
    """Return ``input`` shifted right by ``other`` bits."""
    return binary("ShiftRight", input, other, OWN)
