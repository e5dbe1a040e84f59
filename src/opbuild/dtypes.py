"""Element types by name, as numpy arrays hold them: its own types, and those that ``ml_dtypes`` adds.

``ml_dtypes`` is imported where such a type becomes an array, and nowhere else: networks without one start without it.
So is numpy, since whoever compiles kernels asks for names alone, and would take as long again to start with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

ADDED = {
    "bfloat16": 2, "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e5m2": 1, "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1, "float4_e2m1fn": 1, "int4": 1, "uint4": 1, "int2": 1, "uint2": 1,
}  # fmt: skip
"""Bytes of an element of the types that ``ml_dtypes`` adds; one of fewer than 8 bits lies in the low bits of a byte."""

_STORED_BITS = {"float4_e2m1fn": 4, "int4": 4, "uint4": 4, "int2": 2, "uint2": 2}

CODED = tuple(name for name in ADDED if name != "bfloat16")
"""Types without arithmetic: a byte is the code of a number, and is converted to what machines compute with."""

FLOATS = ("bfloat16", "float16", "float32", "float64")
"""Floating types with arithmetic."""

NARROW_FLOATS = ("bfloat16", "float16")
"""Floating types of 16 bits: computed in float32, and rounded once."""

UNSATURATED = "unsaturated"
"""Option of a conversion to a float of 8 bits: what is out of its range becomes infinity or NaN, not its limit."""

ROUND_MODES = ("up", "down", "nearest")
"""Options of a conversion to powers of two, ``float8_e8m0fnu``; the first one holds if none is given."""


def numpy_dtype(name: Any) -> np.dtype[Any]:
    """Return numpy's type of a name, which is its ``name``, or of anything else that numpy takes for a type."""
    if isinstance(name, str) and name in ADDED:
        import ml_dtypes  # noqa: F401 - numpy knows these names once it is imported
    import numpy as np

    dtype: np.dtype[Any] = np.dtype(name)
    return dtype


def itemsize(name: str) -> int:
    """Return the bytes of an element in memory."""
    return ADDED.get(name) or numpy_dtype(name).itemsize


def stored_bits(name: str) -> int:
    """Return the bits of an element in ONNX's files, which pack those that are less than a byte."""
    return _STORED_BITS.get(name) or 8 * itemsize(name)


def greatest(name: str) -> float:
    """Return the greatest finite number of a floating type with arithmetic."""
    return float.fromhex("0x1.fep127") if name == "bfloat16" else float(float_limits(name).max)


def float_limits(name: str) -> Any:
    """Return the limits of a floating type with arithmetic, as numpy's ``finfo`` does."""
    if name not in ADDED:
        import numpy as np

        return np.finfo(name)
    import ml_dtypes

    limits: Any = ml_dtypes.finfo
    return limits(name)


def is_float(name: str) -> bool:
    """Return whether a type has the arithmetic of floating numbers."""
    return name in FLOATS
