"""Elementwise kernels on operands of any shape and strides, between canaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernels.harness import run_program
from kernels.lowered import program_of, random
from opbuild.backend.host.evaluate import evaluate
from opbuild.families.elementwise.lowering import describe
from opbuild.graph.passes.pipeline import optimize
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.kernel.opdesc import FREE
from opbuild.lowering.lower import lower
from opbuild.operations.expression import arg, const
from opbuild.program import KernelCall, View
from opbuild.target.host import host_level
from support.machines import choose_here
from support.tiers import halved

Array = npt.NDArray[Any]

CHAIN = ("add", ("mul", arg(0), arg(1)), arg(2))


def run(expression: Any, operands: list[Array], dtype: str = "float32") -> Array:
    """Run an expression of arrays as one kernel."""
    names = [f"x{index}" for index in range(len(operands))]
    shape = np.broadcast_shapes(*(operand.shape for operand in operands))
    node = Node("Elementwise", tuple(names), ("y",), {"expression": expression}, "chain", "opbuild")
    inputs = dict(zip(names, operands, strict=True))
    program = program_of([node], inputs, {"y": (dtype, shape)})
    return run_program(program, inputs)["y"]


@pytest.mark.parametrize("count", [100, 1000])
def test_many_elements_are_written_and_nothing_else(count: int) -> None:
    """Every element is right and no canary is touched; few elements are in ``test_every_family``."""
    x, y = random(count), random(count, seed=1)
    np.testing.assert_array_equal(run(("add", arg(0), arg(1)), [x, y]), x + y)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5, 2), ()])
def test_no_elements_and_no_dimensions(shape: tuple[int, ...]) -> None:
    """An empty result needs no kernel; a scalar is one element."""
    x = random(*shape) if shape else np.array(1.5, np.float32)
    np.testing.assert_array_equal(run(("neg", arg(0)), [x]), -x)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((4, 37), (37,)),
        ((4, 37), (4, 1)),
        ((4, 37), (1,)),
        ((4, 1), (1, 37)),
        ((2, 5, 7, 9), (5, 1, 1)),
        ((2, 5, 7, 9), (2, 1, 7, 1)),
        ((2, 5, 7, 9), (1, 5, 1, 9)),
        ((3,), (2, 4, 3)),
        ((2, 1, 3, 1, 5, 1, 2), (1, 4, 1, 3, 1, 2, 1)),
    ],
)
def test_operands_broadcast_as_numpys_do(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    """Stretched dimensions are read with stride 0, whichever operand they are in."""
    x, y = random(*left), random(*right, seed=1)
    np.testing.assert_array_equal(run(("sub", arg(0), arg(1)), [x, y]), x - y)


@pytest.mark.parametrize("shape", [(300000,), (2, 30001), (300, 1001), (3, 100, 1000)])
def test_rows_are_divided_among_tasks_and_long_ones_within(shape: tuple[int, ...]) -> None:
    """Many rows, few, and one: all counts of tasks give the same."""
    x, y = random(*shape), random(shape[-1], seed=1)
    np.testing.assert_array_equal(run(("mul", arg(0), arg(1)), [x, y]), x * y)


@pytest.mark.parametrize("perm", [(1, 0), (0, 1)])
def test_operands_are_read_where_they_lie(perm: tuple[int, int]) -> None:
    """Transposed and reversed operands, small ones without a copy."""
    x, y = random(7, 9), random(9, 7) if perm == (1, 0) else random(7, 9)
    nodes = [
        Node("Transpose", ("b",), ("t",), {"perm": perm}, "t"),
        Node("Slice", ("t", "s", "e", "ax", "st"), ("r",), {}, "s"),
        Node("Add", ("a", "r"), ("y",), {}, "add"),
    ]
    constants = {n: np.array([v], np.int64) for n, v in (("s", -1), ("e", -100), ("ax", 1), ("st", -1))}
    outputs = dict.fromkeys(("t", "r", "y"), ("float32", (7, 9)))
    program = program_of(nodes, {"a": x, "b": y}, outputs, constants)
    np.testing.assert_array_equal(run_program(program, {"a": x, "b": y})["y"], x + y.transpose(perm)[:, ::-1])


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float64"])
def test_every_type_is_stored_and_loaded(dtype: str) -> None:
    """Types other than float32: a choice by a condition, a comparison, a conversion."""
    x, y = random(3, 45, dtype="int32"), random(3, 45, dtype="int32", seed=1)
    a, b = (x > 0, y > 0) if dtype == "bool" else (np.abs(x).astype(dtype), np.abs(y).astype(dtype))
    condition = random(45, seed=2) > 0
    np.testing.assert_array_equal(
        run(("where", arg(0), arg(1), arg(2)), [condition, a, b], dtype), np.where(condition, a, b)
    )
    np.testing.assert_array_equal(run(("equal", arg(0), arg(1)), [a, b], "bool"), a == b)
    np.testing.assert_array_equal(run(("cast", "float32", arg(0)), [a]), a.astype("f4"))


def view(index: int, dims: tuple[tuple[int, int], ...]) -> View:
    """Return a view at the beginning of a buffer."""
    return View(index, 0, dims)


def test_what_is_one_row_in_memory_is_one_dimension_of_the_kernel() -> None:
    """Shapes of equal meaning have equal descriptors: contiguous dimensions merge, extents are free."""
    descs = set()
    for dims in (((5, 1), (7, 5), (9, 35)), ((70, 1), (3, 70)), ((99, 1),), ((1, 1), (50, 1), (1, 50))):
        desc, _ = describe([view(0, dims), view(1, dims)], ("relu", arg(0)), ["float32"] * 2, choose_here)
        descs.add(desc)
    (desc,) = descs
    assert [dim.extent for dim in desc.outputs[0].dims] == [FREE]


@pytest.mark.parametrize(("images", "channels", "size"), [(2, 16, 5), (2, 20, 5), (2, 3, 1), (1, 32, 1), (1, 20, 1)])
def test_chains_on_channel_blocks_stay_on_them(images: int, channels: int, size: int) -> None:
    """Between two convolutions a chain reads and writes blocks; lanes beyond the channels stay finite.

    At one position of one image a constant of one value a channel has as many elements as the result.
    """
    x, w = random(images, channels, size, size), random(channels, channels, 1, 1, seed=1) / channels
    scale, residual = random(channels, 1, 1, seed=2), random(images, channels, size, size, seed=3)
    nodes = [
        Node("Conv", ("x", "w"), ("a",), {}, "first"),
        Node(
            "Elementwise",
            ("a", "scale", "r"),
            ("b",),
            {"expression": ("add", ("div", arg(0), ("exp", arg(1))), ("sigmoid", ("add", arg(2), const(1.0))))},
            "chain",
            "opbuild",
        ),
        Node("Conv", ("b", "w"), ("y",), {}, "second"),
    ]
    shape = ("float32", x.shape)
    program = program_of(nodes, {"x": x, "r": residual}, {"a": shape, "b": shape, "y": shape}, {"w": w, "scale": scale})
    found = run_program(program, {"x": x, "r": residual})["y"]
    a = np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0])
    b = a / np.exp(scale) + 1 / (1 + np.exp(-(residual + 1)))
    np.testing.assert_allclose(found, np.einsum("nchw,oc->nohw", b, w[:, :, 0, 0]), rtol=1e-4, atol=1e-5)
    chain = next(call for call in program.calls if isinstance(call, KernelCall) and call.desc.family == "elementwise")
    assert all(v.dims[0][0] % 16 == 0 for v in chain.views)


def test_a_chain_whose_unused_lanes_would_not_be_finite_leaves_the_blocks() -> None:
    """1 / 0 in unused lanes would become NaN in the next convolution's sums."""
    x, w = random(1, 3, 4, 4), random(3, 3, 1, 1, seed=1)
    nodes = [
        Node("Conv", ("x", "w"), ("a",), {}, "first"),
        Node("Reciprocal", ("a",), ("b",), {}, "reciprocal"),
        Node("Conv", ("b", "w"), ("y",), {}, "second"),
    ]
    shape = ("float32", x.shape)
    found = run_program(program_of(nodes, {"x": x}, {"a": shape, "b": shape, "y": shape}, {"w": w}), {"x": x})["y"]
    expected = np.einsum("nchw,oc->nohw", 1 / np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0]), w[:, :, 0, 0])
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@halved
@pytest.mark.parametrize("factor", [(1, 1), (1, 6), (5, 1)])
@pytest.mark.parametrize("channels", [32, 20])
@pytest.mark.parametrize("op_type", ["ReduceMean", "ReduceMax"])
def test_squeeze_and_excite_stays_on_channel_blocks(op_type: str, channels: int, factor: tuple[int, int]) -> None:
    """Planes are pooled, and multiplied by what is made of them, where they lie; so are rows and columns by others."""
    x, w = random(2, channels, 5, 6), random(channels, channels, 1, 1, seed=1) / channels
    scale = random(1, channels, *factor, seed=2)
    nodes = [
        Node("Conv", ("x", "w"), ("a",), {}, "first"),
        Node(op_type, ("a", "axes"), ("m",), {"keepdims": 1}, "squeeze"),
        Node("Conv", ("m", "w"), ("e",), {}, "excite"),
        Node("Elementwise", ("e", "a", "s"), ("b",), {"expression": CHAIN}, "chain", "opbuild"),
        Node("Conv", ("b", "w"), ("y",), {}, "last"),
    ]
    whole, one = ("float32", x.shape), ("float32", (2, channels, 1, 1))
    outputs = {"a": whole, "m": one, "e": one, "b": whole, "y": whole}
    program = program_of(nodes, {"x": x, "s": scale}, outputs, {"w": w, "axes": np.array([-1, 2])})
    a = np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0])
    squeezed = a.mean((2, 3), keepdims=True) if op_type == "ReduceMean" else a.max((2, 3), keepdims=True)
    b = np.einsum("nchw,oc->nohw", squeezed, w[:, :, 0, 0]) * a + scale
    found = run_program(program, {"x": x, "s": scale})["y"]
    np.testing.assert_allclose(found, np.einsum("nchw,oc->nohw", b, w[:, :, 0, 0]), rtol=1e-4, atol=1e-5)
    # The network's inputs become blocks, its output no longer lies in them, one image after the other.
    families = [call.desc.family for call in program.calls if isinstance(call, KernelCall)]
    assert (families.count("to_blocked"), families.count("from_blocked"), families.count("reduce")) == (3, 2, 0)


