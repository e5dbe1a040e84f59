"""Reductions over any axes are numpy's, special values and integers included.

A campaign runs every reduction of every type along all axes, the suite a part of the combinations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernels import one_operator
from kernels.combinations import crossed
from kernels.lowered import program_of, random, run_node
from kernels.one_operator import model_of, outputs_of
from opbuild.graph.types import Node
from opbuild.program import HostCall
from support.tiers import halved

Array = npt.NDArray[Any]


def _log_sum_exp(x: Array, axes: tuple[int, ...]) -> Any:
    return np.log(np.exp(x).sum(axes, keepdims=True))


REFERENCES: dict[str, Callable[[Array, tuple[int, ...]], Any]] = {
    "ReduceSum": lambda x, axes: x.sum(axes, keepdims=True),
    "ReduceMean": lambda x, axes: x.mean(axes, keepdims=True),
    "ReduceMax": lambda x, axes: x.max(axes, keepdims=True),
    "ReduceMin": lambda x, axes: x.min(axes, keepdims=True),
    "ReduceProd": lambda x, axes: x.prod(axes, keepdims=True),
    "ReduceL1": lambda x, axes: abs(x).sum(axes, keepdims=True),
    "ReduceL2": lambda x, axes: np.sqrt((x * x).sum(axes, keepdims=True)),
    "ReduceLogSum": lambda x, axes: np.log(x.sum(axes, keepdims=True)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceSumSquare": lambda x, axes: (x * x).sum(axes, keepdims=True),
}


def check(op_type: str, x: Array, axes: Sequence[int], keepdims: int = 1) -> None:
    """Check a reduction against numpy, floats in float64."""
    wide = x.astype(np.float64) if x.dtype.kind == "f" else x
    with np.errstate(all="ignore"):
        expected = np.asarray(REFERENCES[op_type](wide, tuple(axes)), x.dtype)
    expected = expected if keepdims else expected.squeeze(tuple(axes))
    node = Node(op_type, ("x", "axes"), ("y",), {"keepdims": keepdims}, "reduce")
    actual = run_node(node, {"x": x}, str(x.dtype), expected.shape, {"axes": np.array(axes, np.int64)})
    if x.dtype.kind == "f":
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)
    else:
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("dtype", "axes", "op_type"), crossed(2, ("float32", "float64"), ((3,), (1, 2)), sorted(REFERENCES))
)
def test_every_reduction_along_rows_and_across_columns(op_type: str, axes: tuple[int, ...], dtype: str) -> None:
    """Both layouts of every reduction, with rows and columns that are no multiple of a vector."""
    check(op_type, abs(random(2, 3, 5, 77, dtype=dtype)) + 0.1, axes)


@pytest.mark.parametrize(("dtype", "op_type"), crossed(2, ("float32", "float64"), sorted(REFERENCES)))
def test_short_rows_side_by_side(op_type: str, dtype: str) -> None:
    """Fewer rows than a vector has lanes, and more, of one axis and of two; NaN stays in its row."""
    for shape, axes in (((3, 2), (1,)), ((70, 31), (1,)), ((5, 40, 7), (0, 2)), ((2, 3, 50, 1, 3), (1, 4))):
        x = abs(random(*shape, dtype=dtype)) + 0.1
        check(op_type, x, axes)
        x[(-1,) * len(shape)] = np.nan
        check(op_type, x, axes)


AXES = [axes for count in range(1, 5) for axes in combinations(range(4), count)]


@pytest.mark.parametrize(("shape", "axes"), crossed(2, ((2, 3, 4, 5), (3, 1, 2, 20), (2, 2, 3, 130)), AXES))
def test_any_axes(axes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Reduced and kept axes in every order, neighbours merged, axes of one element anywhere."""
    check("ReduceSum", random(*shape), axes, keepdims=len(axes) % 2)


OF_INTEGERS = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceSumSquare")


@pytest.mark.parametrize(("axes", "dtype", "op_type"), crossed(2, ((1,), (0,)), ("int32", "int64"), OF_INTEGERS))
def test_integers(op_type: str, dtype: str, axes: tuple[int, ...]) -> None:
    """Integers are reduced in their own type and wrap as numpy's do."""
    check(op_type, random(37, 40, dtype=dtype), axes)


@halved
@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_extremes_of_bytes(op_type: str, dtype: str) -> None:
    """Greatest and least bytes, along rows and across columns."""
    for axes in ((1,), (0,)):
        check(op_type, random(9, 100, dtype=dtype), axes)


