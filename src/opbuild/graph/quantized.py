"""Quantisation as expressions: QuantizeLinear and DequantizeLinear of one element.

A quantised number ``q`` stands for ``(q - zero_point) * scale``. ONNX leaves open what NaN becomes: here, as in ONNX
Runtime, the least number of the type.
"""

from __future__ import annotations

from opbuild.operations.expression import Expression, const

FLOAT = "float32"
"""The type in which everything is computed; narrower floats are widened first, as ONNX Runtime does."""


ROUNDER = 1.5 * 2.0**23
"""Adding it to a small float32 rounds that to the nearest whole number, of two to the even one."""


def limits(dtype: str) -> tuple[int, int]:
    """Return the least and the greatest number of an integer type, such as ``int8`` or ``uint4``."""
    bits = int(dtype.rpartition("int")[2])
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def wide(x: Expression, dtype: str) -> Expression:
    """Return a number of any type as float32."""
    return x if dtype == FLOAT else ("cast", FLOAT, x)


def saturated(x: Expression, dtype: str) -> Expression:
    """Return a float32 that is a whole number, or NaN, as the nearest number of an integer type."""
    low, high = (const(value) for value in limits(dtype))
    return ("cast", dtype, ("saturate", x, low, high))


def quantized(x: Expression, zero_point: Expression | None, dtype: str) -> Expression:
    """Return a float32, counted in steps of the scale, as a quantised number.

    Args:
        x: The number divided by the scale.
        zero_point: The zero point, of type ``dtype``; None for 0.
        dtype: An integer type of at most 16 bits.
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
    """Return a quantised number as float32.

    Args:
        x: The number, of the type ``dtype``: an integer, or a float of at most 8 bits.
        zero_point: The zero point, of the same type; None for 0.
        scale: The scale, a float32.
        dtype: The type.
    """
    if zero_point is not None and "float" in dtype:
        x, dtype = ("sub", wide(x, dtype), wide(zero_point, dtype)), FLOAT
    elif zero_point is not None:
        wanted = ("cast", "int32", x), ("cast", "int32", zero_point)
        x, dtype = ("sub", *((x, zero_point) if dtype == "int32" else wanted)), "int32"
    return ("mul", wide(x, dtype), scale)
