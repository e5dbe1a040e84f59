"""Operations on numbers when a size is filled in, besides sums and products of integers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np


def to_bits(value: Any) -> int:
    """Return the bits of a floating-point number as one of 64 bits: it keeps its value as an integer."""
    return int(np.float64(value).view(np.int64))


def from_bits(bits: int) -> np.float64:
    """Return the number of which ``to_bits`` returned the bits."""
    found: np.float64 = np.int64(bits).view(np.float64)
    return found


def scaled(extent: int, scale: Any) -> int:
    """Return an extent times a scale, both of float32, rounded down, as ONNX Runtime does: 5 times 2.6 is 13."""
    return int(np.floor(np.float32(extent) * np.float32(scale)))


def quotient(left: int, right: int) -> int:
    """Return a quotient of integers, rounded towards zero."""
    found = abs(left) // abs(right)
    return found if (left < 0) == (right < 0) else -found


OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "quotient": quotient,
    "min": min,
    "max": max,
    "index": lambda one, other: 0,
    "positive": lambda one, _: int(one > 0),
    "<": lambda one, other: int(one < other),
    "==": lambda one, other: int(one == other),
    "float32": lambda one, _: np.float32(one),
    "float64": lambda one, _: np.float64(one),
    "float32 of bits": lambda one, _: np.float32(from_bits(one)),
    "float64 of bits": lambda one, _: from_bits(one),
    "bits": lambda one, _: to_bits(one),
    "minimum": np.minimum,
    "maximum": np.maximum,
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": np.true_divide,
    "negate": lambda one, _: -one,
    "absolute": lambda one, _: abs(one),
    "square root": lambda one, _: np.sqrt(one),
    "floor": lambda one, _: np.floor(one),
    "ceil": lambda one, _: np.ceil(one),
    "round": lambda one, _: np.rint(one),
    "truncate": lambda one, _: int(one),
    "scaled": scaled,
}
"""By name. What is of floating-point numbers is what IEEE 754 defines to the last bit, so that a size gives what
folding gives. An operation of one operand gets 0 as the other one."""
