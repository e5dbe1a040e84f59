"""Fusion: what joins what, and that no result changes by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opbuild.backend.host.evaluate import evaluate
from opbuild.graph.elementwise import split_epilogue
from opbuild.graph.passes.fuse import MAX_OPERANDS, MAX_OPERATIONS, fuse
from opbuild.graph.passes.infer import infer_node
from opbuild.graph.types import Array, Graph, Node, TensorType
from opbuild.operations.evaluation import evaluate_expression
from opbuild.operations.expression import ACC, arg, const, operations
from support import graph_runner


def graph_of(
    nodes: Sequence[tuple[Any, ...]],
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    constants: Mapping[str, Array] | None = None,
) -> Graph:
    """Make a typed graph from tuples ``(op_type, inputs, output, attrs)``."""
    known = dict(constants or {})
    types = {name: TensorType(str(a.dtype), a.shape) for name, a in {**inputs, **known}.items()}
    made = []
    for number, (op_type, names, output, *attrs) in enumerate(nodes):
        node = Node(op_type, tuple(names.split()), (output,), attrs[0] if attrs else {}, f"n{number}")
        types[output] = infer_node(node, [types[n] for n in node.inputs], [known.get(n) for n in node.inputs])[0]
        made.append(node)
    return Graph("g", tuple(made), tuple(inputs), tuple(outputs), types, known, 21)


def run_fused(graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
    """Evaluate a fused graph on the host."""
    values: dict[str, Array] = {**graph.constants, **feeds}
    waiting = list(graph.nodes)
    while waiting:
        node = waiting.pop(0)
        parts = split_epilogue(node)
        if parts is not None:
            waiting[:0] = parts
            continue
        operands = [values[name] for name in node.inputs if name]
        if node.op_type == "Elementwise":
            with np.errstate(all="ignore"):
                result = evaluate_expression(node.attrs["expression"], operands)
            results = [np.broadcast_to(result, graph.types[node.outputs[0]].shape)]
        else:
            results = evaluate(node, [values[name] if name else None for name in node.inputs], graph.opset)
        values.update(zip(node.outputs, results, strict=True))
    return [values[name] for name in graph.outputs]


def fused_types(graph: Graph) -> list[tuple[str, ...]]:
    """Return the operations of each node of the fused graph."""
    found = []
    for node in fuse(graph).nodes:
        expression = node.attrs.get("expression", node.attrs.get("epilogue"))
        own = () if node.op_type == "Elementwise" else (node.op_type,)
        found.append(own + (operations(expression) if expression is not None else ()))
    return found


def random(*shape: int, seed: int = 0) -> Array:
    """Return normally distributed numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X = random(2, 16, 5, 5)
W = random(16, 16, 3, 3, seed=1)
PADS = {"pads": (1, 1, 1, 1), "kernel_shape": (3, 3)}


def test_a_chain_becomes_one_operator() -> None:
    """Every operator with a single reader joins it."""
    graph = graph_of([("Add", "x y", "a"), ("Relu", "a", "b"), ("Mul", "b y", "z")], {"x": X, "y": X}, ["z"])
    assert fused_types(graph) == [("Add", "Relu", "Mul")]
    assert set(fuse(graph).nodes[0].inputs) == {"x", "y"}


def test_a_value_that_is_read_twice_joins_once_all_readers_are_one_operator() -> None:
    """GELU written out reads its input twice, and is one operator of one operand."""
    nodes = [
        ("Add", "x b", "a"),
        ("Div", "a s", "d"),
        ("Erf", "d", "e"),
        ("Add", "e o", "p"),
        ("Mul", "a p", "m"),
        ("Mul", "m h", "z"),
    ]
    constants = {"b": random(5), "s": np.float32(1.41), "o": np.float32(1), "h": np.float32(0.5)}
    graph = graph_of(nodes, {"x": X}, ["z"], {name: np.asarray(value, np.float32) for name, value in constants.items()})
    (node,) = fuse(graph).nodes
    assert set(node.inputs) == {"x", "b", "s"}


def test_outputs_of_the_network_and_shared_values_stay() -> None:
    """A value that somebody else reads is computed once."""
    nodes = [("Exp", "x", "a"), ("Relu", "a", "y"), ("Neg", "a", "z")]
    assert len(fused_types(graph_of(nodes, {"x": X}, ["y", "z"]))) == 3
    assert len(fused_types(graph_of(nodes[:2], {"x": X}, ["a", "y"]))) == 2


