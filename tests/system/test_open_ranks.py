"""Inputs of which a model does not say how many dimensions they have: each number is bound when a call brings it."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opbuild
from opbuild.cli.main import main
from support.fuzzing import CAMPAIGN, SEED

pytestmark = pytest.mark.usefixtures("kept_objects")

CALLS = CAMPAIGN or 12
"""Calls of each network, of random ranks and sizes."""

NODES = {
    "Relu": lambda x: np.maximum(x, 0),
    "Softmax": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    "ReduceSum": lambda x: x.sum(keepdims=True).reshape((1,) * x.ndim),
    "Flatten": lambda x: x.reshape(x.shape[0], -1),
}


def model_of(op_type: str) -> onnx.ModelProto:
    """Return a model of an operator that says nothing of its input but that it has floats."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    graph = helper.make_graph([helper.make_node(op_type, ["x"], ["y"], "node")], "any", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.slow
@pytest.mark.parametrize("op_type", NODES)
def test_each_rank_is_bound_by_the_call_that_brings_it(op_type: str, tmp_path: Path) -> None:
    """Ranks come in any order and again; a second process, or network, finds what the first one stored."""
    draw, made = random.Random(SEED), np.random.default_rng(SEED)
    nets = [opbuild.compile(model_of(op_type), cache_path=tmp_path, num_threads=1) for _ in range(2)]
    (port,) = nets[0].inputs
    assert port.shape is None
    assert "float32[...]" in repr(nets[0])
    for number in range(CALLS):
        x = made.standard_normal([draw.randint(1, 5) for _ in range(draw.randint(1, 4))]).astype(np.float32)
        np.testing.assert_allclose(nets[number % 2](x), NODES[op_type](x), 1e-5, 1e-6)


def test_a_rank_that_a_node_does_not_take_is_refused_and_others_go_on(tmp_path: Path) -> None:
    """The error names the node, and the network is callable again."""
    graph = model_of("Relu")
    graph.graph.node[0].CopyFrom(helper.make_node("Transpose", ["x"], ["y"], "turn", perm=[1, 0]))
    net = opbuild.compile(graph, cache_path=tmp_path, num_threads=1)
    with pytest.raises(opbuild.errors.ModelError, match="Transpose node 'turn'"):
        net(np.ones((2, 3, 4), np.float32))
    assert net(np.ones((2, 3), np.float32)).shape == (3, 2)


def test_a_command_needs_a_shape_or_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It draws no data of an unknown rank; data have one."""
    onnx.save(model_of("Relu"), tmp_path / "any.onnx")
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    options = ["--cache_path", str(tmp_path)]
    assert main(["run", str(tmp_path / "any.onnx"), *options]) == 2
    assert "input 'x' may have any rank" in capsys.readouterr().err
    assert main(["run", str(tmp_path / "any.onnx"), *options, "--input", str(tmp_path / "x.npy")]) == 0
    assert "float32[2,3]" in capsys.readouterr().out
