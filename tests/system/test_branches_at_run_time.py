"""Branches that are chosen when a network runs: built, and started from the store again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.backend.evaluate import evaluate
from opbuild.errors import UnsupportedOperatorError
from opbuild.frontend.onnx_model import load_model

pytestmark = pytest.mark.usefixtures("kept_objects")


def branch(name: str, op_type: str) -> onnx.GraphProto:
    """Return a graph of one node that reads ``k`` and ``x`` from outside."""
    value = helper.make_empty_tensor_value_info(name)
    return helper.make_graph([helper.make_node(op_type, ["x", "k"], [name])], name, [], [value])


def test_a_network_with_a_branch_starts_from_its_image(tmp_path: Path) -> None:
    """Values that a branch reads from outside are stored: without them the second start failed at its first call.

    The number that it reads has no dimensions, with which typing the branch failed.
    """
    graph = helper.make_graph(
        [helper.make_node("If", ["t"], ["y"], then_branch=branch("a", "Add"), else_branch=branch("b", "Sub"))],
        "g",
        [helper.make_tensor_value_info("t", TensorProto.BOOL, []), helper.make_tensor_value_info("x", 1, [3])],
        [helper.make_tensor_value_info("y", 1, [3])],
        [numpy_helper.from_array(np.asarray(np.float32(1)), "k")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString()
    x = np.float32([5, 5, 5])
    for forbid_compile in (False, True):
        network = opbuild.compile(model, cache_path=tmp_path, forbid_compile=forbid_compile)
        assert network.report.image == forbid_compile
        np.testing.assert_array_equal(network(np.bool_(True), x), [6, 6, 6])
        np.testing.assert_array_equal(network(np.bool_(False), x), [4, 4, 4])


@pytest.mark.parametrize("turns", [3, 2**40, None])
@pytest.mark.parametrize("nested", [False, True])
def test_a_loop_of_constants_is_not_waited_for(turns: int | None, nested: bool) -> None:
    """One of 2^40 turns, or of as many as its condition says, was evaluated while the network was built."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["again"]), helper.make_node("Add", ["s", "s"], ["sum"])],
        "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("s", 1, [2])],
        [info("again", TensorProto.BOOL, []), info("sum", 1, [2])],
    )
    known = {"yes": np.bool_(True), "k": np.float32([1, 1])}
    known |= {} if turns is None else {"turns": np.int64(turns)}
    loop = helper.make_node("Loop", ["" if turns is None else "turns", "yes", "k"], ["r"], "loop", body=body)
    if nested:
        inside = helper.make_graph([loop], "inside", [], [info("r", 1, [2])])
        loop = helper.make_node("If", ["yes"], ["r"], "if", then_branch=inside, else_branch=inside)
    graph = helper.make_graph(
        [loop, helper.make_node("Add", ["r", "x"], ["y"])],
        "g",
        [info("x", 1, [2])],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in known.items()],
    )
    loaded = load_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))
    if turns == 3:
        (folded,) = (value for name, value in loaded.bind({}, evaluate).constants.items() if name == "r")
        np.testing.assert_array_equal(folded, [8, 8])
    else:
        with pytest.raises(UnsupportedOperatorError, match="'loop'"):  # onnx does not type what a loop carries
            loaded.bind({}, evaluate)
