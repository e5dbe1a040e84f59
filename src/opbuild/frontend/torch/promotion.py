"""The element type in which operands meet: dimensions beat scalars, and categories beat widths, as torch has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.frontend.torch.writing import Value

_CATEGORIES = {bool: 0, int: 1, float: 2}
_DEFAULTS = ("bool", "int64", "float32")


def promoted(operands: Sequence[Value | bool | int | float | Any]) -> str:
    """Return the element type of an operation on tensors and Python's numbers.

    Tensors with dimensions decide; those without, and then Python's numbers, only if they are of a higher category: a
    truth value, an integer, a floating number.
    """
    with_dims = [each.dtype for each in operands if isinstance(each, Value) and each.shape]
    without = [each.dtype for each in operands if isinstance(each, Value) and not each.shape]
    numbers = [_DEFAULTS[_category_of_number(each)] for each in operands if not isinstance(each, Value)]
    found = ""
    for group in (with_dims, without, numbers):
        kind = _joined(group)
        if kind and (not found or category(kind) > category(found)):
            found = kind
    return found


def category(dtype: str) -> int:
    """Return 0 for truth values, 1 for integers, 2 for floating numbers."""
    if dtype == "bool":
        return 0
    return 1 if dtype.lstrip("u").startswith("int") else 2


def _category_of_number(value: Any) -> int:
    return _CATEGORIES.get(type(value), 1)  # open extents are integers


def _joined(dtypes: Sequence[str]) -> str:
    """Return the type that holds several; a type of 16 bits beside the other one gives float32."""
    found = ""
    for dtype in dtypes:
        if not found or found == dtype:
            found = dtype
        elif category(found) != category(dtype):
            found = max(found, dtype, key=category)
        elif {found, dtype} == {"float16", "bfloat16"}:
            found = "float32"
        elif category(found) == 2:
            found = max(found, dtype, key=lambda each: 16 if each == "bfloat16" else np.dtype(each).itemsize * 8)
        else:
            found = str(np.promote_types(found, dtype))
    return found
