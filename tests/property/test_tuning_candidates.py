"""Candidates of tuning are legal: each can be lowered for the extents for which its family names it."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from opbuild.config import Config
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.lowering.tuned import Tuned
from opbuild.pipeline.setup import set_up
from opbuild.target.level import LEVELS, Level
from opbuild.tuning import tuner
from opbuild.tuning.trial import FixedAnswers

EXTENTS = st.integers(1, 40)
TARGETS = st.sampled_from([level for level in LEVELS if level.name != "rv64gc"])


def graph_of(op_type: str, shapes: list[tuple[int, ...]], constants: list[np.ndarray], **attrs: object) -> Graph:
    """Return the optimized graph of one node."""
    inputs = [f"x{place}" for place in range(len(shapes))]
    names = [f"c{place}" for place in range(len(constants))]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip(inputs, shapes, strict=True)]
    tensors = [numpy_helper.from_array(array, name) for array, name in zip(constants, names, strict=True)]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node(op_type, [*inputs, *names], ["y"], name="node", **attrs)
    graph = helper.make_graph([node], "g", ports, [out], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    setup = set_up(Config.from_environment(op_compiler_cache_mode="disable"), None, None)
    return tuner._graph(model.SerializeToString(), setup, {})[0]


def lower_all(graph: Graph, level: Level) -> int:
    """Lower a graph with each candidate of each query; lowering asserts that every variant is legal."""
    first = Tuned(FixedAnswers({}))
    lower(graph, level, Options(chooser=first))
    count = 0
    for query, asked in first.queries.items():
        for candidate in asked.candidates:
            found = Tuned(FixedAnswers({query: candidate}))
            lower(graph, level, Options(chooser=found))
            assert found.queries[query].answer == candidate
            count += 1
    return count


@settings(max_examples=60)
@given(
    channels=st.tuples(EXTENTS, EXTENTS),
    size=st.tuples(EXTENTS, EXTENTS),
    kernel=st.sampled_from([1, 3, 5]),
    stride=st.sampled_from([1, 2]),
    groups=st.sampled_from(["one", "each", "two"]),
    level=TARGETS,
)
def test_of_convolutions(
    channels: tuple[int, int], size: tuple[int, int], kernel: int, stride: int, groups: str, level: Level
) -> None:
    """Dense ones, Winograd's, depthwise and grouped ones, first layers; images smaller than any tile too."""
    inputs, outputs = channels
    if groups == "each":
        outputs = inputs
    if groups == "two":
        inputs, outputs = 2 * inputs, 2 * outputs
    group = {"one": 1, "each": inputs, "two": 2}[groups]
    weights = np.ones((outputs, inputs // group, kernel, kernel), np.float32)
    graph = graph_of("Conv", [(1, inputs, *size)], [weights], group=group, strides=[stride] * 2, pads=[kernel // 2] * 4)
    assert lower_all(graph, level) > 0


@settings(max_examples=40)
@given(
    channels=st.tuples(EXTENTS, EXTENTS),
    size=st.tuples(EXTENTS, EXTENTS),
    kernel=st.sampled_from([1, 3]),
    largest=st.sampled_from([64, 127]),
    level=TARGETS,
)
def test_of_convolutions_of_bytes(
    channels: tuple[int, int], size: tuple[int, int], kernel: int, largest: int, level: Level
) -> None:
    """Direct sums, of two products in 16 bits too, and Winograd's."""
    inputs, outputs = channels
    known = {"w": np.full((outputs, inputs, kernel, kernel), largest, np.int8), "zero": np.array(3, np.uint8)}
    types = {name: TensorType(str(array.dtype), array.shape) for name, array in known.items()}
    types |= {"x": TensorType("uint8", (1, inputs, *size)), "y": TensorType("int32", (1, outputs, *size))}
    node = Node("ConvInteger", ("x", "w", "zero"), ("y",), {"pads": [kernel // 2] * 4}, "node")
    assert lower_all(Graph("one", (node,), ("x",), ("y",), types, known), level) > 0


@settings(max_examples=60)
@given(m=EXTENTS, n=st.integers(1, 300), k=EXTENTS, constant=st.booleans(), batch=st.integers(1, 3), level=TARGETS)
def test_of_products(m: int, n: int, k: int, constant: bool, batch: int, level: Level) -> None:
    """Packed right operands, and ones that are computed, in batches."""
    if constant:
        graph = graph_of("MatMul", [(batch, m, k)], [np.ones((k, n), np.float32)])
    else:
        graph = graph_of("MatMul", [(batch, m, k), (batch, k, n)], [])
    lower_all(graph, level)


@settings(max_examples=30)
@given(rows=EXTENTS, columns=st.integers(1, 9000), axis=st.sampled_from([-1, 0]), level=TARGETS)
def test_of_softmax(rows: int, columns: int, axis: int, level: Level) -> None:
    """Rows that a stack holds and longer ones, along either axis."""
    assert lower_all(graph_of("Softmax", [(rows, columns)], [], axis=axis), level) > 0


@settings(max_examples=30)
@given(
    shape=st.tuples(EXTENTS, EXTENTS), axis=st.sampled_from([0, 1]), kind=st.sampled_from(["Max", "L2"]), level=TARGETS
)
def test_of_reductions(shape: tuple[int, int], axis: int, kind: str, level: Level) -> None:
    """Of rows and of columns, fewer than a vector and more."""
    lower_all(graph_of(f"Reduce{kind}", [shape], [], axes=[axis]), level)


@settings(max_examples=30)
@given(shape=st.tuples(EXTENTS, EXTENTS), level=TARGETS)
def test_of_elementwise_expressions(shape: tuple[int, int], level: Level) -> None:
    """Rows shorter than any vector, and longer ones."""
    assert lower_all(graph_of("Exp", [shape], []), level) > 0


@settings(max_examples=20)
@given(channels=EXTENTS, size=st.tuples(EXTENTS, EXTENTS), level=TARGETS)
def test_of_pools_over_planes(channels: int, size: tuple[int, int], level: Level) -> None:
    """Planes narrower than the sums that are kept apart, too."""
    lower_all(graph_of("GlobalAveragePool", [(1, channels, *size)], []), level)


@settings(max_examples=40)
@given(
    kind=st.sampled_from(["RNN", "GRU", "LSTM"]),
    linear=st.booleans(),
    batch=st.integers(1, 12),
    size=st.integers(1, 20),
    hidden=st.integers(1, 130),
    level=TARGETS,
)
def test_of_recurrences(kind: str, linear: bool, batch: int, size: int, hidden: int, level: Level) -> None:
    """With the product of their inputs and without, of one sequence and of several."""
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    weights = [np.ones((1, gates * hidden, extent), np.float32) for extent in (size, hidden)]
    attrs = {"linear_before_reset": int(linear)} if kind == "GRU" else {}
    assert lower_all(graph_of(kind, [(3, batch, size)], weights, hidden_size=hidden, **attrs), level) > 0
