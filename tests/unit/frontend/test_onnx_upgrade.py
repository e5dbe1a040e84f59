"""Models of older operator sets give the results that the reference evaluator gives for the original."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from opbuild.backend.host.evaluate import evaluate
from opbuild.errors import ModelError, UnsupportedOperatorError
from opbuild.frontend.onnx_model import load_model
from support.graph_runner import run_graph

RNG = np.random.default_rng(5)
X = RNG.standard_normal((2, 3, 4, 5)).astype(np.float32)
SCALES = np.array([1, 1, 2, 2], np.float32)


def model(
    opset: int, op_type: str, inputs: list[np.ndarray[Any, Any]], outputs: int = 1, **attrs: object
) -> onnx.ModelProto:
    """Return a model of one node: the first input is fed, the others are initializers."""
    names = [f"in{index}" if value is not None else "" for index, value in enumerate(inputs)]
    results = [f"out{index}" for index in range(outputs)]
    node = helper.make_node(op_type, names, results, "node", **attrs)
    dtype = helper.np_dtype_to_tensor_dtype(inputs[0].dtype)
    fed = helper.make_tensor_value_info("in0", dtype, inputs[0].shape)
    known = [numpy_helper.from_array(value, name) for name, value in zip(names[1:], inputs[1:], strict=True)]
    graph = helper.make_graph([node], "g", [fed], [helper.make_empty_tensor_value_info(n) for n in results], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4)


CASES: list[tuple[int, str, list[Any], int, dict[str, Any]]] = [
    *[(opset, op, [X], 1, {"axis": axis}) for op in ("Softmax", "LogSoftmax") for opset, axis in ((13, 1), (18, -1))],
    (11, "Clip", [X], 1, {}),
    (10, "Slice", [X, np.array([1]), np.array([3]), np.array([2])], 1, {}),
    (9, "Slice", [X], 1, {"starts": [0, -3], "ends": [1, 9], "axes": [1, 3]}),
    (11, "Squeeze", [X[:1]], 1, {"axes": [0]}),
    (11, "Unsqueeze", [X], 1, {"axes": [0, -1]}),
    (11, "ReduceSum", [X], 1, {"axes": [1, -1], "keepdims": 0}),
    (12, "ReduceMean", [X], 1, {"axes": [2]}),
    (17, "ReduceMax", [X], 1, {"axes": [0]}),
    (13, "ReduceL2", [X], 1, {}),
    (11, "Split", [X], 2, {"axis": 2}),
    (11, "Split", [X], 2, {"axis": 3, "split": [1, 4]}),
    (13, "Split", [X, np.array([3, 2])], 2, {"axis": 3}),
    (13, "Split", [X], 2, {"axis": 2}),
    (10, "TopK", [X, np.array([2])], 2, {"axis": -1}),
    (7, "Dropout", [X], 1, {"ratio": 0.5}),
    (10, "Dropout", [X], 1, {}),
]


@pytest.mark.parametrize(("opset", "op_type", "inputs", "outputs", "attrs"), CASES)
def test_an_older_operator_gives_what_the_reference_gives(
    opset: int, op_type: str, inputs: list[Any], outputs: int, attrs: dict[str, Any]
) -> None:
    """Attributes that became inputs, and defaults that changed, are carried over."""
    original = model(opset, op_type, inputs, outputs, **attrs)
    wanted = ReferenceEvaluator(original).run(None, {"in0": inputs[0]})
    graph = load_model(original).bind({}, evaluate)
    got = run_graph(graph, {"in0": inputs[0]})
    assert graph.opset == onnx.defs.onnx_opset_version()
    for each, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(each, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1, 2, 3, -2])
def test_softmax_before_opset_13_runs_over_all_trailing_dimensions(op_type: str, axis: int) -> None:
    """Its input was coerced to a matrix; the reference evaluator itself gets this wrong, so numpy is the reference."""
    rows = X.reshape(int(np.prod(X.shape[: axis % 4])), -1)
    powers = np.exp(rows - rows.max(1, keepdims=True))
    wanted = {
        "Softmax": powers / powers.sum(1, keepdims=True),
        "LogSoftmax": np.log(powers / powers.sum(1, keepdims=True)),
        "Hardmax": (rows == rows.max(1, keepdims=True)).astype(np.float32),
    }[op_type]
    graph = load_model(model(11, op_type, [X], axis=axis)).bind({}, evaluate)
    np.testing.assert_allclose(run_graph(graph, {"in0": X})[0], wanted.reshape(X.shape), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("opset", "attrs"), [(7, {"spatial": 1}), (9, {}), (14, {}), (15, {})])
def test_an_old_normalization_is_that_of_inference(opset: int, attrs: dict[str, int]) -> None:
    """The attributes of training go; the statistics are the given ones."""
    scale, bias, mean, variance = (RNG.uniform(0.5, 1, 3).astype(np.float32) for _ in range(4))
    graph = load_model(model(opset, "BatchNormalization", [X, scale, bias, mean, variance], **attrs)).bind({}, evaluate)
    column = (3, 1, 1)
    unit = (X - mean.reshape(column)) / np.sqrt(variance.reshape(column) + 1e-5)
    wanted = unit * scale.reshape(column) + bias.reshape(column)
    np.testing.assert_allclose(run_graph(graph, {"in0": X})[0], wanted, rtol=1e-5, atol=1e-6)


def test_bounds_of_an_old_clip_are_attributes() -> None:
    """``min`` and ``max`` became inputs in opset 11."""
    graph = load_model(model(7, "Clip", [X], min=-0.5, max=0.25)).bind({}, evaluate)
    np.testing.assert_array_equal(run_graph(graph, {"in0": X})[0], np.clip(X, np.float32(-0.5), np.float32(0.25)))


def test_pads_of_an_old_pad_are_attributes() -> None:
    """``pads`` and ``value`` became inputs in opset 11."""
    attrs = {"pads": [0, 0, 1, 0, 0, 0, 0, 2], "value": 3.0}
    graph = load_model(model(7, "Pad", [X], **attrs)).bind({}, evaluate)
    wanted = np.pad(X, ((0, 0), (0, 0), (1, 0), (0, 2)), constant_values=3)
    np.testing.assert_array_equal(run_graph(graph, {"in0": X})[0], wanted)


def test_k_of_an_old_top_k_is_an_attribute() -> None:
    """``k`` became an input in opset 10."""
    graph = load_model(model(7, "TopK", [X], 2, k=2)).bind({}, evaluate)
    values, _ = run_graph(graph, {"in0": X})
    np.testing.assert_array_equal(values, -np.sort(-X, -1)[..., :2])


@pytest.mark.parametrize("opset", [7, 9, 10])
def test_upsample_and_the_first_resize_repeat_the_nearest_element(opset: int) -> None:
    """Before opset 11 scales were an attribute or the second input, and coordinates asymmetric."""
    if opset == 7:
        old = model(7, "Upsample", [X], scales=SCALES.tolist(), mode="nearest")
    else:
        old = model(opset, "Upsample" if opset == 9 else "Resize", [X, SCALES], mode="nearest")
    graph = load_model(old).bind({}, evaluate)
    np.testing.assert_array_equal(run_graph(graph, {"in0": X})[0], X.repeat(2, 2).repeat(2, 3))


def test_group_normalization_of_opset_18_has_one_scale_a_group() -> None:
    """Since opset 21 scale and bias belong to channels."""
    x = RNG.standard_normal((2, 6, 3)).astype(np.float32)
    scale, bias = RNG.standard_normal((2, 2)).astype(np.float32)
    graph = load_model(model(18, "GroupNormalization", [x, scale, bias], num_groups=2)).bind({}, evaluate)
    rows = x.reshape(2, 2, -1).astype(np.float64)
    unit = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
    wanted = (unit * scale[:, None] + bias[:, None]).reshape(x.shape)
    np.testing.assert_allclose(run_graph(graph, {"in0": x})[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [1, 6, 7])
def test_a_normalization_by_position_becomes_elementwise_operators(opset: int) -> None:
    """``spatial=0`` has statistics for each position, which no newer operator has."""
    mean, scale, bias = (RNG.standard_normal(X.shape[1:]).astype(np.float32) for _ in range(3))
    variance = RNG.uniform(0.5, 1, X.shape[1:]).astype(np.float32)
    attrs = {"is_test": 1, "spatial": 0} | ({"consumed_inputs": [0, 0, 0, 1, 1]} if opset == 1 else {})
    attrs = {"spatial": 0} if opset == 7 else attrs
    graph = load_model(model(opset, "BatchNormalization", [X, scale, bias, mean, variance], **attrs)).bind({}, evaluate)
    wanted = (X - mean) / np.sqrt(variance + 1e-5) * scale + bias
    np.testing.assert_allclose(run_graph(graph, {"in0": X})[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("opset", "outputs", "attrs"), [(6, 1, {}), (6, 3, {"momentum": 0.75}), (9, 3, {})])
def test_an_old_normalization_in_training_uses_the_batch(opset: int, outputs: int, attrs: dict[str, Any]) -> None:
    """Without ``is_test`` a set before 7 trains, and later sets up to 13 do with more than one output."""
    scale, bias, mean, variance = (RNG.uniform(0.5, 1, 3).astype(np.float32) for _ in range(4))
    old = model(opset, "BatchNormalization", [X, scale, bias, mean, variance], outputs, **attrs)
    found = run_graph(load_model(old).bind({}, evaluate), {"in0": X})
    of_batch, spread, column = X.mean((0, 2, 3)), X.var((0, 2, 3)), (3, 1, 1)
    unit = (X - of_batch.reshape(column)) / np.sqrt(spread.reshape(column) + 1e-5)
    keep = attrs.get("momentum", 0.9)
    wanted = [
        unit * scale.reshape(column) + bias.reshape(column),
        mean * keep + of_batch * (1 - keep),
        variance * keep + spread * (1 - keep),
    ]
    for got, each in zip(found, wanted[:outputs], strict=True):
        np.testing.assert_allclose(got, each, rtol=1e-4, atol=1e-5)


def test_what_a_training_normalization_saves_for_gradients_is_refused() -> None:
    """Nobody but the training framework that wrote it knows what they are."""
    statistics = [np.ones(3, np.float32)] * 4
    with pytest.raises(UnsupportedOperatorError, match="node 'node' gives what training saves"):
        load_model(model(9, "BatchNormalization", [X, *statistics], 5)).bind({}, evaluate)


BEFORE_7: list[tuple[int, str, list[Any], dict[str, Any], Any]] = [
    (6, "Add", [X, X[0, :, :, 0]], {"broadcast": 1, "axis": 1}, X + X[0, :, :, :1]),
    (6, "Mul", [X, X[:, 0, 0, 0]], {"broadcast": 1, "axis": 0}, X * X[:, :1, :1, :1]),
    (1, "Sub", [X, X[0, 0, 0]], {"broadcast": 1, "consumed_inputs": [0, 0]}, X - X[0, 0, 0]),
    (6, "Div", [X, np.full((1, 1), 3, np.float32)], {"broadcast": 1, "axis": 2}, X / np.float32(3)),
    (6, "Pow", [np.abs(X), np.float32(2)], {"broadcast": 1}, X * X),
    (6, "Greater", [X, X[:, ::-1].copy()], {}, X[:, ::-1] < X),
    (6, "PRelu", [X, np.array([1, 2, 3], np.float32)], {}, np.where(X < 0, X * np.float32([[[1]], [[2]], [[3]]]), X)),
    (6, "PRelu", [X[0, :, :, 0].T.copy(), np.float32([1, 2, 3])], {},
     np.where(X[0, :, :, 0].T < 0, X[0, :, :, 0].T * np.float32([1, 2, 3]), X[0, :, :, 0].T)),
    (6, "Dropout", [X], {"is_test": 1, "ratio": 0.5}, X),
    (1, "Cast", [X], {"to": "INT32"}, X.astype(np.int32)),
    (5, "Cast", [X], {"to": "DOUBLE"}, X.astype(np.float64)),
    (1, "Concat", [X, X], {}, np.concatenate([X, X], 1)),
    (6, "Gemm", [X[0, 0], X[0, 1], X[0, 2, 0, :4].copy()], {"broadcast": 1, "transB": 1},
     X[0, 0] @ X[0, 1].T + X[0, 2, 0, :4]),
    (1, "Pad", [X], {"paddings": [0, 0, 1, 0, 0, 0, 0, 2], "value": 3.0},
     np.pad(X, ((0, 0), (0, 0), (1, 0), (0, 2)), constant_values=3)),
    (1, "Reshape", [X], {"shape": [0, -1]}, X.reshape(2, -1)),
    (1, "Relu", [X], {"consumed_inputs": [1]}, X.clip(0)),
    (1, "Selu", [X], {}, 1.0507 * np.where(X > 0, X, 1.6732 * np.expm1(X))),
    (5, "Tile", [X, np.int64(3), np.int64(2)], {}, np.tile(X, (1, 1, 3, 1))),
    (6, "Tile", [X, np.array([1, 2, 1, 1])], {}, np.tile(X, (1, 2, 1, 1))),
    (6, "Upsample", [X], {"height_scale": 2.0, "width_scale": 3.0}, X.repeat(2, 2).repeat(3, 3)),
    (1, "GlobalLpPool", [X], {"p": 2.0}, np.sqrt((X**2).sum((2, 3), keepdims=True))),
    (1, "Split", [X], {"axis": 3, "split": [5]}, X),
]  # fmt: skip
"""Calls of operator sets before 7: operator set, operator, inputs, attributes, and the result."""


@pytest.mark.parametrize(("opset", "op_type", "inputs", "attrs", "wanted"), BEFORE_7)
def test_an_operator_of_a_set_before_7_computes_what_its_text_says(
    opset: int, op_type: str, inputs: list[Any], attrs: dict[str, Any], wanted: Any
) -> None:
    """Operands were aligned at an axis, types named, sizes attributes; nothing else evaluates these sets."""
    arrays = [np.asarray(each) for each in inputs]
    graph = load_model(model(opset, op_type, arrays, **attrs)).bind({}, evaluate)
    (found,) = run_graph(graph, {"in0": arrays[0]})
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


WRONG_BEFORE_7: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("Add", [X, X[0, 0, 0]], {}, "does not broadcast"),
    ("Add", [X, X[0, :, 0, 0]], {"broadcast": 1}, "is not a part of"),
    ("Add", [X, X[0, 0]], {"broadcast": 1, "axis": 3}, "is not a part of"),
    ("Add", [X[0], X], {"broadcast": 1}, "is not a part of"),
    ("Dropout", [X], {"ratio": 0.5}, "training mode"),
    ("Cast", [X], {"to": "COMPLEX"}, "is no element type"),
    ("LpPool", [X], {"p": 1.5, "kernel_shape": [2, 2]}, "power 1.5"),
    ("Split", [X, np.float32([1, 1])], {"axis": 0}, "sizes as an input"),
]
"""Calls of operator set 1 (of 6 for what 1 has not) that are refused, and what the message says."""


@pytest.mark.parametrize(("op_type", "inputs", "attrs", "message"), WRONG_BEFORE_7)
def test_what_a_set_before_7_does_not_allow_is_refused(
    op_type: str, inputs: list[Any], attrs: dict[str, Any], message: str
) -> None:
    """Numpy's broadcasting would give something for operands that those sets do not align."""
    with pytest.raises(ModelError, match=f"'node'.*{message}"):
        load_model(model(1, op_type, inputs, **attrs)).bind({}, evaluate)
