"""Matrix products of any shape, on operands that lie anywhere, are numpy's.

A campaign runs every shape in every layout, the suite a part of the combinations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernels.combinations import crossed
from kernels.harness import run_program
from kernels.lowered import program_of, random, run_node, variants
from opbuild.dtypes import numpy_dtype
from opbuild.families.matmul.family import choose, tiles
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.lowering.context import Lowering, Options
from opbuild.lowering.rules.matmul import matmul
from opbuild.lowering.strided import viewed_as
from opbuild.operations.expression import ACC, arg, const
from opbuild.program import HostCall, KernelCall
from opbuild.target.host import host_level, host_problem
from opbuild.target.level import LEVELS, Level
from opbuild.target.machine import Machine
from support.tiers import halved

Array = npt.NDArray[Any]
NODE = Node("MatMul", ("a", "b"), ("y",), {}, "product")


def check(actual: Array, expected: Array) -> None:
    """Assert that sums in float32 are near those in float64."""
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


def product(a: Array, b: Array, constant: bool) -> Array:
    """Check a product against numpy, the right operand known when the network is built or not; return it."""
    expected = np.matmul(a.astype(np.float64), b.astype(np.float64))
    inputs, constants = ({"a": a}, {"b": b}) if constant else ({"a": a, "b": b}, {})
    actual = run_node(NODE, inputs, "float32", expected.shape, constants)
    check(actual, expected)
    return actual


@pytest.mark.parametrize(("m", "n"), crossed(2, (1, 2, 3, 4, 7, 8, 12, 13, 25), (2, 31, 33, 64, 130)))
def test_constant_weights_are_packed_for_any_number_of_rows_and_columns(m: int, n: int) -> None:
    """Every tile of rows is reached, below, at and beyond its height; columns need not fill a panel."""
    product(random(m, 37), random(37, n, seed=1), constant=True)


@halved
@pytest.mark.parametrize("shape", [(4, 0, 3), (4, 5, 0), (1, 1, 1), (1, 1, 40), (1, 40, 1), (3, 1, 40)])
@pytest.mark.parametrize("constant", [True, False])
def test_extents_of_zero_and_one_are_served(shape: tuple[int, int, int], constant: bool) -> None:
    """A sum of nothing is 0; a product without elements writes nothing."""
    m, k, n = shape
    product(random(m, k), random(k, n, seed=1), constant)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((5,), (5,)), ((5,), (5, 40)), ((40, 5), (5,)), ((5,), (2, 5, 40)), ((2, 3, 40, 5), (5,)),
        ((2, 3, 20, 5), (5, 40)), ((2, 3, 20, 5), (3, 5, 40)), ((2, 1, 20, 5), (1, 3, 5, 40)),
        ((3, 20, 5), (2, 3, 5, 40)),
        ((2, 1, 2, 3, 5), (2, 3, 2, 5, 17)), ((1, 1, 1, 5), (2, 2, 5, 3)), ((2, 3, 1, 18), (2, 3, 18, 20)),
    ],
)  # fmt: skip
def test_batches_broadcast_as_numpy_does(a: Sequence[int], b: Sequence[int]) -> None:
    """Vectors, shared matrices, batches repeated on either side, three batch dimensions."""
    product(random(*a), random(*b, seed=1), constant=False)
    product(random(*a), random(*b, seed=1), constant=True)


SHAPES = ((20, 15, 40), (20, 16, 16), (20, 33, 47), (5, 64, 31), (70, 20, 260), (13, 5, 7), (1, 40, 33))


@pytest.mark.parametrize(("shape", "left", "right"), crossed(2, SHAPES, (False, True), (False, True)))
def test_transposed_operands_are_read_where_they_lie(shape: tuple[int, int, int], left: bool, right: bool) -> None:
    """A value that is a transposed view of memory gives the same product, whichever layout the kernel takes."""
    m, k, n = shape
    a, b = random(2, m, k), random(2, k, n, seed=1)

    def stored(value: Array, transposed: bool) -> Array:
        return np.ascontiguousarray(value.transpose(0, 2, 1)) if transposed else value

    inputs = {"at": stored(a, left), "bt": stored(b, right)}
    types = {"at": a.shape, "bt": b.shape, "a": a.shape, "b": b.shape, "y": (2, m, n)}
    kinds = {name: TensorType("float32", extents) for name, extents in types.items()}
    kinds |= {name: TensorType("float32", value.shape) for name, value in inputs.items()}
    lowering = Lowering(Graph("test", (NODE,), ("at", "bt"), ("y",), kinds, {}), host_level(), Options())
    for name, transposed in (("a", left), ("b", right)):
        value = lowering.plain(f"{name}t")
        order = (0, 2, 1) if transposed else (0, 1, 2)
        lowering.bind(name, viewed_as(value, [value.shape[i] for i in order], [value.strides[i] for i in order]))
    matmul(lowering, NODE)
    check(run_program(lowering.finish(), inputs)["y"], a.astype(np.float64) @ b)


def test_columns_rows_or_batches_are_shared() -> None:
    """Whatever is shared, the result is the same."""
    for a, b in [((4, 200), (200, 300)), ((600, 40), (40, 20)), ((6, 30, 40), (6, 40, 50)), ((3, 600), (600, 300))]:
        for constant in (True, False):
            product(random(*a), random(*b, seed=1), constant)


@pytest.mark.parametrize(
    ("shape", "is_copied"), [((7, 1030, 130), True), ((7, 1030, 40), False), ((7, 90, 130), False)]
)
def test_left_operands_that_lie_transposed_are_copied_for_long_sums(
    shape: tuple[int, int, int], is_copied: bool
) -> None:
    """Gradients of weights over many rows; short sums, and few columns, read them where they lie."""
    m, k, n = shape
    at, b = random(2, k, m), random(2, k, n, seed=1)
    nodes = [Node("Transpose", ("at",), ("a",), {"perm": (0, 2, 1)}, "turn"), NODE.with_(inputs=("a", "b"))]
    outputs = {"a": ("float32", (2, m, k)), "y": ("float32", (2, m, n))}
    program = program_of(nodes, {"at": at, "b": b}, outputs)
    assert (["copy", "matmul"] if is_copied else ["matmul"]) == [name for name, _ in variants(program)]
    found = run_program(program, {"at": at, "b": b})["y"]
    np.testing.assert_allclose(found, at.transpose(0, 2, 1).astype(np.float64) @ b, rtol=1e-5, atol=1e-4)


def test_products_of_one_transposed_operand_share_its_copy() -> None:
    """The gradients of both of a recurrent layer's weights read what flows into its gates."""
    at, b = random(1030, 7), random(1030, 130, seed=1)
    nodes = [Node("Transpose", ("at",), ("a",), {"perm": (1, 0)}, "turn")]
    nodes += [NODE.with_(inputs=("a", "b"), outputs=(name,), name=name) for name in ("y", "z")]
    outputs = {"a": ("float32", (7, 1030)), "y": ("float32", (7, 130)), "z": ("float32", (7, 130))}
    program = program_of(nodes, {"at": at, "b": b}, outputs)
    assert [name for name, _ in variants(program)] == ["copy", "matmul", "matmul"]


