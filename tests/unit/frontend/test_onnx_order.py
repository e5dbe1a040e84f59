"""Models whose nodes are out of order are read all the same, and circles are refused."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from generated.base_models import small_networks
from opbuild.backend.evaluate import evaluate
from opbuild.errors import InvalidModelError
from opbuild.frontend.onnx_model import load_model
from opbuild.frontend.onnx_node import in_order
from support.walk_runner import WalkRunner

FLOAT = TensorProto.FLOAT
node = helper.make_node


def model(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str] = ("y",), **more: object) -> onnx.ModelProto:
    """Return a model from x to some outputs."""
    inputs = [
        helper.make_tensor_value_info("x", FLOAT, [2, 3]),
        helper.make_tensor_value_info("t", TensorProto.BOOL, []),
    ]
    graph = helper.make_graph(list(nodes), "g", inputs, [helper.make_empty_tensor_value_info(name) for name in outputs])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9, **more)


def branch(*nodes: onnx.NodeProto) -> onnx.GraphProto:
    """Return a graph whose output is ``out``."""
    return helper.make_graph(list(nodes), "branch", [], [helper.make_empty_tensor_value_info("out")])


def op_types(proto: onnx.ModelProto) -> list[str]:
    """Return the operators of the graph that a model binds to."""
    return [each.op_type for each in load_model(proto).bind({}, evaluate).nodes]


def test_nodes_at_the_end_of_a_model_are_moved_before_what_reads_them() -> None:
    """Onnxruntime's float16 converter appends its Casts; it was "which nothing before it assigns"."""
    converted = model([node("Relu", ["c"], ["y"]), node("Neg", ["r"], ["c"]), node("Abs", ["x"], ["r"])])
    assert op_types(converted) == ["Abs", "Neg", "Relu"]
    assert [each.op_type for each in converted.graph.node] == ["Relu", "Neg", "Abs"]  # the caller's model is as it was


def test_a_model_in_order_is_not_copied() -> None:
    """And what could stand anywhere keeps to its order."""
    ordered = model([node("Relu", ["x"], ["a"]), node("Neg", ["x"], ["b"]), node("Add", ["a", "b"], ["y"])])
    assert in_order(ordered) is ordered
    swapped = model([node("Add", ["a", "b"], ["y"]), node("Relu", ["x"], ["a"]), node("Neg", ["x"], ["b"])])
    assert op_types(swapped) == ["Relu", "Neg", "Add"]


def test_branches_and_functions_are_put_in_order_too() -> None:
    """The branches of an If whose condition is known only at run time, a function, and what they read from outside."""
    body = branch(node("Abs", ["i"], ["out"]), node("Neg", ["later"], ["i"]))
    both = {"then_branch": body, "else_branch": branch(node("Exp", ["later"], ["out"]))}
    late = [node("If", ["t"], ["y"], **both), node("Relu", ["x"], ["later"])]
    x = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)
    run = WalkRunner(model(late))
    np.testing.assert_array_equal(run(x=x, t=np.array(True))[0], np.maximum(x, 0))
    np.testing.assert_allclose(run(x=x, t=np.array(False))[0], np.exp(np.maximum(x, 0)), rtol=1e-6)
    function = helper.make_function(
        "own", "F", ["i"], ["o"], [node("Abs", ["a"], ["o"]), node("Neg", ["i"], ["a"])], [helper.make_opsetid("", 20)]
    )
    assert op_types(model([node("F", ["x"], ["y"], domain="own")], functions=[function])) == ["Neg", "Abs"]


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_nodes_gives_the_same_network(seed: int) -> None:
    """Every small network that is bound whole, with its nodes shuffled, binds to as many nodes as before."""
    whole = [base for base in small_networks() if load_model(base.model).walk({}, evaluate).follows is None]
    assert len(whole) >= 5
    for base in whole:
        shuffled = onnx.ModelProto()
        shuffled.CopyFrom(base.model)
        nodes = list(base.model.graph.node)
        random.Random(seed).shuffle(nodes)
        del shuffled.graph.node[:]
        shuffled.graph.node.extend(nodes)
        assert sorted(op_types(shuffled)) == sorted(op_types(base.model)), base.name


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([node("Relu", ["y"], ["y"], "self")], ["node 'self' reads its own output"]),
        (
            [node("Relu", ["b"], ["y"], "one"), node("Neg", ["y"], ["b"], "two"), node("Abs", ["x"], ["c"], "three")],
            ["'one'", "'two'", "in a circle"],
        ),
        (
            [node("If", ["t"], ["y"], "if", then_branch=branch(node("Abs", ["y"], ["out"])),
                  else_branch=branch(node("Abs", ["x"], ["out"])))],
            ["'if' reads its own output"],
        ),
    ],
)  # fmt: skip
def test_a_circle_is_an_error_that_names_its_nodes(nodes: list[onnx.NodeProto], words: list[str]) -> None:
    """Also through a branch; what stands outside the circle is not named."""
    with pytest.raises(InvalidModelError) as caught:
        load_model(model(nodes))
    assert all(word in str(caught.value) for word in words)
    assert "three" not in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])],
        [node("Relu", ["x"], ["x"]), node("Neg", ["x"], ["y"])],
    ],
)
def test_a_name_that_is_assigned_twice_is_refused(nodes: list[onnx.NodeProto]) -> None:
    """By two nodes, or by a node and as an input; which of the two a reader means nobody can know."""
    with pytest.raises(InvalidModelError, match="assign"):
        load_model(model(nodes))


def test_inputs_declared_twice_or_without_a_name_are_refused() -> None:
    """Arrays are given by name."""
    for name in ("x", ""):
        proto = model([node("Relu", ["x"], ["y"])])
        proto.graph.input.append(helper.make_tensor_value_info(name, FLOAT, [1]))
        with pytest.raises(InvalidModelError, match="input"):
            load_model(proto)


def test_inputs_constants_and_values_read_elsewhere_may_be_outputs_and_twice_so() -> None:
    """A constant that was folded, is an output and feeds another node was a KeyError; an input was refused."""
    nodes = [node("Neg", ["c"], ["d"]), node("Add", ["x", "d"], ["y"]), node("Identity", ["y"], ["z"])]
    proto = model(nodes, ["x", "c", "d", "y", "y", "z", "x", "z"])
    proto.graph.initializer.append(helper.make_tensor("c", FLOAT, [3], [1.0, 2.0, 3.0]))
    graph = load_model(proto).bind({}, evaluate)
    assert graph.outputs == ("x", "c", "d", "y", "y", "z", "x", "z")
    assert all(name in graph.types for name in graph.outputs)
    assigned = [name for each in graph.nodes for name in each.outputs]
    assert sorted(assigned) == ["y", "z"]


def test_an_output_keeps_its_name_though_a_value_inside_a_branch_has_it() -> None:
    """The one inside gets another."""
    inside = branch(node("Neg", ["x"], ["z"]), node("Abs", ["z"], ["out"]))
    nodes = [
        node("Constant", [], ["yes"], value=helper.make_tensor("v", TensorProto.BOOL, [], [True])),
        node("If", ["yes"], ["a"], then_branch=inside, else_branch=inside),
        node("Relu", ["a"], ["y"]),
        node("Identity", ["y"], ["z"]),
    ]
    graph = load_model(model(nodes, ["z", "y"])).bind({}, evaluate)
    producers = graph.producers()
    assert [producers["z"].op_type, producers["y"].op_type] == ["Identity", "Relu"]
    assert sorted(each.op_type for each in graph.nodes) == ["Abs", "Identity", "Neg", "Relu"]
