"""float16: a value of the model has its digits, and an operator is rounded once, whatever passes make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kernels.harness import run_program
from opbuild.backend.host.evaluate import evaluate
from opbuild.graph.passes.pipeline import optimize
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.target.host import host_level
from support.exact_arithmetic import Array
from support.graph_runner import run_graph

HALF = np.dtype(np.float16)


def graph_of(nodes: Sequence[Node], inputs: Mapping[str, Array], constants: Mapping[str, Any]) -> Graph:
    """Return a float16 graph; every value has the first input's shape, and the last node assigns the output."""
    known = {name: np.asarray(value, HALF) for name, value in constants.items()}
    shape = next(iter(inputs.values())).shape
    types = {name: TensorType("float16", shape) for name in (*inputs, *(node.outputs[0] for node in nodes))}
    types |= {name: TensorType("float16", value.shape) for name, value in known.items()}
    return Graph("half", tuple(nodes), tuple(inputs), nodes[-1].outputs, types, known, 21)


def built(graph: Graph, inputs: Mapping[str, Array]) -> Array:
    """Return a graph's output as kernels compute it."""
    (result,) = run_program(lower(optimize(graph, evaluate), host_level(), Options()), inputs).values()
    return result


def test_gelu_written_out_in_float16_keeps_its_steps() -> None:
    """It was computed as one operator, with digits that the model's values have not."""
    x = {"x": np.random.default_rng(2).standard_normal((40, 50)).astype(HALF)}
    nodes = [
        Node("Div", ("x", "root"), ("scaled",)),
        Node("Erf", ("scaled",), ("erf",)),
        Node("Add", ("erf", "one"), ("more",)),
        Node("Mul", ("x", "more"), ("twice",)),
        Node("Mul", ("twice", "half"), ("y",)),
    ]
    graph = graph_of(nodes, x, {"root": np.sqrt(2), "one": 1, "half": 0.5})
    (expected,) = run_graph(graph, x)
    assert np.mean(built(graph, x) == expected) > 0.995


def test_layer_normalization_written_out_in_float16_keeps_its_steps() -> None:
    """The same as for GELU."""
    x = {"x": np.random.default_rng(2).standard_normal((40, 50)).astype(HALF)}
    nodes = [
        Node("ReduceMean", ("x", "axes"), ("mean",), {"keepdims": 1}),
        Node("Sub", ("x", "mean"), ("centred",)),
        Node("Mul", ("centred", "centred"), ("square",)),
        Node("ReduceMean", ("square", "axes"), ("variance",), {"keepdims": 1}),
        Node("Add", ("variance", "epsilon"), ("more",)),
        Node("Sqrt", ("more",), ("root",)),
        Node("Div", ("centred", "root"), ("y",)),
    ]
    graph = graph_of(nodes, x, {"epsilon": 1e-3})
    rows = dict.fromkeys(("mean", "variance", "more", "root"), TensorType("float16", (40, 1)))
    axes = {"axes": np.array([1], np.int64)}
    types = {**graph.types, **rows, "axes": TensorType("int64", (1,))}
    graph = graph.with_(types=types, constants={**graph.constants, **axes})
    assert "LayerNormalization" not in {node.op_type for node in optimize(graph, evaluate).nodes}


def test_sums_and_means_of_float16_are_rounded_once() -> None:
    """Their steps were float16 too, and overflowed where the result does not."""
    big = np.full(64, 60000, HALF)
    x = {"a": big, "b": big, "c": -big}
    for operator, expected in (("Sum", 60000), ("Mean", 20000)):
        graph = graph_of([Node(operator, ("a", "b", "c"), ("y",))], x, {})
        np.testing.assert_array_equal(built(graph, x), np.full(64, expected, HALF), err_msg=operator)


def test_swish_and_batch_normalization_of_float16_are_rounded_once() -> None:
    """Both are several operations, between which nothing is a value of the model."""
    x = {"x": np.random.default_rng(3).standard_normal((2, 3, 4, 50)).astype(HALF)}
    wide = x["x"].astype(np.float64)
    graph = graph_of([Node("Swish", ("x",), ("y",), {"alpha": 1.5})], x, {})
    assert np.mean(built(graph, x) == (wide / (1 + np.exp(-1.5 * wide))).astype(HALF)) > 0.995
    graph = graph_of([BATCH_NORMALIZATION], x, PARAMETERS)
    assert np.mean(built(graph, x) == normalized(wide)) > 0.995


def test_steps_by_channel_in_float16_are_not_composed() -> None:
    """A normalization and a product by channel became one step, without the rounding between them."""
    x = {"x": np.random.default_rng(4).standard_normal((2, 3, 4, 50)).astype(HALF)}
    factor = np.array([0.3, 3, 7], HALF).reshape(3, 1, 1)
    graph = graph_of([BATCH_NORMALIZATION, Node("Mul", ("y", "factor"), ("z",))], x, {**PARAMETERS, "factor": factor})
    assert np.mean(built(graph, x) == normalized(x["x"].astype(np.float64)) * factor) > 0.995


PARAMETERS = {"scale": [1, 2, 3], "shift": [0.1, 0.2, 0.3], "mean": [0.5, 0.1, 0.7], "variance": [1, 2, 0.3]}
BATCH_NORMALIZATION = Node("BatchNormalization", ("x", *PARAMETERS), ("y",), {"epsilon": 1e-3})


def normalized(wide: Array) -> Array:
    """Return the result of ``BATCH_NORMALIZATION`` on numbers, rounded once."""
    scale, shift, mean, variance = (np.asarray(v, HALF).astype("f8").reshape(3, 1, 1) for v in PARAMETERS.values())
    return ((wide - mean) / np.sqrt(variance + 1e-3) * scale + shift).astype(HALF)
