"""Outputs that are one value under several names, inputs, or constants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from generated.ways import every_way
from support.comparison import Array, onnxruntime_outputs
from support.tiers import few

X = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
C = np.arange(16, dtype=np.float32).reshape(2, 8)
CONSTANTS = {"c": C, "flat": np.int64([16]), "zero": np.int64([0])}


def node(op_type: str, inputs: str, output: str, **attrs: object) -> onnx.NodeProto:
    """Return a node; inputs are separated by spaces."""
    return helper.make_node(op_type, inputs.split(), [output], **attrs)


def network(nodes: Sequence[onnx.NodeProto], outputs: str) -> onnx.ModelProto:
    """Return a model of one input ``x``; outputs are separated by spaces, ``:bool`` after those of that type."""
    values = []
    for output in outputs.split():
        name, _, kind = output.partition(":")
        values.append(helper.make_tensor_value_info(name, TensorProto.BOOL if kind else TensorProto.FLOAT, None))
    read = {name for each in nodes for name in each.input} | {value.name for value in values}
    read -= {name for each in nodes for name in each.output}
    graph = helper.make_graph(
        nodes,
        "shared_outputs",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        values,
        [numpy_helper.from_array(value, name) for name, value in CONSTANTS.items() if name in read],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


A = node("Relu", "x", "a")
NETWORKS = {
    "identity": network([A, node("Identity", "a", "b")], "a b"),
    "identity first": network([A, node("Identity", "a", "b")], "b a"),
    "dropout": network([node("Sigmoid", "x", "a"), node("Dropout", "a", "b")], "a b"),
    "two of one value": network([A, node("Identity", "a", "b"), node("Identity", "a", "c")], "b c"),
    "of a bool": network([node("IsNaN", "x", "a"), node("Identity", "a", "b")], "a:bool b:bool"),
    "cast to its own type": network([A, node("Cast", "a", "b", to=1)], "a b"),
    "flatten": network([node("Softmax", "x", "a"), node("Flatten", "a", "b")], "a b"),
    "reshape": network([A, node("Reshape", "a flat", "b"), node("Flatten", "b", "c", axis=0)], "c b a"),
    "unsqueeze and transpose": network(
        [A, node("Unsqueeze", "a zero", "b"), node("Transpose", "b", "c", perm=[1, 0, 2])], "c b a"
    ),
    "one name twice": network([A], "a a"),
    "one name twice, of a constant": network([], "c c"),
    "an input": network([A], "x a"),
    "an input alone": network([], "x"),
    "an input under two names": network([node("Identity", "x", "y")], "y x y"),
    "a constant": network([A], "c a"),
    "a constant under two names": network([A, node("Identity", "c", "d")], "c a d"),
    "a folded constant that a node reads": network([node("Neg", "c", "d"), node("Add", "x d", "a")], "d a"),
    "a constant that a node reads": network([node("Add", "x c", "a")], "c a"),
    "a folded constant under two names": network(
        [node("Neg", "c", "d"), node("Identity", "d", "e"), node("Add", "x e", "a")], "d e a"
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that all cases share."""
    return tmp_path_factory.mktemp("shared_outputs")


@pytest.mark.slow
@pytest.mark.parametrize("name", few(NETWORKS, 5))
def test_each_output_is_written_whatever_it_shares(name: str, folder: Path) -> None:
    """Two outputs had one buffer: one of them was written, the other was whatever memory held (F81).

    A name that is twice among the outputs, and an output that is an input, were refused; a folded constant that was an
    output and an operand too was a ``KeyError``.
    """
    expected = onnxruntime_outputs(NETWORKS[name], {"x": X})
    for way, results in every_way(NETWORKS[name], {"x": X}, folder).items():
        assert len(results) == len(expected)
        for got, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6, err_msg=way)


def test_outputs_do_not_share_memory(folder: Path) -> None:
    """Who changes one output in place changes no other, and not the input."""

    def copies(results: Sequence[Array]) -> bool:
        return not any(np.shares_memory(one, other) for i, one in enumerate(results) for other in results[:i])

    x = X.copy()
    for name in ("identity", "an input under two names", "one name twice"):
        for results in every_way(NETWORKS[name], {"x": x}, folder).values():
            assert copies([*results, x])
