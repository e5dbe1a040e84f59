"""Operators that move elements, on every element size, between canaries.

A campaign copies every element size from every source, the suite half of the combinations.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

from kernels.harness import check_canaries, dims_of, guarded, run_desc, run_program
from kernels.lowered import program_of, random, run_node
from opbuild.families.copy.lowering import copy
from opbuild.graph.types import Node
from opbuild.program import KernelCall, View
from support.machines import choose_here
from support.tiers import spread

Array = npt.NDArray[Any]

SOURCES: dict[str, Any] = {
    "dense": lambda a: a,
    "every second": lambda a: a[..., ::2],
    "backwards": lambda a: a[::-1, ..., ::-1],
    "transposed": lambda a: a.transpose(),
    "turned": lambda a: a.transpose(1, 2, 0),
    "repeated": lambda a: np.broadcast_to(a[:, :1], (a.shape[0], 9, a.shape[2])),
    "repeated inside": lambda a: np.broadcast_to(a[..., :1], a.shape),
    "cut": lambda a: a[1:, 2:-1, 3:],
}


def run_copy(source: Array) -> None:
    """Copy an array with any strides into guarded memory and compare."""
    out = guarded(source.shape, str(source.dtype))
    plain = [View(i, 0, tuple(dims_of(a))) for i, a in enumerate((source, out.view))]
    desc, views = copy(plain, str(source.dtype), choose_here)
    arrays = []
    for array, seen in zip((source, out.view), views, strict=True):
        shape, strides = [e for e, _ in seen.dims][::-1], [s * array.itemsize for _, s in seen.dims][::-1]
        bits = (
            np.ndarray(shape, f"u{array.itemsize}", np.lib.stride_tricks.as_strided(array, (0,)), 0, strides)
            if 0 in shape
            else None
        )
        arrays.append(_reinterpreted(array, shape, strides) if bits is None else bits)
    run_desc(desc, *arrays)
    check_canaries(out)
    np.testing.assert_array_equal(out.view, source)


def _reinterpreted(array: Array, shape: list[int], strides: list[int]) -> Array:
    class Holder:
        __array_interface__: ClassVar[dict[str, Any]] = {
            "shape": tuple(shape),
            "strides": tuple(strides),
            "typestr": f"|u{array.itemsize}" if array.itemsize == 1 else f"<u{array.itemsize}",
            "data": (array.__array_interface__["data"][0], False),
            "version": 3,
        }
        keep = array

    return np.asarray(Holder())


@pytest.mark.parametrize(("dtype", "name"), spread(("uint8", "int16", "float32", "int64"), [*SOURCES]))
def test_any_strides_are_copied(name: str, dtype: str) -> None:
    """Rows, repeated elements, square blocks, single elements; each element size has its own kernels."""
    for shape in ((3, 5, 7), (4, 33, 40), (17, 6, 70)):
        run_copy(SOURCES[name](random(*shape, dtype="int32").astype(dtype)))


@pytest.mark.parametrize("extents", [(1, 40), (17, 31), (700, 800)])
def test_transpositions_of_any_extent_stay_inside(extents: tuple[int, int]) -> None:
    """In several tasks, and where one extent is a block's; others are in ``test_every_family``."""
    run_copy(random(*extents).T)


def test_nothing_is_copied_where_nothing_must_move() -> None:
    """Reshape, Squeeze, Unsqueeze, Flatten, Split and Slice between two kernels are references."""
    x = random(2, 6, 4)
    nodes = [
        Node("Neg", ("x",), ("a",), {}, "n"),
        Node("Reshape", ("a", "shape"), ("b",), {}, "r"),
        Node("Unsqueeze", ("b", "axes"), ("c",), {}, "u"),
        Node("Split", ("c",), ("d", "e"), {"axis": 2}, "s"),
        Node("Add", ("d", "e"), ("y",), {}, "add"),
    ]
    types = {"a": (2, 6, 4), "b": (12, 4), "c": (1, 12, 4), "d": (1, 12, 2), "e": (1, 12, 2), "y": (1, 12, 2)}
    nodes[3] = Node("Split", ("c", "sizes"), ("d", "e"), {"axis": 2}, "s")
    constants = {"shape": np.array([12, 4]), "axes": np.array([0]), "sizes": np.array([2, 2])}
    program = program_of(nodes, {"x": x}, {name: ("float32", shape) for name, shape in types.items()}, constants)
    assert [c.desc.family for c in program.calls if isinstance(c, KernelCall)] == ["elementwise", "elementwise"]
    expected = -x.reshape(1, 12, 4)
    np.testing.assert_array_equal(run_program(program, {"x": x})["y"], expected[..., :2] + expected[..., 2:])