@pytest.mark.parametrize("transposed", [False, True])
def test_panels_that_are_copied_first_may_be_shared_among_threads(transposed: bool) -> None:
    """Computed operands large enough to be copied panel by panel, one batch: tasks take panels."""
    a, b = random(70, 101), random(101, 300, seed=1)
    nodes = [Node("Transpose", ("b",), ("c",), {"perm": (1, 0)}, "turn"), NODE.with_(inputs=("a", "c"))]
    given = np.ascontiguousarray(b.T)
    outputs = {"c": ("float32", (101, 300)), "y": ("float32", (70, 300))}
    inputs = {"a": a, "b": given if transposed else b}
    program = program_of(nodes, inputs, outputs) if transposed else program_of([NODE], inputs, {"y": outputs["y"]})
    variant = dict(variants(program))["matmul"]
    assert variant["stage"]
    check(run_program(program, inputs)["y"], a.astype(np.float64) @ b)


@pytest.mark.slow
@halved
@pytest.mark.parametrize("level", [level for level in LEVELS if host_problem(level) is None], ids=str)
@pytest.mark.parametrize("constant", [True, False])
def test_the_tiles_of_every_level_that_this_machine_runs_compute_the_same(level: Level, constant: bool) -> None:
    """Parts of a panel, several panels, and panels copied first, at their edges and for several tasks."""
    for a, b in [((13, 37), (37, 70)), ((5, 20), (20, 9)), ((1, 40), (40, 260)), ((2, 70, 33), (2, 33, 260))]:
        left, right = random(*a), random(*b, seed=1)
        known = {"b": right} if constant else {}
        given = {"a": left} if constant else {"a": left, "b": right}
        expected = left.astype(np.float64) @ right
        program = program_of([NODE], given, {"y": ("float32", expected.shape)}, known, level=level)
        check(run_program(program, given, level=level)["y"], expected)


