"""precision_mode=force_fp32: a float16 or float64 network computes in float32 and looks the same from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from opbuild.backend.host.evaluate import evaluate
from opbuild.graph.passes.infer import infer, infer_node
from opbuild.graph.passes.narrow import force_float32, in_float32
from opbuild.graph.passes.pipeline import simplify
from opbuild.graph.types import Array, Graph, Node, TensorType
from support.graph_runner import run_graph

Step = tuple[str, str, str, dict[str, Any]]


def graph_of(
    steps: Sequence[Step], inputs: Mapping[str, Array], outputs: Sequence[str], constants: Mapping[str, Array]
) -> Graph:
    """Return a typed graph of ``(operator, inputs, output, attributes)``."""
    types = {name: TensorType(str(array.dtype), array.shape) for name, array in {**inputs, **constants}.items()}
    nodes = []
    for number, (op_type, names, output, attrs) in enumerate(steps):
        node = Node(op_type, tuple(names.split()), (output,), attrs, f"n{number}")
        known = [constants.get(name) for name in node.inputs]
        types[output] = infer_node(node, [types[name] for name in node.inputs], known)[0]
        nodes.append(node)
    return Graph("g", tuple(nodes), tuple(inputs), tuple(outputs), types, dict(constants))


def dtypes(graph: Graph) -> dict[str, str]:
    """Return the element type of every value that the graph uses."""
    used = {name for node in graph.nodes for name in (*node.inputs, *node.outputs) if name}
    return {name: graph.types[name].dtype for name in used}


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_everything_inside_is_float32(dtype: str) -> None:
    """Inputs and outputs keep their types; one conversion each, none between operators, and types are right."""
    x = np.linspace(-2, 2, 12, dtype=dtype).reshape(3, 4)
    w = np.linspace(0, 1, 8, dtype=dtype).reshape(4, 2)
    steps: list[Step] = [("MatMul", "x w", "p", {}), ("Exp", "p", "e", {}), ("Relu", "p", "r", {})]
    graph = graph_of(steps, {"x": x}, ("e", "r"), {"w": w})
    forced = simplify(force_float32(graph), evaluate)
    found = dtypes(forced)
    assert {found.pop(name) for name in ("x", "e", "r")} == {dtype}
    assert set(found.values()) == {"float32"}
    assert [node.op_type for node in forced.nodes].count("Cast") == 3
    assert infer(forced).types == {name: forced.types[name] for name in infer(forced).types}
    for actual, expected in zip(run_graph(forced, {"x": x}), run_graph(graph, {"x": x}), strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual, expected, rtol=2e-3 if dtype == "float16" else 1e-6)


def test_conversions_of_the_model_between_floats_disappear() -> None:
    """Values that a mixed-precision model converts to and fro are computed in float32 throughout."""
    x = np.linspace(-2, 2, 6, dtype=np.float32)
    steps: list[Step] = [
        ("Cast", "x", "h", {"to": 10}), ("Exp", "h", "e", {}), ("Cast", "e", "d", {"to": "float64"}),
        ("Sqrt", "d", "s", {}), ("Cast", "s", "y", {"to": 1}), ("Cast", "y", "i", {"to": 7}),
    ]  # fmt: skip
    graph = graph_of(steps, {"x": x}, ("y", "i"), {})
    forced = simplify(force_float32(graph), evaluate)
    assert [node.op_type for node in forced.nodes] == ["Exp", "Sqrt", "Cast"]
    y, i = run_graph(forced, {"x": x})
    np.testing.assert_allclose(y, np.sqrt(np.exp(x)), rtol=1e-6)
    assert i.dtype == np.int64


def test_a_float32_network_stays_as_it_is() -> None:
    """Nothing is inserted, so its operators keep their keys."""
    graph = graph_of([("Exp", "x", "y", {})], {"x": np.zeros(4, np.float32)}, ("y",), {})
    assert force_float32(graph) is graph


def test_made_tensors_are_float32_too() -> None:
    """Attributes that hold a type or a value of another float are changed."""
    x, shape = np.ones(3, np.float64), np.array([3], np.int64)
    steps: list[Step] = [
        ("ConstantOfShape", "shape", "c", {"value": np.array([2.5], np.float64)}), ("Mul", "x c", "y", {}),
    ]  # fmt: skip
    forced = force_float32(graph_of(steps, {"x": x}, ("y",), {"shape": shape}))
    assert set(dtypes(simplify(forced, evaluate)).values()) == {"float32", "float64"}
    np.testing.assert_array_equal(run_graph(forced, {"x": x})[0], x * 2.5)


def test_edges_that_touch_keep_their_types() -> None:
    """An output that is an input or a constant, and values that are read both inside and outside."""
    x, c = np.arange(3.0), np.array([1.0, 2.0, 3.0])
    steps: list[Step] = [("Add", "x c", "s", {}), ("Neg", "s", "n", {})]
    graph = graph_of(steps, {"x": x}, ("x", "c", "s", "n"), {"c": c})
    found = run_graph(force_float32(graph), {"x": x})
    assert [array.dtype.name for array in found] == ["float64"] * 4
    for actual, expected in zip(found, (x, c, x + c, -x - c), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_nodes_with_graphs_of_their_own_keep_their_types() -> None:
    """An If is called with the types that its branches were written for."""
    branches = [
        helper.make_graph([helper.make_node(op, ["a"], ["r"])], op, [],
                          [helper.make_tensor_value_info("r", TensorProto.DOUBLE, (3,))])
        for op in ("Exp", "Neg")
    ]  # fmt: skip
    proto = helper.make_node("If", ["cond"], ["b"], then_branch=branches[0], else_branch=branches[1])
    attrs = {"captures": ("a",), "opset": 21}
    double, flag = TensorType("float64", (3,)), TensorType("bool", ())
    nodes = (
        Node("Sqrt", ("x",), ("a",), {}, "sqrt"),
        Node("If", ("cond", "a"), ("b",), attrs, "if", proto=proto.SerializeToString()),
        Node("Abs", ("b",), ("y",), {}, "abs"),
    )
    types = dict.fromkeys(("x", "a", "b", "y"), double) | {"cond": flag}
    forced = force_float32(Graph("g", nodes, ("x", "cond"), ("y",), types, {}))
    found = next(node for node in forced.nodes if node.op_type == "If")
    assert [forced.types[name].dtype for name in (*found.inputs, *found.outputs)] == ["bool", "float64", "float64"]
    x = np.array([1.0, 4.0, 9.0])
    np.testing.assert_allclose(run_graph(forced, {"x": x, "cond": np.array(False)})[0], np.sqrt(x))


def test_constants_stay_finite() -> None:
    """Masks of the least float64 do not become infinite; infinities and NaN stay; a filled tensor stays one number."""
    given = np.array([-1.7e308, 1.7e308, -np.inf, np.nan, 1.5])
    greatest = np.finfo(np.float32).max
    np.testing.assert_array_equal(in_float32(given), np.array([-greatest, greatest, -np.inf, np.nan, 1.5], np.float32))
    filled = in_float32(np.broadcast_to(np.float64(2.5), (1000, 1000)))
    assert (filled.shape, filled.strides, filled.dtype) == ((1000, 1000), (0, 0), np.float32)
