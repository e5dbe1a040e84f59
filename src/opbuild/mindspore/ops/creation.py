"""Tensors from nothing: they hold data at once, also while a cell is traced."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.ops.arithmetic import need_tensor
from opbuild.mindspore.ops.shaping import ints
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "arange", "eye", "fill", "full", "full_like", "linspace", "ones", "ones_like", "scalar_to_tensor", "tuple_to_array",
    "zeros", "zeros_like",
]  # fmt: skip


def _name(dtype: Any, default: str = "float32") -> str:
    return default if dtype is None else to_type(dtype).name


def zeros(size: Any, dtype: Any = None) -> Tensor:
    """Return zeros of a shape; float32 by default."""
    return Tensor.of(np.zeros(ints(size, "the shape of zeros"), _name(dtype)))


def ones(shape: Any, dtype: Any = None) -> Tensor:
    """Return ones of a shape; float32 by default."""
    return Tensor.of(np.ones(ints(shape, "the shape of ones"), _name(dtype)))


def full(size: Any, fill_value: Any, *, dtype: Any = None) -> Tensor:
    """Return one number in every element; integers give int64, floats float32 by default."""
    value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    return Tensor.of(np.full(ints(size, "the shape of full"), value, _name(dtype, to_type(type(value)).name)))


def fill(type: Any, shape: Any, value: Any) -> Tensor:
    """Return one number in every element of a tensor of an element type and shape."""
    return full(shape, value, dtype=type)


def zeros_like(input: Any, *, dtype: Any = None) -> Tensor:
    """Return zeros of the shape (and type) of a tensor."""
    tensor = need_tensor(input, "zeros_like")
    return zeros(tensor.shape, dtype or tensor.dtype)


def ones_like(input: Any, *, dtype: Any = None) -> Tensor:
    """Return ones of the shape (and type) of a tensor."""
    tensor = need_tensor(input, "ones_like")
    return ones(tensor.shape, dtype or tensor.dtype)


def full_like(input: Any, fill_value: Any, *, dtype: Any = None) -> Tensor:
    """Return one number in every element, in the shape (and type) of a tensor."""
    tensor = need_tensor(input, "full_like")
    return full(tensor.shape, fill_value, dtype=dtype or tensor.dtype)


def arange(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: Any = None) -> Tensor:
    """Return numbers from ``start`` to below ``end``; int64, or float32 if any is a float."""
    start, end = (0, start) if end is None else (start, end)
    floats = any(isinstance(item, float) for item in (start, end, step))
    return Tensor.of(np.arange(start, end, step).astype(_name(dtype, "float32" if floats else "int64")))


def linspace(start: Any, end: Any, steps: int) -> Tensor:
    """Return ``steps`` numbers (float32) from ``start`` to ``end``, both included."""
    first, last = (item.item() if isinstance(item, Tensor) else item for item in (start, end))
    return Tensor.of(np.linspace(first, last, steps).astype(np.float32))


def eye(n: int, m: int | None = None, dtype: Any = None) -> Tensor:
    """Return ones on the diagonal of an ``n`` by ``m`` matrix and zeros elsewhere."""
    return Tensor.of(np.eye(n, m, dtype=_name(dtype)))


def scalar_to_tensor(input_x: Any, dtype: Any = None) -> Tensor:
    """Return a tensor without dimensions."""
    return Tensor(input_x, dtype or np.float32)


def tuple_to_array(input_x: Any) -> Tensor:
    """Return a tensor of the numbers in a tuple."""
    return Tensor(np.array(input_x, np.float32 if any(isinstance(item, float) for item in input_x) else np.int32))