def test_a_small_value_joins_a_large_one_only_if_it_is_cheap() -> None:
    """A gate of one number a channel is not computed again for every pixel."""
    small = random(2, 16, 1, 1)
    cheap = graph_of([("Neg", "s", "a"), ("Mul", "x a", "z")], {"x": X, "s": small}, ["z"])
    dear = graph_of([("Sigmoid", "s", "a"), ("Mul", "x a", "z")], {"x": X, "s": small}, ["z"])
    assert (len(fused_types(cheap)), len(fused_types(dear))) == (1, 2)


def test_a_square_is_recognised() -> None:
    """A product of a value with itself is the operator Square."""
    assert fused_types(graph_of([("Mul", "x x", "z")], {"x": X}, ["z"])) == [("Square",)]


def test_numbers_that_change_the_code_are_compiled_in_and_others_are_operands() -> None:
    """Two factors share one kernel; a bound of 6 is part of the code."""

    def one(value: float) -> Node:
        constants = {"c": np.array(value, np.float32)}
        return fuse(graph_of([("Mul", "x c", "z")], {"x": X}, ["z"], constants)).nodes[0]

    assert one(0.3).attrs == one(0.7).attrs
    assert one(6.0).inputs == ("x",)
    bounds = {"l": np.array(0, np.float32), "h": np.array(6, np.float32)}
    (clip,) = fuse(graph_of([("Clip", "x l h", "z")], {"x": X}, ["z"], bounds)).nodes
    assert clip.attrs["expression"] == ("clip", arg(0), const(0.0), const(6.0))


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        ([("Conv", "x w", "c", PADS), ("Relu", "c", "z")], ("Conv", "Relu")),
        ([("Conv", "x w", "c", PADS), ("Add", "y c", "s"), ("Relu", "s", "z")], ("Conv", "Add", "Relu")),
        ([("Conv", "x w", "c", PADS), ("Sigmoid", "c", "s"), ("Mul", "c s", "z")], ("Conv", "Sigmoid", "Mul")),
        ([("Conv", "x w", "c", PADS), ("Clip", "c lo hi", "z")], ("Conv", "Clip")),
        ([("Conv", "x w", "c", PADS), ("PRelu", "c k", "z")], ("Conv", "Prelu")),
        ([("MatMul", "x m", "c"), ("Add", "c r", "s"), ("Gelu", "s", "z")], ("MatMul", "Add", "Gelu")),
    ],
)
def test_what_follows_a_product_becomes_its_epilogue(nodes: list[tuple[Any, ...]], wanted: tuple[str, ...]) -> None:
    """Activations, residuals, gates, values by channel and by column; results stay the same."""
    constants = {
        "w": W, "m": random(5, 7), "r": random(7), "k": random(16, 1, 1),
        "lo": np.array(0, np.float32), "hi": np.array(6, np.float32),
    }  # fmt: skip
    graph = graph_of(nodes, {"x": X, "y": random(*X.shape, seed=4)}, ["z"], constants)
    assert fused_types(graph) == [wanted]
    (node,) = fuse(graph).nodes
    own = 2 if node.op_type == "MatMul" else 3
    assert len(node.inputs) >= own
    feeds = {name: random(*graph.types[name].shape, seed=5) for name in graph.inputs}
    np.testing.assert_array_equal(run_fused(fuse(graph), feeds)[0], graph_runner.run_graph(graph, feeds)[0])


@pytest.mark.parametrize(
    "nodes",
    [
        [("Conv", "x w", "c", PADS), ("Add", "c y", "s"), ("Add", "s v", "z")],
        [("Conv", "x w", "c", PADS), ("Mul", "c row", "z")],
        [("Conv", "x w", "c", PADS), ("Greater", "c y", "z")],
    ],
)
def test_what_a_product_cannot_read_or_give_stays_apart(nodes: list[tuple[Any, ...]]) -> None:
    """Two residuals, a row, a result of another type."""
    graph = graph_of(nodes, {"x": X, "y": X, "v": X}, ["z"], {"w": W, "row": random(5)})
    assert len(fuse(graph).nodes) == 2


