"""Passes that give one form to what front ends write differently: results stay, and equal layers get equal nodes."""

from __future__ import annotations

import numpy as np
import pytest

from opbuild.graph.passes.cleanup import remove_identities
from opbuild.graph.passes.infer import infer_node
from opbuild.graph.passes.patterns import (
    fuse_group_normalization,
    keep_leading_dimensions,
    merge_scales,
    reshape_whole_gathers,
    zero_softmax,
)
from opbuild.graph.types import Array, Graph, Node, TensorType
from support.graph_runner import run_graph

RANDOM = np.random.default_rng(4)


def graph_of(nodes: list[tuple[str, str, str, dict[str, object]]], x: Array, constants: dict[str, Array]) -> Graph:
    """Return a graph of one input ``x`` whose last node makes the output."""
    types = {name: TensorType(each.dtype.name, each.shape) for name, each in {"x": x, **constants}.items()}
    made = []
    for op_type, inputs, output, attrs in nodes:
        node = Node(op_type, tuple(inputs.split()), (output,), attrs, output)
        types[output] = infer_node(node, [types[n] for n in node.inputs], [constants.get(n) for n in node.inputs])[0]
        made.append(node)
    return Graph("g", tuple(made), ("x",), (made[-1].outputs[0],), types, constants, 21)


def scores(*, first: Array, second: Array, order: str = "x a") -> Graph:
    """Return queries and keys, both scaled, and their product."""
    x = RANDOM.standard_normal((2, 3, 5), np.float32)
    nodes = [
        ("Mul", order, "q", {}),
        ("Transpose", "x", "t", {"perm": (0, 2, 1)}),
        ("Mul", "t b", "k", {}),
        ("MatMul", "q k", "y", {}),
    ]
    return graph_of(nodes, x.astype(first.dtype), {"a": first, "b": second})


@pytest.mark.parametrize("order", ["x a", "a x"])
def test_scales_of_both_operands_become_one_of_the_product(order: str) -> None:
    """Within the rounding of a factor."""
    graph = scores(first=np.float32([0.35355338]), second=np.array(0.35355338, np.float32), order=order)
    merged = merge_scales(graph)
    assert [node.op_type for node in merged.nodes] == ["Transpose", "MatMul", "Mul"]
    feeds = {"x": RANDOM.standard_normal((2, 3, 5), np.float32)}
    np.testing.assert_allclose(run_graph(merged, feeds)[0], run_graph(graph, feeds)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (np.float16(0.5), np.float16(0.5)),  # a score that is not scaled may be too large for it
        (np.float64(0.5), np.float64(0.5)),
        (np.full(5, 0.5, np.float32), np.float32(0.5)),
        (np.float32(1e30), np.float32(1e30)),
        (np.float32(1e-30), np.float32(1e-30)),
        (np.float32(0), np.float32(2)),
        (np.float32(np.nan), np.float32(2)),
    ],
    ids=str,
)
def test_other_scales_stay_where_they_are(first: Array, second: Array) -> None:
    """Of other types, of more than one number, and those whose product float32 does not hold."""
    graph = scores(first=np.asarray(first), second=np.asarray(second))
    assert merge_scales(graph).nodes == graph.nodes


def test_a_scaled_value_that_something_else_reads_stays() -> None:
    """It is computed anyway."""
    x = RANDOM.standard_normal((4, 4), np.float32)
    nodes = [("Mul", "x a", "q", {}), ("Mul", "x a", "k", {}), ("MatMul", "q k", "p", {}), ("Add", "p q", "y", {})]
    graph = graph_of(nodes, x, {"a": np.array(2, np.float32)})
    assert merge_scales(graph).nodes == graph.nodes


GRID = np.stack(np.meshgrid(np.arange(3), np.arange(4), indexing="ij"), -1)
WHOLE: dict[str, tuple[str, Array, dict[str, object]]] = {
    "rows": ("Gather", np.arange(3).reshape(1, 3), {"axis": 0}),
    "from behind": ("Gather", np.arange(4), {"axis": -1}),
    "places": ("GatherND", GRID, {}),
    "places of rows": ("GatherND", np.arange(3).reshape(3, 1), {}),
}
OTHER: dict[str, tuple[str, Array, dict[str, object]]] = {
    "fewer": ("Gather", np.arange(2), {"axis": 0}),
    "turned": ("Gather", np.arange(3)[::-1].copy(), {"axis": 0}),
    "counted from behind": ("Gather", np.arange(-3, 0), {"axis": 0}),
    "across": ("GatherND", GRID.transpose(1, 0, 2).copy(), {}),
    "some places": ("GatherND", GRID[:2], {}),
    "of each row": ("GatherND", np.arange(3).reshape(3, 1), {"batch_dims": 1}),
}


