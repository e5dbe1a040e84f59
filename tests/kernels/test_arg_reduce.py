"""ArgMax and ArgMin give numpy's positions, of the first or the last of equal elements.

A campaign runs every type with each operator and order, the suite half of the combinations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernels.lowered import random, run_node
from opbuild.graph.types import Node
from support.tiers import halved, spread

Array = npt.NDArray[Any]


def check(op_type: str, x: Array, axis: int, last: int = 0, keepdims: int = 1) -> None:
    """Check the positions against numpy's."""
    position = np.argmax if op_type == "ArgMax" else np.argmin
    if last:
        expected = x.shape[axis] - 1 - position(np.flip(x, axis), axis, keepdims=bool(keepdims))
    else:
        expected = position(x, axis, keepdims=bool(keepdims))
    attrs = {"axis": axis, "select_last_index": last, "keepdims": keepdims}
    node = Node(op_type, ("x",), ("y",), attrs, "position")
    np.testing.assert_array_equal(run_node(node, {"x": x}, "int64", expected.shape), expected)


@halved
@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("shape", [(3, 4, 1000), (2, 3, 5, 7), (70, 1000), (90, 3)])
def test_any_axis_of_long_and_short_rows(op_type: str, shape: Sequence[int]) -> None:
    """Along rows and across columns; short ones are in ``test_every_family``."""
    for axis in range(-1, len(shape) - 1):
        check(op_type, random(*shape), axis, keepdims=axis % 2)


DTYPES = ("float32", "float64", "int32", "int64", "uint8", "int8")


@pytest.mark.parametrize(("last", "dtype", "op_type"), spread((0, 1), DTYPES, ("ArgMax", "ArgMin")))
def test_ties_go_to_the_first_or_the_last(op_type: str, dtype: str, last: int) -> None:
    """Few distinct values make many ties; zeros of both signs are equal."""
    x = random(37, 50, dtype=dtype) // 2 * 2
    if dtype.startswith("float"):
        x[x == 0] *= -1
    for axis in (0, 1):
        check(op_type, np.ascontiguousarray(x), axis, last)
    check(op_type, np.ascontiguousarray(x[:, :6]), 1, last)


@halved
@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_nan_wins_and_infinities_count(op_type: str, last: int) -> None:
    """The first (last) NaN is the position, whatever the sign of other elements; rows of one infinity are ties."""
    x = random(30, 40)
    x[0, [3, 33]], x[1, 39], x[2], x[3], x[4, 5] = np.nan, np.inf, -np.inf, np.inf, -np.inf
    x[5, [0, 7]] = np.nan, np.inf
    for array in (x, np.ascontiguousarray(x.T)):
        for axis in (0, 1):
            check(op_type, array, axis, last)


def test_the_greatest_integers_are_compared_exactly() -> None:
    """64-bit integers that a double cannot tell apart, and the least of all."""
    x = np.array([[2**53, 2**53 + 1, 0], [-(2**63), -(2**63), -(2**63)], [2**63 - 2, 2**63 - 1, 5]], np.int64)
    for last in (0, 1):
        check("ArgMax", x, 1, last)
        check("ArgMin", x, 1, last)
