"""Convolutions in three dimensions run on the kernels of two, with ONNX Runtime's results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from kernels.one_operator import assert_same, check, on_kernels, program_of, random
from opbuild.program import KernelCall
from support.comparison import onnxruntime_outputs
from support.tiers import halved

CONVOLUTIONS: tuple[tuple[Sequence[int], Sequence[int], dict[str, Any]], ...] = (
    ((1, 3, 5, 6, 7), (4, 3, 3, 3, 3), {"pads": [1] * 6}),
    ((2, 20, 4, 5, 5), (18, 20, 2, 3, 1), {"strides": [2, 1, 2], "pads": [1, 0, 0, 0, 1, 0]}),
    ((1, 6, 7, 4, 4), (4, 6, 3, 1, 1), {"dilations": [2, 1, 1]}),
    ((1, 8, 4, 5, 5), (8, 1, 3, 3, 3), {"group": 8, "pads": [1] * 6}),
    ((1, 6, 4, 5, 5), (9, 2, 2, 2, 2), {"group": 3}),
    ((1, 5, 3, 4, 4), (7, 5, 1, 1, 1), {}),
    ((1, 2, 5, 5, 5), (3, 2, 3, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2, 2]}),
)

TRANSPOSED: tuple[tuple[Sequence[int], Sequence[int], dict[str, Any]], ...] = (
    ((1, 3, 3, 4, 5), (3, 2, 2, 2, 2), {"strides": [2, 2, 2]}),
    ((2, 4, 3, 3, 3), (4, 3, 3, 3, 3), {"strides": [2, 1, 2], "pads": [1] * 6, "output_padding": [1, 0, 1]}),
    ((1, 4, 3, 3, 3), (4, 3, 3, 2, 2), {"group": 2, "dilations": [2, 1, 1]}),
    ((1, 1, 3, 4, 5), (1, 2, 3, 3, 3), {}),
)


@halved
@pytest.mark.parametrize(("shape", "weights", "attrs"), CONVOLUTIONS)
@pytest.mark.parametrize("known", [(1,), ()])
def test_convolutions(
    shape: Sequence[int], weights: Sequence[int], attrs: dict[str, Any], known: Sequence[int]
) -> None:
    """With strides, dilations, padding and groups; weights may be given to the call."""
    check("Conv", [random(*shape), random(*weights, seed=1), random(weights[0], seed=2)], known, **attrs)


@halved
@pytest.mark.parametrize(("shape", "weights", "attrs"), TRANSPOSED)
@pytest.mark.parametrize("known", [(1,), ()])
def test_transposed_convolutions(
    shape: Sequence[int], weights: Sequence[int], attrs: dict[str, Any], known: Sequence[int]
) -> None:
    """Phase by phase in depth, too."""
    channels = weights[1] * attrs.get("group", 1)
    check("ConvTranspose", [random(*shape), random(*weights, seed=1), random(channels, seed=2)], known, **attrs)


def test_a_network_of_them_fuses_normalization_and_activation() -> None:
    """What follows a convolution is computed with it, as in two dimensions."""
    weights = {
        "w1": random(8, 3, 3, 3, 3, seed=1), "w2": random(5, 8, 3, 3, 3, seed=2), "s": random(8, seed=3),
        "b": random(8, seed=4), "m": random(8, seed=5), "v": np.abs(random(8, seed=6)) + np.float32(0.5),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1] * 6),
        helper.make_node("BatchNormalization", ["a", "s", "b", "m", "v"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "w2"], ["e"], strides=[2, 2, 2]),
        helper.make_node("LeakyRelu", ["e"], ["y"], alpha=0.1),
    ]
    x = random(1, 3, 5, 7, 7)
    ports = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)]
    known = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "deep", ports, [helper.make_empty_tensor_value_info("y")], known)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    families = [call.desc.family for call in program_of(model).calls if isinstance(call, KernelCall)]
    assert "elementwise" not in families
    assert_same(on_kernels(model, {"x": x})[0], onnxruntime_outputs(model, {"x": x})[0], 1e-4)