def test_of_two_products_of_one_size_that_are_added_the_later_takes_the_sum() -> None:
    """The earlier one is its residual; ResNet's shortcut is such a sum."""
    nodes = [("Conv", "x w", "a", PADS), ("Conv", "x w", "b", PADS), ("Add", "a b", "s"), ("Relu", "s", "z")]
    first, second = fuse(graph_of(nodes, {"x": X}, ["z"], {"w": W})).nodes
    assert "epilogue" not in first.attrs
    assert second.attrs["epilogue"] == ("relu", ("add", ACC, arg(0)))
    assert second.inputs == ("x", "w", "", "a")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_products_that_are_added_the_larger_takes_the_sum(order: tuple[int, int]) -> None:
    """Exporters list a residual block's shortcut before or after its other branch: both give the same operators."""
    products = [("Conv", "x w", "large", PADS), ("Conv", "x v", "small", {})]
    nodes = [*(products[index] for index in order), ("Add", "large small", "s"), ("Relu", "s", "z")]
    constants = {"w": W, "v": W[:, :, :1, :1]}
    fused = {node.inputs[1]: node for node in fuse(graph_of(nodes, {"x": X}, ["z"], constants)).nodes}
    assert fused["w"].attrs["epilogue"] == ("relu", ("add", ACC, arg(0)))
    assert fused["w"].inputs == ("x", "w", "", "small")
    assert "epilogue" not in fused["v"].attrs


def test_batch_normalization_that_stands_alone_is_a_product_and_a_sum() -> None:
    """It joins the activation after it."""
    constants = {"s": random(16) ** 2, "b": random(16), "m": random(16), "v": random(16) ** 2 + 1}
    graph = graph_of([("BatchNormalization", "x s b m v", "c"), ("Relu", "c", "z")], {"x": X}, ["z"], constants)
    assert fused_types(graph) == [("Mul", "Add", "Relu")]
    expected = graph_runner.run_graph(graph, {"x": X})[0]
    np.testing.assert_allclose(run_fused(fuse(graph), {"x": X})[0], expected, rtol=1e-5, atol=1e-6)


def test_chains_end_where_they_have_many_operations_or_operands() -> None:
    """The names of an operator's files list the operations, and its operands are streams of memory."""
    nodes = [("Sigmoid" if n % 2 else "Exp", f"v{n}", f"v{n + 1}") for n in range(50)]
    fused = fuse(graph_of(nodes, {"v0": X}, ["v50"]))
    assert [len(operations(node.attrs["expression"])) for node in fused.nodes] == [MAX_OPERATIONS, 10]
    sums = [("Add", f"s{n} x{n}", f"s{n + 1}") for n in range(10)]
    inputs = {"s0": X, **{f"x{n}": X for n in range(10)}}
    assert all(len(node.inputs) <= MAX_OPERANDS for node in fuse(graph_of(sums, inputs, ["s10"])).nodes)


UNARY = ("Relu", "Neg", "Abs", "Sigmoid", "Tanh", "Exp", "Sqrt", "Floor", "Erf")
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow")
SHAPES = ((3, 4, 5), (4, 1), (1, 1, 5), (3, 1, 1), (1,), (3, 4, 5))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_fusing_any_graph_changes_no_result(data: st.DataObject) -> None:
    """Random graphs of elementwise operators, shared values and several outputs, on NaN and infinity too."""
    values = {
        f"i{n}": shape for n, shape in enumerate(data.draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=4)))
    }
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5, 1e-40], np.float32)
    feeds = {name: np.resize(np.roll(special, k), shape) for k, (name, shape) in enumerate(values.items())}
    names, nodes = list(values), []
    for number in range(data.draw(st.integers(1, 12))):
        chosen = data.draw(st.sampled_from(UNARY + BINARY))
        operands = [data.draw(st.sampled_from(names[-6:])) for _ in range(1 if chosen in UNARY else 2)]
        nodes.append((chosen, " ".join(operands), f"v{number}"))
        names.append(f"v{number}")
    outputs = list(dict.fromkeys([names[-1], *data.draw(st.lists(st.sampled_from(names[len(values) :]), max_size=2))]))
    graph = graph_of(nodes, feeds, outputs)
    fused = fuse(graph)
    assert len(fused.nodes) <= len(graph.nodes)
    for mine, wanted in zip(run_fused(fused, feeds), graph_runner.run_graph(graph, feeds), strict=True):
        np.testing.assert_array_equal(mine, wanted)
