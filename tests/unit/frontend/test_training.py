"""Optimizers of ``ai.onnx.preview.training`` run on kernels, by functions of opbuild's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from opbuild.backend.evaluate import evaluate
from opbuild.frontend.onnx_model import load_model
from support.graph_runner import run_graph
from support.lowered_decision import host_calls

RNG = np.random.default_rng(8)
DOMAIN = "ai.onnx.preview.training"
SHAPES = ((3, 2), (4,))

Arrays = list[Any]


def adagrad(rate: Any, step: int, x: Any, g: Any, h: Any) -> Arrays:
    """The text's formula, with decay 0.1, epsilon 1e-3 and regularisation 0.25."""
    slope = 0.25 * x + g
    h = h + slope * slope
    return [x - rate / (1 + step * 0.1) * slope / (np.sqrt(h) + 1e-3), h]


def adam(rate: Any, step: int, x: Any, g: Any, v: Any, h: Any) -> Arrays:
    """The text's formula, with the averages' shares 0.75 and 0.5, epsilon 1e-3, both regularisations 0.25."""
    slope = 0.25 * x + g
    v, h = 0.75 * v + 0.25 * slope, 0.5 * h + 0.5 * slope * slope
    rate = rate * np.sqrt(1 - 0.5**step) / (1 - 0.75**step) if step else rate
    return [(1 - 0.25) * (x - rate * v / (np.sqrt(h) + 1e-3)), v, h]


def momentum(rate: Any, step: int, x: Any, g: Any, v: Any) -> Arrays:
    """The text's formula, with the shares 0.75 and 0.5, and regularisation 0.25."""
    slope = 0.25 * x + g
    v = 0.75 * v + (0.5 if step else 1) * slope
    return [x - rate * v, v]


def nesterov(rate: Any, step: int, x: Any, g: Any, v: Any) -> Arrays:
    """The text's formula for the other mode."""
    slope = 0.25 * x + g
    v = 0.75 * v + (0.5 if step else 1) * slope
    return [x - rate * (slope + 0.75 * v), v]


SHARES = {"alpha": 0.75, "beta": 0.5, "norm_coefficient": 0.25}
CALLS: list[tuple[str, Any, int, dict[str, Any]]] = [
    ("Adagrad", adagrad, 3, {"decay_factor": 0.1, "epsilon": 1e-3, "norm_coefficient": 0.25}),
    ("Adam", adam, 4, {**SHARES, "epsilon": 1e-3, "norm_coefficient_post": 0.25}),
    ("Momentum", momentum, 3, {**SHARES, "mode": "standard"}),
    ("Momentum", nesterov, 3, {**SHARES, "mode": "nesterov"}),
]


@pytest.mark.parametrize("step", [0, 2])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("op_type", "formula", "kinds", "attrs"), CALLS)
def test_an_optimizer_takes_its_step_without_the_host(
    op_type: str, formula: Any, kinds: int, attrs: dict[str, Any], dtype: str, count: int, step: int
) -> None:
    """The first step, 0, is another than later ones; several tensors are optimized at once."""
    tensors = [[RNG.uniform(0.5, 2, shape).astype(dtype) for shape in SHAPES[:count]] for _ in range(kinds)]
    flat = [each for kind in tensors for each in kind]
    arrays = [np.array(0.125, np.float32), np.array(step, np.int64), *flat]
    names = [f"i{index}" for index in range(len(arrays))]
    results = [f"o{index}" for index in range(count * (kinds - 1))]
    node = helper.make_node(op_type, names, results, "step", domain=DOMAIN, **attrs)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in zip(names, arrays, strict=True)
    ]
    graph = helper.make_graph([node], "g", inputs, [helper.make_empty_tensor_value_info(name) for name in results])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    bound = load_model(model).bind({}, evaluate)
    assert host_calls(bound) == (0, 0)
    found = run_graph(bound, dict(zip(names, arrays, strict=True)))
    each = [formula(0.125, step, *(kind[i].astype("d") for kind in tensors)) for i in range(count)]
    wanted = [part[number] for number in range(kinds - 1) for part in each]
    for got, expected in zip(found, wanted, strict=True):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, expected, rtol=1e-5)