@pytest.mark.parametrize("op_type", ["ReduceMean", "ReduceMax"])
def test_planes_are_pooled_into_rows_where_dimensions_are_dropped(op_type: str) -> None:
    """Channels that fill their blocks lie as a row of the result does; others leave the blocks before."""
    for channels, pools in ((32, 2), (20, 0)):
        x, w = random(2, channels, 3, 7), random(channels, channels, 1, 1, seed=1) / channels
        nodes = [
            Node("Conv", ("x", "w"), ("a",), {}, "first"),
            Node(op_type, ("a", "axes"), ("y",), {"keepdims": 0}, "pool"),
        ]
        outputs = {"a": ("float32", x.shape), "y": ("float32", (2, channels))}
        program = program_of(nodes, {"x": x}, outputs, {"w": w, "axes": np.array([2, 3])})
        a = np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0])
        expected = a.mean((2, 3)) if op_type == "ReduceMean" else a.max((2, 3))
        np.testing.assert_allclose(run_program(program, {"x": x})["y"], expected, rtol=1e-4, atol=1e-5)
        families = [call.desc.family for call in program.calls if isinstance(call, KernelCall)]
        assert families.count("global_pool") == pools


@pytest.mark.slow
def test_batch_normalization_of_a_batch_stays_on_channel_blocks() -> None:
    """Means are those of planes, then of images; only single numbers are brought into blocks."""
    x, w, scale, shift = random(3, 32, 5, 6), random(32, 32, 1, 1, seed=1), random(32, seed=2), random(32, seed=3)
    nodes = [
        Node("Conv", ("x", "w"), ("a",), {}, "first"),
        Node("BatchNormalization", ("a", "scale", "shift", "shift", "shift"), ("b",), {"training_mode": 1}, "norm"),
        Node("Conv", ("b", "w"), ("y",), {}, "last"),
    ]
    given = {"x": x, "scale": scale, "shift": shift}
    types = {
        name: TensorType("float32", each.shape) for name, each in {**given, "w": w, "a": x, "b": x, "y": x}.items()
    }
    graph = optimize(Graph("norm", tuple(nodes), tuple(given), ("y",), types, {"w": w}), evaluate)
    program = lower(graph, host_level())
    a = np.einsum("nchw,oc->nohw", x.astype(np.float64), w[:, :, 0, 0])
    mean, variance = a.mean((0, 2, 3), keepdims=True), a.var((0, 2, 3), keepdims=True)
    b = (a - mean) / np.sqrt(variance + 1e-5) * scale[:, None, None] + shift[:, None, None]
    found = run_program(program, given)["y"]
    np.testing.assert_allclose(found, np.einsum("nchw,oc->nohw", b, w[:, :, 0, 0]), rtol=1e-3, atol=1e-3)
    families = [call.desc.family for call in program.calls if isinstance(call, KernelCall)]
    assert families.count("from_blocked") == len(x)  # the result's images: nothing else leaves the blocks
    assert families.count("global_pool") == 2 * len(x)
