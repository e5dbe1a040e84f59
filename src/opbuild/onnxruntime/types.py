"""Element types by ONNX Runtime's names, such as ``tensor(float)``."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.frontend.wire import DeclaredType
from opbuild.graph.shape_rules import ONNX_DTYPES, ONNX_NUMBERS

STRING = 8
_OTHER_NAMES = {"float32": "float", "float64": "double", "float8_e4m3fn": "float8e4m3fn", "object": "string",
                "float8_e4m3fnuz": "float8e4m3fnuz", "float8_e5m2": "float8e5m2",
                "float8_e5m2fnuz": "float8e5m2fnuz", "float4_e2m1fn": "float4e2m1"}  # fmt: skip
_DTYPES = ONNX_DTYPES | {STRING: "object"}
_NUMBERS = ONNX_NUMBERS | {"object": STRING}


def element_name(dtype: str) -> str:
    """Return ONNX Runtime's name of an element type that numpy names."""
    return _OTHER_NAMES.get(dtype, dtype)


def tensor_name(dtype: np.dtype[Any]) -> str:
    """Return ONNX Runtime's name of an array's type."""
    return f"tensor({element_name('object' if dtype.kind in 'OSUV' and not _is_added(dtype) else dtype.name)})"


def type_name(declared: DeclaredType) -> str:
    """Return ONNX Runtime's name of a declared type."""
    if declared.kind in ("tensor", "sparse_tensor"):
        return f"{declared.kind}({element_name(_DTYPES.get(declared.elem, 'undefined'))})"
    inside = type_name(declared.inner) if declared.inner else ""
    if declared.kind == "map":
        return f"map({element_name(_DTYPES.get(declared.elem, 'undefined'))},{inside})"
    return f"{declared.kind}({inside})"


def array_dtype(element_type: Any) -> np.dtype[Any]:
    """Return numpy's type for a program's word for an element type: ONNX's number, or numpy's type or name.

    Raises:
        ValueError: If opbuild has no such type.
    """
    if not isinstance(element_type, int):
        dtype: np.dtype[Any] = np.dtype(element_type)
        return dtype
    if element_type not in _DTYPES:
        raise ValueError(f"ONNX's element type {element_type} is not supported")
    return numpy_dtype(_DTYPES[element_type])


def type_number(dtype: np.dtype[Any]) -> int:
    """Return ONNX's number of an array's element type; 0 if it has none."""
    return _NUMBERS.get(dtype.name, STRING if dtype.kind in "OSU" else 0)


def _is_added(dtype: np.dtype[Any]) -> bool:
    return dtype.name in _NUMBERS
