"""Comparison, logic, selection and bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.mindspore import promotion
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.ops.arithmetic import OWN, abs, add, as_operand, mul, pairwise, sub
from opbuild.mindspore.ops.declaration import formula, need_tensor, of_tensor, spelled
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "eq",
    "equal", "ge", "greater", "greater_equal", "gt", "isclose", "isfinite", "isinf", "isnan", "le", "less",
    "less_equal", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "masked_fill", "ne", "not_equal",
    "select", "where",
]  # fmt: skip

logical_not = formula("logical_not", "whether an element is false",
                      of_tensor(lambda input: emit("Not", cast(input, "bool"))))  # fmt: skip
bitwise_not = formula(
    "bitwise_not", "the bits that are not set; of truth values the opposite",
    of_tensor(lambda input: emit("Not" if input.type.dtype == "bool" else "BitwiseNot", input)),
)  # fmt: skip


equal = eq = pairwise("equal", "Equal", "whether elements are equal")
not_equal = ne = pairwise("not_equal", "NotEqual", "whether elements differ", OWN)
less = lt = pairwise("less", "Less", "``input < other``", bool_as="uint8")
less_equal = le = pairwise("less_equal", "LessOrEqual", "``input <= other``", bool_as="uint8")
greater = gt = pairwise("greater", "Greater", "``input > other``", bool_as="uint8")
greater_equal = ge = pairwise("greater_equal", "GreaterOrEqual", "``input >= other``", bool_as="uint8")
logical_and = pairwise("logical_and", "And", "whether both elements are true", dtype="bool")
logical_or = pairwise("logical_or", "Or", "whether any of two elements is true", dtype="bool")
logical_xor = pairwise("logical_xor", "Xor", "whether exactly one of two elements is true", dtype="bool")
bitwise_and = pairwise("bitwise_and", "BitwiseAnd", "the bits set in both", of_bool="And")
bitwise_or = pairwise("bitwise_or", "BitwiseOr", "the bits set in any", of_bool="Or")
bitwise_xor = pairwise("bitwise_xor", "BitwiseXor", "the bits set in exactly one", of_bool="Xor")
bitwise_left_shift = pairwise("bitwise_left_shift", "ShiftLeft", "``input`` shifted left by ``other`` bits", OWN)
bitwise_right_shift = pairwise("bitwise_right_shift", "ShiftRight", "``input`` shifted right by ``other`` bits", OWN)


def _of_float(op_type: str, what: str, of_integers: bool, domain: str = "") -> Callable[[Any], Tensor]:
    def function(input: Any) -> Tensor:
        tensor = need_tensor(input, op_type)
        if tensor.is_floating_point():
            return emit(op_type, tensor, domain=domain)
        return Tensor.of(np.full(tensor.shape, of_integers))

    return formula(op_type.lower(), f"whether an element is {what}", function)


isnan = _of_float("IsNaN", "NaN", False)
isinf = _of_float("IsInf", "an infinity", False)
isfinite = _of_float("IsFinite", "neither an infinity nor NaN", True, OWN)


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


select = spelled(where, "select")


def masked_fill(input_x: Any, mask: Any, value: Any) -> Tensor:
    """Return the tensor with ``value`` where ``mask`` is true; its element type stays."""
    tensor = need_tensor(input_x, "masked_fill")
    dtype = tensor.type.dtype
    return emit("Where", cast(need_tensor(mask, "masked_fill"), "bool"), as_operand(value, dtype), tensor)