def test_every_variant_of_a_tile_is_chosen_for_some_shape() -> None:
    """The cost model reaches each tile, copied panels or not."""
    for level in LEVELS:
        machine = Machine.of(level)
        chosen = [
            choose(layout, batches, m, n, 64, "float32", machine)
            for layout in ("panels", "rows", "columns")
            for batches in (1, 12)
            for m in (1, 2, 4, 5, 6, 8, 24, 1000)
            for n in (16, 17, 64, 128, 500)
        ]
        tabled = {tile[:2] for tile in tiles(machine, is_either=True)}
        assert {(v["rows"], v["columns"]) for v in chosen} == tabled, level
        assert {v["stage"] for v in chosen} == {True, False}


@halved
@pytest.mark.parametrize("shape", [(9, 30, 50), (2, 9, 30, 50), (9, 30, 1), (1, 30, 50)])
@pytest.mark.parametrize("constant", [True, False])
def test_an_epilogue_reads_residuals_rows_and_scalars(shape: Sequence[int], constant: bool) -> None:
    """Bias, residual of the output's shape, scalar and activation are applied in the order of the expression."""
    *batch, m, k, n = shape
    a, b = random(*batch, m, k), random(k, n, seed=1)
    bias, residual, scale = random(n, seed=2), random(*batch, m, n, seed=3), random(1, seed=4)
    expected = np.maximum((a.astype(np.float64) @ b + bias) * scale, 0) + residual
    value = ("add", ("relu", ("mul", ("add", ACC, arg(0)), arg(2))), arg(1))
    node = Node(
        "MatMul", ("a", "b", "bias", "residual", "scale"), ("y",), {"epilogue": value, "own_inputs": 2}, "product"
    )
    inputs, constants = {"a": a, "residual": residual}, {"bias": bias, "scale": scale}
    (constants if constant else inputs)["b"] = b
    check(run_node(node, inputs, "float32", expected.shape, constants), expected)


def test_equal_epilogues_written_differently_share_one_kernel() -> None:
    """The order of summands and the numbering of operands are no part of the key."""

    def kernels(value: Any, names: tuple[str, ...]) -> list[Any]:
        inputs = {"a": random(9, 30), "r": random(9, 50)}
        node = Node("MatMul", ("a", "b", *names), ("y",), {"epilogue": value, "own_inputs": 2}, "product")
        constants = {"b": random(30, 50), "c": random(50)}
        program = program_of([node], inputs, {"y": ("float32", (9, 50))}, constants)
        return list(program.descriptors())

    first = kernels(("add", ("add", ACC, arg(0)), arg(1)), ("c", "r"))
    assert first == kernels(("add", arg(0), ("add", arg(1), ACC)), ("r", "c"))