@pytest.mark.parametrize("case", [*WHOLE, *OTHER])
def test_a_gather_of_everything_in_order_is_a_shape_and_no_other_is(case: str) -> None:
    """Whatever shape the indices have."""
    op_type, indices, attrs = (WHOLE | OTHER)[case]
    x = RANDOM.standard_normal((3, 4), np.float32)
    graph = graph_of([(op_type, "x i", "y", attrs)], x, {"i": indices.astype(np.int64)})
    found = reshape_whole_gathers(graph)
    assert (found.nodes[0].op_type == "Reshape") == (case in WHOLE)
    np.testing.assert_array_equal(run_graph(found, {"x": x})[0], run_graph(graph, {"x": x})[0])


def test_a_cast_to_the_type_that_is_there_goes_away() -> None:
    """Others stay."""
    nodes = [("Cast", "x", "a", {"to": 1}), ("Neg", "a", "b", {}), ("Cast", "b", "y", {"to": 11})]
    graph = remove_identities(graph_of(nodes, np.zeros(3, np.float32), {}))
    assert [(node.op_type, *node.inputs) for node in graph.nodes] == [("Neg", "x"), ("Cast", "b")]


ASKED = [("Softmax", "x", "w", {"axis": 1}), ("IsNaN", "w", "n", {})]


def special_rows() -> Array:
    """Return a matrix some rows of which are NaN after a softmax."""
    x = RANDOM.standard_normal((6, 5), np.float32)
    x[0], x[1, 2], x[2, 3], x[3, 1] = -np.inf, np.nan, np.inf, -np.inf
    x[4] = (np.nan, -np.inf, -np.inf, np.inf, 0)
    return x


@pytest.mark.parametrize("zero", [np.float32(0), np.zeros((1, 1), np.float32)], ids=["number", "matrix"])
def test_weights_that_are_0_instead_of_nan_are_made_by_their_softmax(zero: Array) -> None:
    """Of rows with NaN or +inf, too, since that is what the operators make of them."""
    x = special_rows()
    graph = graph_of([*ASKED, ("Where", "n a w", "y", {})], x, {"a": np.asarray(zero)})
    merged = zero_softmax(graph)
    assert [(node.op_type, node.attrs["zeros"]) for node in merged.nodes] == [("Softmax", "nan")]
    with np.errstate(invalid="ignore"):
        found, expected = (run_graph(each, {"x": x})[0] for each in (merged, graph))
    np.testing.assert_array_equal(found, expected)
    assert not found[[0, 1, 2, 4]].any()


@pytest.mark.parametrize(
    ("nodes", "zero"),
    [
        ([*ASKED, ("Where", "n a w", "y", {})], np.float32(1)),
        ([*ASKED, ("Where", "n a w", "y", {})], np.float32(-0.0)),
        ([*ASKED, ("Where", "n a w", "y", {})], np.zeros((2, 1, 1), np.float32)[:1]),
        ([*ASKED, ("Where", "n w a", "y", {})], np.float32(0)),
        ([*ASKED, ("Where", "n a x", "y", {})], np.float32(0)),
        ([*ASKED, ("Where", "n a w", "z", {}), ("Add", "z w", "y", {})], np.float32(0)),
        ([("Softmax", "x", "w", {}), ("IsNaN", "x", "n", {}), ("Where", "n a w", "y", {})], np.float32(0)),
    ],
    ids=["another number", "minus zero", "another shape", "the other way round", "of x", "read", "asked of x"],
)
def test_other_choices_stay_behind_a_softmax(nodes: list[tuple[str, str, str, dict[str, object]]], zero: Array) -> None:
    """Only 0 in place of NaN, where nothing else reads the weights."""
    graph = graph_of(nodes, special_rows(), {"a": np.asarray(zero)})
    assert [node.attrs for node in zero_softmax(graph).nodes] == [node.attrs for node in graph.nodes]


SCALE, SHIFT = (RANDOM.standard_normal((8, 1, 1), np.float32) for _ in range(2))
NORMALISED: dict[str, Array] = {
    "whole": np.array([0, 4, -1]),
    "back": np.array([2, 8, 3, 5]),
    "ones": np.ones(4, np.float32),
    "zeros": np.zeros(4, np.float32),
    "scale": SCALE,
    "shift": SHIFT,
}


