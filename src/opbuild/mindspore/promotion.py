"""Which element type an operator of two tensors, or of a tensor and a Python number, computes in: MindSpore's rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.frontend.cell import location
from opbuild.mindspore.arguments import ArgumentTypeError, TensorTypeError
from opbuild.mindspore.tensor import Tensor

_SIGNED = ("int8", "int16", "int32", "int64")
_FLOATS = ("bfloat16", "float16", "float32", "float64")
_WIDE_UNSIGNED = ("uint16", "uint32", "uint64")


def promote(first: str, second: str) -> str:
    """Return the type that two tensors are converted to.

    Raises:
        TensorTypeError: For uint16, uint32 and uint64 with any other type but bool, as in MindSpore.
    """
    if second in (first, "bool"):
        return first
    if first == "bool":
        return second
    if first in _WIDE_UNSIGNED or second in _WIDE_UNSIGNED:
        raise TensorTypeError(
            f"{first} and {second} have no common element type{location()}", "convert one of the tensors with .astype()"
        )
    if {first, second} == {"bfloat16", "float16"}:
        return "float32"  # neither holds the other's numbers
    for family in (_FLOATS, _SIGNED):
        ranks = [family.index(name) for name in (first, second) if name in family]
        if len(ranks) == 2:
            return family[max(ranks)]
        if ranks and family is _FLOATS:
            return family[ranks[0]]
    return "int16" if "int8" in (first, second) else first if first in _SIGNED else second


def with_number(dtype: str, number: bool | int | float) -> str:
    """Return the type that a tensor and a Python number are converted to."""
    if isinstance(number, bool):
        return dtype
    if isinstance(number, int):
        return "int64" if dtype == "bool" else dtype
    return dtype if dtype in _FLOATS else "float32"


def operands(first: Any, second: Any, name: str) -> tuple[str, Any, Any]:
    """Return the common type of two operands and both as tensors or numbers, at least one of them a tensor.

    Raises:
        ArgumentTypeError: If an operand is neither a tensor, a number nor an array.
    """
    first, second = _operand(first, name), _operand(second, name)
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return promote(first.type.dtype, second.type.dtype), first, second
    if isinstance(first, Tensor):
        return with_number(first.type.dtype, second), first, second
    if isinstance(second, Tensor):
        return with_number(second.type.dtype, first), first, second
    tensor = Tensor(first)
    return with_number(tensor.type.dtype, second), tensor, second


def _operand(value: Any, name: str) -> Any:
    if isinstance(value, (Tensor, bool, int, float)):
        return value
    if isinstance(value, (np.ndarray, np.generic, list, tuple)):
        return Tensor(value)
    raise ArgumentTypeError(f"{name} was given a {type(value).__name__}{location()}", "give tensors or numbers")
