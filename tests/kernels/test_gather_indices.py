"""Gathers with indices of either type, negative and far outside."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.harness import run_program
from kernels.lowered import program_of, random, run_node
from opbuild.graph.types import Node
from support.tiers import halved


@halved
@pytest.mark.parametrize("index_type", ["int32", "int64"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(4, 6, 5), (4, 6, 40), (1, 1, 1)])
def test_gather_takes_rows_along_any_axis(index_type: str, axis: int, shape: tuple[int, ...]) -> None:
    """Negative indices count from the end; the indices' shape takes the axis' place."""
    x = random(*shape)
    indices = (
        random(2, 3, dtype=index_type) % shape[axis] - random(2, 3, dtype="int32", seed=1).astype(bool) * shape[axis]
    )
    indices = indices.astype(index_type)
    expected = np.take(x, indices, axis)
    node = Node("Gather", ("x", "i"), ("y",), {"axis": axis}, "g")
    np.testing.assert_array_equal(run_node(node, {"x": x, "i": indices}, "float32", expected.shape), expected)


@pytest.mark.parametrize("index_type", ["int32", "int64"])
def test_indices_out_of_range_read_the_nearest_element_and_nothing_outside(index_type: str) -> None:
    """Whatever the indices are, also extremes of their type, results are elements of the tensor: no canary is read."""
    x, info = random(5, 3), np.iinfo(index_type)
    indices = np.array([5, 100, info.max, -6, -100, info.min, 2**31 - 1, -(2**31)], np.int64)
    if index_type == "int64":
        indices = np.concatenate([indices, [2**32 + 2, -(2**32) - 2, 2**40]])
    indices = np.clip(indices, info.min, info.max).astype(index_type)
    node = Node("Gather", ("x", "i"), ("y",), {"axis": 0}, "g")
    found = run_node(node, {"x": x, "i": indices}, "float32", (len(indices), 3))
    np.testing.assert_array_equal(found, x[np.where(indices < 0, 0, 4)])


@pytest.mark.parametrize("dtype", ["bool", "int16", "float64"])
def test_gathers_move_every_type(dtype: str) -> None:
    """Only the size of an element matters."""
    x = random(7, 20, dtype="int32").astype(dtype)
    i = np.array([3, 0, 6, 6])
    node = Node("Gather", ("x", "i"), ("y",), {"axis": 0}, "g")
    np.testing.assert_array_equal(run_node(node, {"x": x, "i": i}, dtype, (4, 20)), x[i])


def test_known_evenly_spaced_indices_are_a_view() -> None:
    """One index, or a range of them, needs no kernel of its own."""
    x = random(6, 4)
    for indices in (np.array(2), np.array([1, 3, 5]), np.array([-1, -2])):
        nodes = [Node("Gather", ("x", "i"), ("g",), {"axis": 0}, "g"), Node("Neg", ("g",), ("y",), {}, "n")]
        expected = -x[indices]
        types = {"g": ("float32", expected.shape), "y": ("float32", expected.shape)}
        program = program_of(nodes, {"x": x}, types, {"i": indices})
        assert len(program.calls) == 1
        np.testing.assert_array_equal(run_program(program, {"x": x})["y"], expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_elements_follows_numpy(axis: int) -> None:
    """Indices of a smaller shape than the data."""
    x = random(4, 6, 5)
    indices = np.random.default_rng(0).integers(-x.shape[axis], x.shape[axis], (3, 5, 4))
    expected = np.take_along_axis(
        x[tuple(slice(0, n) if d != axis else slice(None) for d, n in enumerate((3, 5, 4)))], indices, axis
    )
    node = Node("GatherElements", ("x", "i"), ("y",), {"axis": axis}, "g")
    np.testing.assert_array_equal(run_node(node, {"x": x, "i": indices}, "float32", expected.shape), expected)


@pytest.mark.parametrize(("count", "batch"), [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1)])
def test_gather_nd_takes_tuples_of_indices(count: int, batch: int) -> None:
    """One to three coordinates, with and without a batch dimension."""
    x = random(4, 6, 5)
    random_ = np.random.default_rng(0)
    shape = (4, 7) if batch else (3, 7)
    indices = np.stack([random_.integers(-n, n, shape) for n in x.shape[batch : batch + count]], -1)
    if batch:
        expected = np.stack([x[b][tuple(indices[b].T)] for b in range(4)])
    else:
        expected = x[tuple(np.moveaxis(indices, -1, 0))]
    node = Node("GatherND", ("x", "i"), ("y",), {"batch_dims": batch}, "g")
    np.testing.assert_array_equal(run_node(node, {"x": x, "i": indices}, "float32", expected.shape), expected)
