"""Conversions between element types on numpy arrays, as ONNX's Cast defines them and kernels compute them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from opbuild.dtypes import ADDED, ROUND_MODES, UNSATURATED, numpy_dtype, stored_bits
from opbuild.operations.arrays import Array


def cast(value: Array, dtype: str, options: Iterable[str] = ()) -> Array:
    """Convert as ONNX's Cast does: floats to integers towards zero, NaN and anything but 0 to true.

    Floats outside an integer type's range, and NaN, are open in ONNX; here they become what kernels make of them on
    every machine, see docs/concepts/operators.md.

    Args:
        value: Numbers of any element type.
        dtype: The wanted type.
        options: ``UNSATURATED``, and one of ``ROUND_MODES``.
    """
    with np.errstate(all="ignore"):
        value = widened(value)
        if dtype == "bool":
            return np.asarray(value != 0)
        if dtype in ADDED:
            return _to_added(value, dtype, frozenset(options))
        target = np.dtype(dtype)
        if np.issubdtype(value.dtype, np.floating) and np.issubdtype(target, np.integer):
            return _to_integer(value, target)
        if target == np.float16 and value.dtype != np.float16:
            value = value.astype(np.float32)
        return value.astype(target)


def widened(value: Array) -> Array:
    """Return numbers of a type that ``ml_dtypes`` adds as float32, int8 or uint8, which have them all."""
    name = value.dtype.name
    if name not in ADDED:
        return value
    return value.astype("float32" if "float" in name else "uint8" if name[0] == "u" else "int8")


def _to_added(value: Array, dtype: str, options: frozenset[str]) -> Array:
    target = numpy_dtype(dtype)
    if "float" not in dtype:
        whole = _to_integer(value, np.dtype(np.int32)) if np.issubdtype(value.dtype, np.floating) else value
        return (whole.astype(np.uint8) & np.uint8(2 ** stored_bits(dtype) - 1)).view(target)
    value = value.astype(np.float32)
    if dtype == "float8_e8m0fnu":
        return _powers_of_two(value, options).view(target)
    if dtype.startswith("float8") and UNSATURATED not in options:
        from ml_dtypes import finfo

        greatest = np.float32(finfo(target).max)  # type: ignore[no-untyped-call]
        value = np.clip(value, -greatest, greatest)
    if dtype == "float4_e2m1fn":
        value = np.where(np.isnan(value), np.float32(-0.0), value)  # whatever the sign of NaN
    return value.astype(target)


def _powers_of_two(value: Array, options: frozenset[str]) -> Array:
    """Return the codes of powers of two: the exponent and 127, 255 for NaN; a negative number counts by its magnitude.

    What is less than the least power is that one, and what is more than the greatest one, infinity too, is that one;
    unsaturated both are NaN.
    """
    mantissa, exponent = np.frexp(np.abs(value))  # the mantissa is at least 0.5: the number is 2 * mantissa * 2**(e-1)
    mode = next((mode for mode in ROUND_MODES if mode in options), ROUND_MODES[0])
    higher = mantissa > 0.5 if mode == "up" else mantissa >= 0.75 if mode == "nearest" else np.zeros(value.shape, bool)
    code = exponent - 1 + 127 + higher
    least, greatest = np.abs(value) < 2.0**-127, ~np.isnan(value) & (np.isinf(value) | (code > 254))
    outside = (255, 255) if UNSATURATED in options else (0, 254)
    code = np.select([np.isnan(value), least, greatest], [255, *outside], code)
    return np.asarray(code.astype(np.uint8))


def _to_integer(value: Array, target: np.dtype[Any]) -> Array:
    bits = max(8 * target.itemsize, 32)
    kind, half = np.dtype(f"int{bits}"), 2.0 ** (bits - 1)
    value = value.astype(np.float32) if value.dtype == np.float16 else value
    upper = (value >= half) if target in (np.uint32, np.uint64) else np.zeros(value.shape, bool)
    value = np.where(upper, value - value.dtype.type(half), value)
    inside = np.abs(value) < half
    signed = np.where(inside, np.where(inside, value, 0).astype(kind), np.iinfo(kind).min)
    return np.asarray(signed ^ np.where(upper, np.iinfo(kind).min, 0)).astype(target)
