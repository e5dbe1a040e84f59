"""Branches that are chosen when a network runs: built, and started from the store again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import opbuild


def branch(name: str, op_type: str) -> onnx.GraphProto:
    """Return a graph of one node that reads ``k`` and ``x`` from outside."""
    value = helper.make_empty_tensor_value_info(name)
    return helper.make_graph([helper.make_node(op_type, ["x", "k"], [name])], name, [], [value])


def test_a_network_with_a_branch_starts_from_its_image(tmp_path: Path) -> None:
    """What a branch reads from outside was not stored: the second start failed at its first call."""
    graph = helper.make_graph(
        [helper.make_node("If", ["t"], ["y"], then_branch=branch("a", "Add"), else_branch=branch("b", "Sub"))],
        "g",
        [helper.make_tensor_value_info("t", TensorProto.BOOL, []), helper.make_tensor_value_info("x", 1, [3])],
        [helper.make_tensor_value_info("y", 1, [3])],
        [numpy_helper.from_array(np.float32([1, 2, 3]), "k")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString()
    x = np.float32([5, 5, 5])
    for forbid_compile in (False, True):
        network = opbuild.compile(model, cache_path=tmp_path, forbid_compile=forbid_compile)
        assert network.report.image == forbid_compile
        np.testing.assert_array_equal(network(np.bool_(True), x), [6, 7, 8])
        np.testing.assert_array_equal(network(np.bool_(False), x), [4, 3, 2])
