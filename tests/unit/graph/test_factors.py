"""What is asked before a factor is folded: magnitudes at both ends, products that sink, addends that cancel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from opbuild.graph.factors import cancel, is_moderate, keep_digits, magnitudes, reach

Array = npt.NDArray[Any]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_magnitudes_are_the_ends_of_numbers_that_are_not_0(dtype: str) -> None:
    """By their bits, signs and denormals included; there are none of zeros alone."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        bits = rng.integers(0, 2**16, 40, dtype=np.uint64).astype(f"u{np.dtype(dtype).itemsize}")
        numbers = (bits << bits.dtype.type(8 * np.dtype(dtype).itemsize - 16)).view(dtype)
        numbers = np.where(np.isfinite(numbers), numbers, 0)
        found, wanted = magnitudes(numbers), np.abs(numbers[numbers != 0])
        assert (found.least, found.greatest) == (float(wanted.min()), float(wanted.max()))
    none = magnitudes(np.zeros(3, dtype))
    assert (none.least, none.greatest) == (math.inf, 0.0)
    assert not magnitudes(np.array([1, np.nan], dtype)).greatest < math.inf
    assert magnitudes(np.broadcast_to(np.array(-2, dtype), (5, 7))).least == 2.0


@pytest.mark.parametrize(
    ("numbers", "factors", "kept"),
    [
        ([1.0, -2.0], [3.0], True),
        ([0.0, 1e-25], [1e-10], True),
        ([1e-25, 1.0], [1e-20], False),
        ([1e25, 0.0], [1e20], False),
        ([1e-25, 1e25], [1e20, 1e-20], True),
        ([1e-25, 1e25], [0.0, 1e-20], True),
        ([math.inf, 1.0], [0.0], False),
        ([math.nan, 1.0], [1.0], False),
    ],
)
def test_products_keep_their_digits_where_all_are_normal_or_0(
    numbers: list[float], factors: list[float], kept: bool
) -> None:
    """Number by number where the ends of both alone would not say so."""
    assert keep_digits("float32", np.float32(numbers), np.array(factors)) == kept


def test_large_addends_cancel_where_little_is_left() -> None:
    """What rounds does; a bias and a mean that are near each other do not, unless they are large."""
    assert cancel(np.array([1.0, 12582912.0]), np.array([2.0, -12582912.0]))
    assert not cancel(np.array([0.3]), np.array([-0.3]))
    assert not cancel(np.array([5000.0]), np.array([-4900.0]))


def test_ordinary_weights_reach_what_few_of_them_have() -> None:
    """One row is enough, and factors count."""
    weights = np.float32([[1e-25, 1e-25], [0.5, 0.0]])
    assert reach(0.25, weights, None)
    assert not reach(0.25, weights, np.array([[1.0], [1e-3]]))
    assert is_moderate(-0.35)
    assert not is_moderate(1e-18)