@halved
@pytest.mark.parametrize(
    "op_type", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceLogSum", "ReduceLogSumExp", "ReduceL2"]
)
@pytest.mark.parametrize("across", [False, True])
def test_nan_and_infinity(op_type: str, across: bool) -> None:
    """NaN wins everywhere, infinities of both signs give NaN in a sum, and a logarithm of 0 is -inf."""
    x = random(9, 70)
    x[0, 69], x[1, 0], x[2, 5], x[3, [1, 64]], x[4] = np.nan, np.inf, -np.inf, (np.inf, -np.inf), -np.inf
    x[5, [0, 66]], x[6], x[7] = (np.nan, np.inf), 0, np.nan
    check(op_type, np.ascontiguousarray(x.T) if across else x, (0,) if across else (1,))


@halved
@pytest.mark.parametrize(
    ("op_type", "expected"),
    [("ReduceSum", 0), ("ReduceProd", 1), ("ReduceMax", -np.inf), ("ReduceMin", np.inf), ("ReduceMean", np.nan)],
)
@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (20, 0)])
def test_reductions_of_nothing(op_type: str, expected: float, shape: tuple[int, int]) -> None:
    """An empty row gives the value that changes nothing; an output without elements is not written."""
    axis = shape.index(0)
    node = Node(op_type, ("x",), ("y",), {"axes": (axis,), "keepdims": 0}, "reduce")
    x = np.zeros(shape, np.float32)
    kept = (shape[1 - axis],)
    np.testing.assert_array_equal(run_node(node, {"x": x}, "float32", kept), np.full(kept, expected, np.float32))
    node = Node(op_type, ("x",), ("y",), {"axes": (1 - axis,), "keepdims": 0}, "reduce")
    assert run_node(node, {"x": x}, "float32", (0,)).shape == (0,)


def test_no_axes_mean_all_of_them_unless_the_node_says_none() -> None:
    """Without axes everything is reduced to one number; with ``noop_with_empty_axes`` the host takes the node."""
    x = random(3, 40, 5)
    actual = run_node(Node("ReduceMean", ("x",), ("y",), {"keepdims": 0}, "reduce"), {"x": x}, "float32", ())
    np.testing.assert_allclose(actual, x.mean(), rtol=1e-5)
    node = Node("ReduceSum", ("x",), ("y",), {"noop_with_empty_axes": 1}, "reduce")
    program = program_of([node], {"x": x}, {"y": ("float32", x.shape)})
    assert [type(call) for call in program.calls] == [HostCall]


@pytest.mark.parametrize("shape", [(300, 200), (2, 40000), (40000, 2)])
def test_much_work_is_shared_among_tasks(shape: tuple[int, int]) -> None:
    """All counts of tasks give the same, for rows and for columns."""
    for axes in ((0,), (1,)):
        check("ReduceSum", random(*shape), axes)
        check("ReduceMax", random(*shape), axes)


def test_shapes_share_kernels() -> None:
    """The extents of rows and columns, and how many axes they were, are no part of the key."""
    descs = set()
    for shape, axes in [
        ((4, 5, 60), (2,)),
        ((30, 99), (1,)),
        ((2, 3, 4, 50), (2, 3)),
        ((7, 8), (0, 1)),
        ((2, 3, 40), (0, 2)),
    ]:
        node = Node("ReduceMean", ("x",), ("y",), {"axes": axes}, "reduce")
        kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
        descs |= set(program_of([node], {"x": np.zeros(shape, np.float32)}, {"y": ("float32", kept)}).descriptors())
    assert len(descs) == 1


@halved
@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
@pytest.mark.parametrize(
    "op_type", ["ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare"]
)
def test_unsigned_integers_wrap_and_are_compared_as_they_are(op_type: str, dtype: str) -> None:
    """Numbers beyond the signed ones' range, along rows and across columns."""
    x = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, (7, 40), dtype, endpoint=True)
    numpy = {"Sum": np.sum, "L1": np.sum, "Prod": np.prod, "Max": np.max, "Min": np.min}
    for axis in (0, 1):
        (found,) = outputs_of(op_type, [x, np.array([axis])], (1,))
        terms = x * x if op_type == "ReduceSumSquare" else x
        reduce = numpy.get(op_type.removeprefix("Reduce"), np.sum)
        options = {} if op_type in ("ReduceMax", "ReduceMin") else {"dtype": dtype}
        np.testing.assert_array_equal(found, reduce(terms, axis, keepdims=True, **options))


def test_any_and_all_of_truth_values() -> None:
    """The greatest is any of them, the least is all; of none the host knows it."""
    x = np.random.default_rng(0).random((5, 40)) < 0.5
    x[1], x[2] = False, True
    (found,) = outputs_of("ReduceMax", [x, np.array([1])], (1,))
    np.testing.assert_array_equal(found, x.any(1, keepdims=True))
    (found,) = outputs_of("ReduceMin", [x, np.array([0])], (1,))
    np.testing.assert_array_equal(found, x.all(0, keepdims=True))
    program = one_operator.program_of(model_of("ReduceMin", [x[:0], np.array([0])], (1,))[0])
    assert [type(call) for call in program.calls] == [HostCall]