def test_nan_and_infinity_pass_through_sums_and_epilogues() -> None:
    """NaN reaches every column of its row and no other row; a rectifier keeps it."""
    a, b = random(9, 30), np.abs(random(30, 50, seed=1)) + 1
    a[2, 3], a[5, 7], a[6, 0], a[6, 1] = np.nan, np.inf, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        sums = a.astype(np.float64) @ b
    node = Node(
        "MatMul", ("a", "b"), ("y",), {"epilogue": ("relu", ("mul", ACC, const(1.0))), "own_inputs": 2}, "product"
    )
    actual = run_node(node, {"a": a}, "float32", sums.shape, {"b": b})
    check(actual, np.where(sums < 0, 0, sums))


def test_shapes_of_one_network_share_kernels() -> None:
    """Weights of other extents need no other kernel as long as the variant is the same."""
    descs = set()
    for k, n in [(768, 768), (768, 3072), (3072, 768), (512, 1000)]:
        inputs = {"a": random(128, k)}
        program = program_of([NODE], inputs, {"y": ("float32", (128, n))}, {"b": np.zeros((k, n), np.float32)})
        descs |= set(program.descriptors())
    assert len(descs) == 1


def test_element_types_without_a_kernel_go_to_the_host() -> None:
    """An integer product is left to the host backend, with the reason noted."""
    inputs = {"a": random(2, 3, dtype="int64"), "b": random(3, 2, dtype="int64")}
    program = program_of([NODE], inputs, {"y": ("int64", (2, 2))})
    assert [type(call) for call in program.calls] == [HostCall]
    assert "int64" in program.notes["product"]


def products_of_pairs(m: int, k: int, n: int, special: bool = False) -> None:
    """Check a product with a constant matrix of bfloat16 where one instruction adds up pairs."""
    a, b = bfloat16s(m, k), bfloat16s(k, n, seed=1)
    if special:
        a[0, 0], a[m // 2, k - 1], a[m - 1, 0], b[1, 0] = np.nan, np.inf, -np.inf, np.inf
    left = a.astype(np.float32)
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b.astype(np.float64)
    program = program_of([NODE], {"a": left}, {"y": ("float32", (m, n))}, {"b": b}, level=PAIRS)
    assert {call.desc.attrs["rhs"] for call in program.calls if isinstance(call, KernelCall)} <= {"pairs"}
    check(run_program(program, {"a": left}, level=PAIRS)["y"], expected)


def bfloat16s(*shape: int, seed: int = 0) -> Array:
    """Return random numbers of bfloat16."""
    return random(*shape, seed=seed).astype(numpy_dtype("bfloat16"))


PAIRS = next(level for level in LEVELS if Machine.of(level).pairs)


@pytest.mark.skipif(host_problem(PAIRS) is not None, reason="this machine has no dot product of bfloat16")
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 40), (0, 5, 3), (4, 0, 3), (3, 2, 31), (8, 37, 33), (25, 70, 130)])
def test_weights_of_bfloat16_are_multiplied_in_pairs(m: int, k: int, n: int) -> None:
    """Neighbours along K lie together, an odd last one beside a zero; rows and columns of any number."""
    products_of_pairs(m, k, n)


@pytest.mark.skipif(host_problem(PAIRS) is not None, reason="this machine has no dot product of bfloat16")
def test_nan_and_infinity_of_bfloat16_reach_their_sums_alone() -> None:
    """Beside an odd last neighbour and within pairs; the zeros beyond K make no NaN of an infinity."""
    products_of_pairs(9, 31, 50, special=True)


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_pairs_are_for_levels_with_an_instruction_for_them(level: Level) -> None:
    """Elsewhere, and in high precision, a matrix of bfloat16 lies in panels as any other."""
    for mode, pairs in (("high_performance", Machine.of(level).pairs), ("high_precision", False)):
        given, known = {"a": random(8, 32)}, {"b": bfloat16s(32, 40)}
        program = program_of([NODE], given, {"y": ("float32", (8, 40))}, known, mode, level)
        assert [desc.attrs["rhs"] for desc in program.descriptors()] == ["pairs" if pairs else "panels"]