def groups(**changed: Array) -> Graph:
    """Return a group normalisation as torch's exporter writes it."""
    nodes = [
        ("Reshape", "x whole", "rows", {}),
        ("InstanceNormalization", "rows ones zeros", "norm", {"epsilon": 1e-3}),
        ("Reshape", "norm back", "same", {}),
        ("Mul", "same scale", "scaled", {}),
        ("Add", "shift scaled", "y", {}),
    ]
    return graph_of(nodes, RANDOM.standard_normal((2, 8, 3, 5), np.float32), NORMALISED | changed)


@pytest.mark.parametrize("lead", [(), (1,)])
def test_a_written_out_group_normalisation_becomes_one_node(lead: tuple[int, ...]) -> None:
    """Its scale and shift are those of the channels, and its results are those of the nodes."""
    graph = groups(scale=SCALE.reshape(*lead, 8, 1, 1))
    fused = fuse_group_normalization(graph)
    assert [(node.op_type, node.attrs) for node in fused.nodes] == [
        ("GroupNormalization", {"num_groups": 4, "epsilon": 1e-3})
    ]
    feeds = {"x": RANDOM.standard_normal((2, 8, 3, 5), np.float32)}
    np.testing.assert_allclose(run_graph(fused, feeds)[0], run_graph(graph, feeds)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "changed",
    [
        {"ones": np.full(4, 2, np.float32)},
        {"zeros": np.ones(4, np.float32)},
        {"scale": np.ones((1, 1, 5), np.float32)},
        {"shift": np.ones((8, 3, 1), np.float32)},
        {"whole": np.array([4, 4, -1]), "back": np.array([2, 8, 3, 5])},
        {"back": np.array([2, 8, 5, 3])},
    ],
    ids=str,
)
def test_what_is_like_a_group_normalisation_stays(changed: dict[str, Array]) -> None:
    """Scales of groups, numbers of positions, groups across batches, and another shape behind it."""
    graph = groups(**changed)
    assert fuse_group_normalization(graph).nodes == graph.nodes


def linear(bias: tuple[int, ...] | None, shape: tuple[int, ...] = (2, 3, 6), **attrs: object) -> Graph:
    """Return a layer of tokens as exporters write it, between reshapes to a matrix and to a shape."""
    x, weights = (RANDOM.standard_normal(extents, np.float32) for extents in ((2, 3, 4), (4, 6)))
    constants = {"w": weights, "flat": np.int64([-1, 4]), "spread": np.int64(shape)}
    if bias is not None:
        constants["b"] = RANDOM.standard_normal(bias, np.float32)
    product = ("MatMul", "m w", "p", {}) if bias is None else ("Gemm", "m w b", "p", attrs)
    return graph_of([("Reshape", "x flat", "m", {}), product, ("Reshape", "p spread", "y", {})], x, constants)


@pytest.mark.parametrize("bias", [None, (6,), (1, 6), (1,), ()], ids=str)
def test_a_layer_of_tokens_is_a_product_of_all_leading_dimensions(bias: tuple[int, ...] | None) -> None:
    """What follows it can be a part of its kernel."""
    graph = linear(bias)
    kept = keep_leading_dimensions(graph)
    assert [node.op_type for node in kept.nodes] == ["MatMul", "Add"][: 1 if bias is None else 2]
    feeds = {"x": RANDOM.standard_normal((2, 3, 4), np.float32)}
    np.testing.assert_allclose(run_graph(kept, feeds)[0], run_graph(graph, feeds)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "graph",
    [
        linear((6,), alpha=0.5),
        linear((6,), beta=2.0),
        linear((6, 6)),  # a bias of its own for each row
        linear((6, 1)),
        linear((6,), shape=(3, 2, 6)),
        linear((6,), shape=(2, 3, 3, 2)),
        linear((6,), shape=(6, 6)),
    ],
    ids=range(7),
)
def test_other_products_between_reshapes_stay(graph: Graph) -> None:
    """Those that scale, whose bias depends on the row, and those behind which other dimensions come."""
    assert keep_leading_dimensions(graph).nodes == graph.nodes


def test_a_product_of_rows_that_something_else_reads_stays() -> None:
    """It is computed anyway."""
    graph = linear((6,))
    both = graph.with_(outputs=("y", "p"))
    assert keep_leading_dimensions(both).nodes == both.nodes
