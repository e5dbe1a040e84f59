"""Printing of tensors: ``repr`` as MindSpore writes it, ``str`` as numpy does."""

from __future__ import annotations

import numpy as np

from opbuild.dtypes import is_float
from opbuild.graph.types import Array

_DIGITS = {"float16": 4, "float32": 8, "float64": 8, "bfloat16": 4}
_LINE = 208  # MindSpore breaks a row after this many characters
_ROW_THRESHOLD = 1000


def tensor_repr(array: Array, label: str) -> str:
    """Return ``Tensor(shape=[2], dtype=Float32, value= [ 1.0e+00, ...])`` for an array."""
    shape = "[" + ", ".join(map(str, array.shape)) + "]"
    head = f"Tensor(shape={shape}, dtype={label}, value="
    if array.ndim == 0:
        return f"{head} {_scalar(array)})"
    if array.size == 0:
        return f"{head} )" if array.ndim == 1 else f"{head}\n)"
    body = np.array2string(
        array.astype(np.float32) if array.dtype.name == "bfloat16" else array,  # it is no float to numpy
        separator=", ",
        max_line_width=_LINE if array.ndim == 1 else 10**6,
        threshold=_ROW_THRESHOLD,
        formatter=_formatter(array),  # type: ignore[arg-type]
    ).replace("\n\n", "\n")
    return f"{head} {body})" if array.ndim == 1 else f"{head}\n{body})"


def _scalar(array: Array) -> str:
    return f"{float(array):g}" if is_float(array.dtype.name) else str(array.item())


def _formatter(array: Array) -> dict[str, object] | None:
    digits = _DIGITS.get(array.dtype.name)
    if digits is None:
        return None
    width = digits + 7

    def element(value: float) -> str:
        text = f"{value:.{digits}e}" if np.isfinite(value) else str(float(value))
        return text.rjust(width)

    return {"float_kind": element}
