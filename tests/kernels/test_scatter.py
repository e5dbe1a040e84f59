"""ScatterElements and ScatterND write what their definition says, in the order of the updates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from kernels.hostile import Case
from kernels.one_operator import Array, assert_same, check, integers, on_kernels, outputs_of, program_of, random
from opbuild.program import KernelCall
from support.tiers import halved, spread, thinned

HOSTILE = {
    "scatter": Case(
        "ScatterND", lambda n: (5, n), lambda n: [np.array([[3], [-1], [3]]), (3, n)], {"reduction": "add"}
    ),
    "scatter elements": Case(
        "ScatterElements", lambda n: (5, n), lambda n: [np.arange(3 * n).reshape(3, n) % 5, (3, n)], {"axis": 0}
    ),
}
"""For ``test_every_family``."""

REDUCTIONS = ("none", "add", "mul", "max", "min")


def scattered(x: Array, index: Array, updates: Array, axis: int, reduction: str) -> Array:
    """Return the output of ScatterElements, one update after the other."""
    found, combine = x.copy(), dict(zip(REDUCTIONS[1:], (np.add, np.multiply, np.maximum, np.minimum), strict=True))
    for place in np.ndindex(*index.shape):
        target = list(place)
        target[axis] = index[place]
        old = found[tuple(target)]
        found[tuple(target)] = updates[place] if reduction == "none" else combine[reduction](old, updates[place])
    return found


PARTS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((7,), (4,)),
    ((4, 9), (4, 9)),
    ((4, 9), (2, 5)),
    ((3, 4, 17), (3, 2, 17)),
    ((2, 3, 4, 5), (2, 3, 4, 5)),
    ((2, 3, 4, 5), (1, 3, 2, 5)),
)
"""Shapes of tensors and of their updates."""


@pytest.mark.parametrize(("shapes", "reduction"), spread(PARTS, REDUCTIONS))
def test_single_elements_along_any_axis(shapes: tuple[Sequence[int], Sequence[int]], reduction: str) -> None:
    """Indices repeat and are negative; they may be fewer than there are elements in every dimension."""
    shape, part = shapes
    for axis in range(-1, len(shape) - 1):
        index = integers(*part, low=-shape[axis], high=shape[axis], seed=axis + 1)
        x, updates = random(*shape), random(*part, seed=1)
        (found,) = outputs_of("ScatterElements", [x, index, updates], axis=axis, reduction=reduction)
        assert_same(found, scattered(x, index, updates, axis, reduction))


@halved
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("shape", "depth", "batch"), [((6, 40), 1, (3,)), ((4, 5), 2, (7,)), ((3, 4, 5), 2, (2, 3)), ((9,), 1, (4,))]
)
def test_rows_at_index_vectors(shape: tuple[int, ...], depth: int, batch: tuple[int, ...], reduction: str) -> None:
    """Several updates of one row are done one after the other."""
    places = [integers(*batch, 1, low=0, high=shape[number], seed=number) for number in range(depth)]
    updates = random(*batch, *shape[depth:], seed=3)
    check("ScatterND", [random(*shape), np.concatenate(places, -1), updates], opset=18, reduction=reduction)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float64", "int64", "uint16"])
def test_elements_of_any_type_replace_others(dtype: str) -> None:
    """Only their size matters."""
    x, updates = random(5, 20).astype(dtype), random(2, 20, seed=1).astype(dtype)
    (found,) = outputs_of("ScatterND", [x, np.array([[4], [-4]]), updates])
    expected = x.copy()
    expected[[4, 1]] = updates
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", thinned(["float64", "int32", "int64", "int8", "uint8", "uint32"], 2))
def test_numbers_of_any_type_are_combined(dtype: str) -> None:
    """Integers wrap."""
    x, updates = random(5, 6, dtype=dtype), random(8, 6, dtype=dtype, seed=1)
    index = integers(8, 6, low=0, high=5, dtype="int32")
    for reduction in REDUCTIONS[1:]:
        with np.errstate(over="ignore"):
            expected = scattered(x, index, updates, 0, reduction)
        (found,) = outputs_of("ScatterElements", [x, index, updates], axis=0, reduction=reduction)
        np.testing.assert_array_equal(found, expected)


def test_nan_wins_where_extremes_are_kept() -> None:
    """As in every other maximum and minimum; infinities are numbers."""
    x = np.float32([0, np.nan, np.inf, 1, 2])
    updates = np.float32([np.nan, 1, 5, -np.inf, np.inf])
    for reduction, combine in (("max", np.maximum), ("min", np.minimum)):
        (found,) = outputs_of("ScatterElements", [x, np.arange(5), updates], reduction=reduction)
        np.testing.assert_array_equal(found, combine(x, updates))


def test_one_index_for_a_row_writes_rows() -> None:
    """What Expand makes of a column of indices, as exporters write sums over the edges of a graph."""
    x, updates = random(6, 40), random(9, 40, seed=1)
    index = integers(9, 1, low=0, high=6)
    nodes = [
        helper.make_node("Expand", ["i", "shape"], ["index"]),
        helper.make_node("ScatterElements", ["x", "index", "u"], ["y"], axis=0, reduction="add"),
    ]
    kind = onnx.TensorProto
    ports = [
        helper.make_tensor_value_info("x", kind.FLOAT, x.shape),
        helper.make_tensor_value_info("i", kind.INT64, index.shape),
        helper.make_tensor_value_info("u", kind.FLOAT, updates.shape),
    ]
    shape = numpy_helper.from_array(np.array([9, 40]), "shape")
    graph = helper.make_graph(nodes, "edges", ports, [helper.make_empty_tensor_value_info("y")], [shape])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    made = [call.desc for call in program_of(model).calls if isinstance(call, KernelCall)]
    calls = [desc.attrs["kind"] for desc in made if desc.family == "scatter"]
    assert calls == ["rows"]
    (found,) = on_kernels(model, {"x": x, "i": index, "u": updates})
    assert_same(found, scattered(x, np.broadcast_to(index, updates.shape), updates, 0, "add"))


@pytest.mark.parametrize("op", ["ScatterND", "ScatterElements"])
def test_data_of_one_number_is_stored_as_one_element(op: str) -> None:
    """Zeros into which the edges of a graph are summed are as large as the output, and one number."""
    updates, rows = random(9, 40), integers(9, 1, low=0, high=6)
    index = rows if op == "ScatterND" else np.broadcast_to(rows, updates.shape).copy()
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["x"], value=numpy_helper.from_array(np.float32([0.5]))),
        helper.make_node(op, ["x", "i", "u"], ["y"], reduction="add"),
    ]
    ports = [
        helper.make_tensor_value_info("i", onnx.TensorProto.INT64, index.shape),
        helper.make_tensor_value_info("u", onnx.TensorProto.FLOAT, updates.shape),
    ]
    shape = numpy_helper.from_array(np.array([6, 40]), "shape")
    graph = helper.make_graph(nodes, "edges", ports, [helper.make_empty_tensor_value_info("y")], [shape])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    assert {buffer.size for buffer in program_of(model).buffers if buffer.kind == "constant"} == {1}
    (found,) = on_kernels(model, {"i": index, "u": updates})
    expected = np.full((6, 40), 0.5, np.float32)
    np.add.at(expected, rows[:, 0], updates)
    assert_same(found, expected)


def test_an_index_that_is_out_of_range_changes_nothing() -> None:
    """Nothing outside the tensor is touched, and nothing inside it."""
    x = random(4, 20)
    far = np.array([[4], [-5], [2**40], [-(2**40)]])
    (found,) = outputs_of("ScatterND", [x, far, random(4, 20, seed=1)])
    np.testing.assert_array_equal(found, x)
    (found,) = outputs_of("ScatterElements", [x, np.broadcast_to(far, (4, 20)).copy(), random(4, 20, seed=1)])
    np.testing.assert_array_equal(found, x)


def test_no_updates_leave_a_copy() -> None:
    """There are none where an extent of the indices is 0."""
    x = random(4, 5)
    (found,) = outputs_of("ScatterND", [x, np.zeros((0, 1), np.int64), np.zeros((0, 5), np.float32)])
    np.testing.assert_array_equal(found, x)
    (found,) = outputs_of("ScatterElements", [x, np.zeros((0, 5), np.int64), np.zeros((0, 5), np.float32)])
    np.testing.assert_array_equal(found, x)
