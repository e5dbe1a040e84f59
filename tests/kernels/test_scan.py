"""CumSum and CumProd give the sums and products of their definition, along any axis and in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernels.hostile import Case
from kernels.lowered import program_of, random, run_node
from opbuild.graph.types import Node
from opbuild.program import HostCall
from support.tiers import halved, spread

Array = npt.NDArray[Any]

HOSTILE = {
    "scan": Case("CumSum", lambda n: (5, n), lambda _: [np.array(1)]),
    "scan columns": Case("CumSum", lambda n: (3, 4, n), lambda _: [np.array(1)], {"exclusive": 1, "reverse": 1}),
}
"""For ``test_every_family``."""


def running(op_type: str, x: Array, axis: int, exclusive: int = 0, reverse: int = 0) -> Array:
    """Return the running sums or products one after the other, in the type of ``x``."""
    x = np.flip(x, axis) if reverse else x
    if exclusive:
        neutral = np.full_like(x.take([0], axis), op_type == "CumProd")
        x = np.concatenate([neutral, x.take(range(x.shape[axis] - 1), axis)], axis)
    accumulate = np.multiply.accumulate if op_type == "CumProd" else np.add.accumulate
    with np.errstate(all="ignore"):
        found = accumulate(x, axis, dtype=x.dtype)
    return np.flip(found, axis) if reverse else found


def check(op_type: str, x: Array, axis: int, exclusive: int = 0, reverse: int = 0) -> None:
    """Check a kernel's results bit for bit: the order of the operations is defined."""
    node = Node(op_type, ("x", "axis"), ("y",), {"exclusive": exclusive, "reverse": reverse}, "scan")
    found = run_node(node, {"x": x}, str(x.dtype), x.shape, {"axis": np.array(axis)})
    expected = running(op_type, x, axis, exclusive, reverse)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))
    np.testing.assert_array_equal(found, expected)


@halved
@pytest.mark.parametrize("op_type", ["CumSum", "CumProd"])
@pytest.mark.parametrize("shape", [(1,), (7,), (2, 3, 5, 17), (70, 1000)])
def test_any_axis(op_type: str, shape: Sequence[int]) -> None:
    """Along rows and across columns, in one task and in several; all short ones are in ``test_every_family``."""
    for axis in range(-1, len(shape) - 1):
        check(op_type, random(*shape), axis)


DTYPES = ("float32", "float64", "int32", "int64", "uint32", "uint64")


@pytest.mark.parametrize(
    ("dtype", "op_type", "way"),
    spread(DTYPES, ("CumSum", "CumProd"), ((0, 0), (1, 0), (0, 1), (1, 1))),
)
def test_every_type_in_both_directions_with_and_without_its_own_element(
    dtype: str, op_type: str, way: tuple[int, int]
) -> None:
    """Integers wrap; an exclusive result begins with 0 or 1."""
    x = random(21, 19, dtype=dtype)
    for axis in (0, 1):
        check(op_type, x, axis, *way)


@pytest.mark.parametrize("op_type", ["CumSum", "CumProd"])
def test_what_is_not_finite_spoils_what_follows_it_and_nothing_else(op_type: str) -> None:
    """NaN and infinities reach the elements behind them; columns and rows beside them keep their values."""
    x = random(24, 40)
    x[3, 5], x[7, 9], x[9, 9], x[11], x[12] = np.nan, np.inf, -np.inf, np.inf, -0.0
    for array in (x, np.ascontiguousarray(x.T)):
        for axis in (0, 1):
            check(op_type, array, axis)
            check(op_type, array, axis, 1, 1)


def test_high_precision_rounds_once() -> None:
    """A long sum of float32 is as near as float32 can be."""
    x = random(3, 5000) + 1000
    node = Node("CumSum", ("x", "axis"), ("y",), {}, "scan")
    found = run_node(node, {"x": x}, "float32", x.shape, {"axis": np.array(1)}, impl_mode="high_precision")
    np.testing.assert_array_equal(found, np.cumsum(x.astype(np.float64), 1).astype(np.float32))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 4)])
def test_nothing_is_computed_of_nothing(shape: Sequence[int]) -> None:
    """An empty value needs no call, along its empty axis or another."""
    node = Node("CumSum", ("x", "axis"), ("y",), {}, "scan")
    for axis in range(len(shape)):
        program = program_of([node], {"x": random(*shape)}, {"y": ("float32", shape)}, {"axis": np.array(axis)})
        assert not program.calls


def test_an_axis_known_only_at_run_time_is_the_hosts() -> None:
    """So is a scalar: kernels have the axis' place in their operands."""
    node = Node("CumSum", ("x", "axis"), ("y",), {}, "scan")
    program = program_of([node], {"x": random(3, 4), "axis": np.array(1)}, {"y": ("float32", (3, 4))})
    assert [type(call) for call in program.calls] == [HostCall]
