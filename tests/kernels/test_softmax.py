"""Softmax and its logarithm over any axis are the reference's, special values included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernels.lowered import program_of, random, run_node, variants
from opbuild.graph.types import Node
from support.tiers import halved

Array = npt.NDArray[Any]


def reference(x: Array, axis: int, log: bool) -> Array:
    """Return the softmax, or its logarithm, in float64."""
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        shifted = wide - wide.max(axis, keepdims=True)
        total = np.exp(shifted).sum(axis, keepdims=True)
        result = shifted - np.log(total) if log else np.exp(shifted) / total
    return np.asarray(result)


def check(x: Array, axis: int, log: bool) -> Array:
    """Check a softmax against the definition and return it."""
    node = Node("LogSoftmax" if log else "Softmax", ("x",), ("y",), {"axis": axis}, "softmax")
    actual = run_node(node, {"x": x}, "float32", x.shape)
    np.testing.assert_allclose(actual, reference(x, axis, log), rtol=1e-5, atol=3e-6 if log else 1e-7)
    return actual


@halved
@pytest.mark.parametrize("shape", [(3, 15), (4, 63), (3, 64), (2, 5000), (9, 2, 30)])
@pytest.mark.parametrize("log", [False, True])
def test_rows_of_any_length(shape: Sequence[int], log: bool) -> None:
    """Below a vector, at its multiples and beyond them; long rows go through the heap."""
    check(random(*shape) * 4, -1, log)


@halved
@pytest.mark.parametrize(
    ("shape", "axis"), [((2, 7, 5, 5), 1), ((3, 20, 1), 1), ((5, 33), 0), ((2, 4, 15), 1), ((4, 1, 16), 0)]
)
@pytest.mark.parametrize("log", [False, True])
def test_any_axis(shape: Sequence[int], axis: int, log: bool) -> None:
    """Axes that are not the last one are reduced for many columns at once, or one by one below a vector."""
    check(random(*shape) * 4, axis, log)


@halved
@pytest.mark.parametrize("shape", [(1, 2), (15, 3), (17, 7), (100, 31), (2, 40, 5), (3, 5, 1, 8)])
@pytest.mark.parametrize("log", [False, True])
def test_short_rows_side_by_side(shape: Sequence[int], log: bool) -> None:
    """Fewer rows than a vector has lanes, and more; a row of NaN or infinities spoils none beside it."""
    x = random(*shape) * 4
    check(x, -1, log)
    rows = x.reshape(-1, shape[-1])
    rows[0, 0], rows[len(rows) // 2, 1], rows[-1] = np.nan, np.inf, -np.inf
    check(x, -1, log)


@halved
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("log", [False, True])
def test_nan_and_infinities_stay_in_their_row(axis: int, log: bool) -> None:
    """NaN or +inf make a row NaN, -inf alone too; a single -inf is a probability of exactly 0."""
    x = random(7, 90)
    x[0, 80], x[1, 5], x[2, :], x[3, 7], x[4, 3:6] = np.nan, np.inf, -np.inf, -np.inf, (np.inf, -np.inf, np.nan)
    x[5, 0] = 3e38
    actual = check(x if axis else np.ascontiguousarray(x.T), axis, log)
    assert log or (actual if axis else actual.T)[3, 7] == 0


@halved
@pytest.mark.parametrize("shape", [(8, 1), (8, 15), (9, 90), (8, 5000)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("zeros", ["hidden", "nan"])
@pytest.mark.parametrize("mode", ["high_performance", "high_precision"])
def test_rows_are_0_instead_of_nan_if_that_is_asked(shape: tuple[int, int], axis: int, zeros: str, mode: str) -> None:
    """Hidden rows, of -inf alone; or all rows of NaN, also those with a NaN or +inf. The least number hides nothing."""
    x = random(*shape) * 4
    last, least = shape[1] - 1, np.finfo(np.float32).min
    x[0], x[1, last], x[2, last], x[3, :last] = -np.inf, np.nan, np.inf, -np.inf
    x[4], x[4, last], x[5], x[6] = -np.inf, np.nan, least, -np.inf
    x[6, last] = least
    wanted = reference(x, 1, log=False)
    wanted[np.isnan(wanted).any(1) if zeros == "nan" else (x == -np.inf).all(1)] = 0
    if axis == 0:
        x, wanted = np.ascontiguousarray(x.T), wanted.T
    node = Node("Softmax", ("x",), ("y",), {"axis": axis, "zeros": zeros}, "softmax")
    actual = run_node(node, {"x": x}, "float32", x.shape, impl_mode=mode)
    np.testing.assert_allclose(actual, wanted, rtol=2e-5, atol=1e-7)
    assert not (actual if axis else actual.T)[0].any()


def test_variants_follow_length_and_axis() -> None:
    """Long rows leave the stack, few columns are taken one by one."""

    def variant(shape: Sequence[int], axis: int) -> dict[str, Any]:
        node = Node("Softmax", ("x",), ("y",), {"axis": axis}, "softmax")
        x = np.zeros(shape, np.float32)
        return variants(program_of([node], {"x": x}, {"y": ("float32", shape)}))[0][1]

    assert variant((64, 1000), 1) == {"row": "stack"}
    assert variant((1, 5000), 1) == {"row": "heap"}
    assert variant((4, 30, 15), 1) == {"lanes": 1}
    assert variant((4, 300, 16), 1) == {"lanes": 16}
