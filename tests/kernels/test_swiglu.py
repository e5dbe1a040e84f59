"""SwiGLU, the gate of Llama's feed-forward layers, as a kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import opbuild
from support.tiers import halved

pytestmark = pytest.mark.usefixtures("kept_objects")


@halved
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("alpha", [None, 1.702])
def test_a_gated_layer_runs_on_kernels_alone(dtype: str, alpha: float | None, tmp_path: Path) -> None:
    """It ran on the host, by onnx's reference evaluator; the value's bias and the residual are fused with it."""
    rng = np.random.default_rng(1)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    attrs = {} if alpha is None else {"alpha": alpha}
    nodes = [
        helper.make_node("Add", ["value", "bias"], ["biased"]),
        helper.make_node("SwiGLU", ["gate", "biased"], ["gated"], **attrs),
        helper.make_node("Add", ["gated", "gate"], ["y"]),
    ]
    shape = (3, 40)
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name in ("gate", "value")]
    bias = numpy_helper.from_array(rng.standard_normal(40).astype(dtype), "bias")
    outputs = [helper.make_tensor_value_info("y", kind, shape)]
    graph = helper.make_graph(nodes, "gated layer", inputs, outputs, [bias])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 28)])
    feeds = {name: rng.normal(0, 4, shape).astype(dtype) for name in ("gate", "value")}
    network = opbuild.compile(model, cache_path=tmp_path, num_threads=1)
    assert not network.report.host
    assert [operator.name.rsplit("_", 2)[0] for operator in network.report.operators] == ["add_swiglu_add"]
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    tolerance = {"float16": 1e-2, "float32": 1e-5, "float64": 1e-6}[dtype]
    np.testing.assert_allclose(network.run(feeds)["y"], expected, tolerance, tolerance)