def test_a_network_that_ends_with_a_reshape_writes_its_output_in_place() -> None:
    """The last kernel writes the output's memory itself."""
    x = random(2, 6)
    nodes = [Node("Neg", ("x",), ("a",), {}, "n"), Node("Reshape", ("a", "s"), ("y",), {}, "r")]
    program = program_of(nodes, {"x": x}, {"a": ("float32", (2, 6)), "y": ("float32", (12,))}, {"s": np.array([12])})
    assert len(program.calls) == 1
    np.testing.assert_array_equal(run_program(program, {"x": x})["y"], -x.reshape(12))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_concat_along_any_axis(axis: int) -> None:
    """Inputs of different extents, one of them twice, one a constant, one computed."""
    x, c = random(3, 4, 5), random(3, 4, 5, seed=1)
    nodes = [Node("Neg", ("x",), ("a",), {}, "n"), Node("Concat", ("a", "x", "a", "c"), ("y",), {"axis": axis}, "k")]
    expected = np.concatenate([-x, x, -x, c], axis)
    program = program_of(nodes, {"x": x}, {"a": ("float32", x.shape), "y": ("float32", expected.shape)}, {"c": c})
    np.testing.assert_array_equal(run_program(program, {"x": x})["y"], expected)


def test_concat_along_the_outermost_axis_copies_nothing_that_was_computed() -> None:
    """Parts are written where they belong."""
    x = random(1, 4, 5)
    nodes = [
        Node("Neg", ("x",), ("a",), {}, "n"),
        Node("Abs", ("x",), ("b",), {}, "m"),
        Node("Concat", ("a", "b"), ("y",), {"axis": 1}, "k"),
    ]
    types = {"a": ("float32", (1, 4, 5)), "b": ("float32", (1, 4, 5)), "y": ("float32", (1, 8, 5))}
    program = program_of(nodes, {"x": x}, types)
    assert len(program.calls) == 2
    np.testing.assert_array_equal(run_program(program, {"x": x})["y"], np.concatenate([-x, np.abs(x)], 1))


def test_tile_and_expand_repeat() -> None:
    """Every dimension may be repeated at once."""
    x = random(2, 3, 5)
    tiled = np.tile(x, (2, 1, 3))
    node = Node("Tile", ("x", "r"), ("y",), {}, "t")
    np.testing.assert_array_equal(run_node(node, {"x": x}, "float32", tiled.shape, {"r": np.array([2, 1, 3])}), tiled)
    node = Node("Expand", ("x", "s"), ("y",), {}, "e")
    wide = np.broadcast_to(x, (4, 2, 3, 5))
    np.testing.assert_array_equal(run_node(node, {"x": x}, "float32", wide.shape, {"s": np.array(wide.shape)}), wide)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_to_space_and_back(mode: str) -> None:
    """A transposition between two shapes, and its inverse."""
    x = random(2, 12, 3, 5)
    shape = (2, 2, 2, 3, 3, 5) if mode == "DCR" else (2, 3, 2, 2, 3, 5)
    order = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
    expected = x.reshape(shape).transpose(order).reshape(2, 3, 6, 10)
    node = Node("DepthToSpace", ("x",), ("y",), {"blocksize": 2, "mode": mode}, "d")
    found = run_node(node, {"x": x}, "float32", expected.shape)
    np.testing.assert_array_equal(found, expected)
    if mode == "DCR":
        node = Node("SpaceToDepth", ("x",), ("y",), {"blocksize": 2}, "s")
        np.testing.assert_array_equal(run_node(node, {"x": found}, "float32", x.shape), x)
