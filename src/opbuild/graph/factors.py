"""Factors that are folded into constants: whether the products have all the digits of their operands.

A product beyond the greatest number of its type is infinite, and below the least normal one it has few digits or none,
where the values that it is multiplied by may be as large as to make an ordinary number of it. What folds factors asks
here, and leaves an operator as it is where the products would not do.
"""

from __future__ import annotations

import math

import numpy as np

from opbuild.dtypes import float_limits
from opbuild.graph.types import Array
from opbuild.platform.records import dataclass

_PIECE = 2**17
"""Numbers that are looked at while they are in the second cache."""

_LARGE = 2.0**12
"""What is added is large from there on, and what is left is little if it is less by as much."""

MODERATE = 2.0**16
"""Factors from its inverse up to it may change places with a product: no other one comes near the limits by them."""


@dataclass(frozen=True)
class Magnitudes:
    """The least and the greatest magnitude of numbers, zeros left out: infinity and 0 if there are no others."""

    least: float
    greatest: float


def magnitudes(numbers: Array) -> Magnitudes:
    """Return the magnitudes of float32 or float64 numbers; the greatest is infinite or NaN where one of them is."""
    kind = np.dtype(f"u{numbers.itemsize}")
    flat = numbers.reshape(-1) if any(numbers.strides) else numbers.reshape(-1)[:1]  # of one number throughout
    pieces = (flat[start : start + _PIECE].view(kind) << kind.type(1) for start in range(0, flat.size, _PIECE))
    # Magnitudes are in the order of their bits; 0 less 1 is the greatest of all, and few weights have a 0.
    ends = [(int(piece.min()) or int((piece - kind.type(1)).min()) + 1, int(piece.max())) for piece in pieces]
    least, greatest = min((low for low, _ in ends), default=0), max((high for _, high in ends), default=0)
    found = (np.array([least % 2 ** (8 * kind.itemsize), greatest], kind) >> kind.type(1)).view(numbers.dtype)
    return Magnitudes(float(found[0]) or math.inf, float(found[1]))


def keep_digits(dtype: str, numbers: Array, factors: Array, known: Magnitudes | None = None) -> bool:
    """Return whether all products of numbers and float64 factors are normal numbers of a type, or 0.

    Numbers are float32 or float64, ``known`` their magnitudes if they were read before; factors broadcast to them.
    """
    limits = float_limits(dtype)
    least, greatest = float(limits.tiny), float(limits.max)
    of, by = known or magnitudes(numbers), magnitudes(factors)
    if of.least * by.least >= least and of.greatest * by.greatest <= greatest:
        return True
    return bool(np.isfinite([of.greatest, by.greatest]).all()) and _are_within(numbers, factors, least, greatest)


def _are_within(numbers: Array, factors: Array, least: float, greatest: float) -> bool:
    """Return whether all products are in a range, but for those that a 0 makes."""
    by = np.broadcast_to(factors, numbers.shape)
    rows = zip(numbers, by, strict=True) if numbers.ndim > 1 else ((numbers, by),)
    for row, own in rows:
        with np.errstate(all="ignore"):
            products = np.abs(row * own)
            if not ((products <= greatest) & ((products >= least) | (row == 0) | (own == 0))).all():
                return False
    return True


def reach(least: float, numbers: Array, factors: Array | None) -> bool:
    """Return whether a product of numbers and factors is at least so large; the first rows mostly tell."""
    by = np.broadcast_to(np.ones(1) if factors is None else factors, numbers.shape)
    with np.errstate(all="ignore"):
        return any((np.abs(row * own) >= least).any() for row, own in zip(numbers, by, strict=True))


def is_moderate(factor: float) -> bool:
    """Return whether a factor may change places with a product."""
    return 1 / MODERATE <= abs(factor) <= MODERATE


def cancel(first: Array, second: Array) -> bool:
    """Return whether large addends leave little of each other, as where one rounds and the other takes it away again.

    Their sum is then not what the values between them have become, which keep no more digits than the larger one has.
    """
    with np.errstate(all="ignore"):
        larger = np.maximum(np.abs(first), np.abs(second))
        return bool(((larger > _LARGE) & (np.abs(first + second) * _LARGE < larger)).any())


def normalizes(scale: Array | None, epsilon: float) -> bool:
    """Return whether the inverse of any deviation keeps its digits where it is multiplied by a scale, as kernels do.

    It is at least 2**-64. A scale that is not known before is taken for one that does.
    """
    ends = (2.0**-64, max(epsilon, _LEAST_VARIANCE) ** -0.5)
    return scale is None or all(keep_digits("float32", scale, np.array(end)) for end in ends)


_LEAST_VARIANCE = 2.0**-126
"""What variances are taken for at least, where nothing is added to them."""
