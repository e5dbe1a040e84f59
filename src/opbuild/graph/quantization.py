"""Quantisation of linear scales, as elementwise expressions."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.dtypes import UNSATURATED
from opbuild.operations.expression import Expression, arg, const

FLOAT = "float32"
"""The type in which everything is computed; narrower floats are widened first, as ONNX Runtime does."""


ROUNDER = 1.5 * 2.0**23
"""Adding it to a small float32 rounds that to the nearest whole number, of two to the even one."""


def limits(dtype: str) -> tuple[int, int]:
    """Return the least and the greatest number of an integer type, such as ``int8`` or ``uint4``."""
    bits = int(dtype.rpartition("int")[2])
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def wide(x: Expression, dtype: str) -> Expression:
    """Return a number of any type as float32; a float64, of which gradients are checked, as it is."""
    return x if dtype in (FLOAT, "float64") else ("cast", FLOAT, x)


def saturated(x: Expression, dtype: str) -> Expression:
    """Return a float32 that is a whole number, or NaN, as the nearest number of an integer type."""
    low, high = (const(value) for value in limits(dtype))
    return ("cast", dtype, ("saturate", x, low, high))


def quantized(x: Expression, zero_point: Expression | None, dtype: str) -> Expression:
    """Return a float32 that was divided by the scale as a quantised number, an integer of at most 16 bits.

    The zero point is of the same type, None for 0.
    """
    rounded: Expression = ("round", x)
    return saturated(rounded if zero_point is None else ("add", rounded, ("cast", FLOAT, zero_point)), dtype)


def limited_and_rounded(x: Expression, low: Expression, high: Expression) -> Expression:
    """Return the float32 that is the nearest whole number between two, of NaN ``low``; they are those of 16 bits.

    Rounding what is so small is a sum and a difference, which have an instruction for any number of lanes.
    """
    rounder = const(ROUNDER)
    return ("sub", ("add", ("saturate", x, low, high), rounder), rounder)


def dequantized(x: Expression, zero_point: Expression | None, scale: Expression, dtype: str) -> Expression:
    """Return a quantised number, an integer or a float of at most 8 bits, as float32.

    The zero point is of the same type, None for 0; the scale is a float32.
    """
    if zero_point is not None and "float" in dtype:
        x, dtype = ("sub", wide(x, dtype), wide(zero_point, dtype)), FLOAT
    elif zero_point is not None:
        wanted = ("cast", "int32", x), ("cast", "int32", zero_point)
        x, dtype = ("sub", *((x, zero_point) if dtype == "int32" else wanted)), "int32"
    return ("mul", wide(x, dtype), scale)


def quantize_linear(dtypes: Sequence[str], dtype: str, *, saturate: bool = True) -> Expression:
    """Return the expression of a QuantizeLinear.

    Args:
        dtypes: Those of the values, of the scale and of the zero point, if there is one.
        dtype: That of the result: an integer of at most 16 bits, or a float of at most 8.
        saturate: Whether what is beyond floats of 8 bits becomes the greatest of them.
    """
    steps: Expression = ("div", wide(arg(0), dtypes[0]), wide(arg(1), dtypes[1]))
    has_zero_point = len(dtypes) > 2
    if "int" in dtype:
        return quantized(steps, arg(2) if has_zero_point else None, dtype)
    steps = ("add", steps, ("cast", FLOAT, arg(2))) if has_zero_point else steps
    return (
        ("cast_as", dtype, UNSATURATED, steps)
        if dtype.startswith("float8") and not saturate
        else ("cast", dtype, steps)
    )


def dequantize_linear(dtypes: Sequence[str], dtype: str) -> Expression:
    """Return the expression of a DequantizeLinear.

    Args:
        dtypes: Those of the values, of the scale and of the zero point, if there is one.
        dtype: That of the result, a float.
    """
    value = dequantized(arg(0), arg(2) if len(dtypes) > 2 else None, wide(arg(1), dtypes[1]), dtypes[0])
    return value if dtype == FLOAT else ("cast", dtype, value)
