"""QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear as kernels: every form of scale, every kind of number."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from kernels.small_models import Array, assert_as_onnxruntime, families_of, model_of, program_of, run_model
from support.tiers import halved

NARROW = ("uint8", "int8", "uint16", "int16")

HOSTILE = np.float32(
    [np.nan, np.inf, -np.inf, 3e9, -3e9, 3e38, -3e38, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 1e-40, -0.0, 127.5, 128.5, 254.5]
)
"""What is no number, what is far out of range, halves, which are rounded to even."""


def numbers(shape: tuple[int, ...]) -> Array:
    """Return hostile numbers in an order of their own for each row."""
    rng = np.random.default_rng(1)
    drawn = np.concatenate([HOSTILE, rng.normal(0, 300, 200).astype(np.float32)])
    return rng.permutation(np.resize(drawn, shape).reshape(-1)).reshape(shape)


def every(dtype: str, shape: tuple[int, ...]) -> Array:
    """Return integers, the least and the greatest of the type among them."""
    info = np.iinfo(dtype)
    drawn = np.random.default_rng(2).integers(info.min, info.max, shape, dtype, endpoint=True)
    drawn.reshape(-1)[:2] = info.min, info.max
    return drawn


FORMS: dict[str, tuple[tuple[int, ...], dict[str, int]]] = {
    "one": ((), {}),
    "axis": ((5,), {"axis": -2}),
    "blocks": ((3, 5, 4), {"axis": -1, "block_size": 8}),
    "a short block": ((3, 2, 32), {"axis": 1, "block_size": 3}),
}
"""Shapes of the scale of a value of shape (3, 5, 32), with attributes."""


@halved
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", NARROW)
def test_quantizing_is_as_in_onnx_runtime(dtype: str, form: str) -> None:
    """Halves to even, beyond the range to its end, NaN to the least number."""
    shape, attrs = FORMS[form]
    rng = np.random.default_rng(3)
    feeds = {"x": numbers((3, 5, 32))}
    known = {"scale": rng.choice(np.float32([1, 0.5, 3]), shape), "zero": rng.integers(0, 99, shape).astype(dtype)}
    node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"], **attrs)
    assert_as_onnxruntime(model_of([node], feeds, {"y": dtype}, known), feeds)


@pytest.mark.parametrize("form", FORMS)
def test_scales_and_zero_points_may_be_known_only_at_run_time(form: str) -> None:
    """They are operands of the kernels: nothing is computed when the network is built."""
    shape, attrs = FORMS[form]
    rng = np.random.default_rng(4)
    feeds = {"scale": rng.choice(np.float32([1, 0.5, 3]), shape), "zero": rng.integers(0, 99, shape).astype("uint8")}
    values = {"x": numbers((3, 5, 32)), "q": every("uint8", (3, 5, 32))}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"], **attrs),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["z"], **attrs),
    ]
    assert_as_onnxruntime(model_of(nodes, {**values, **feeds}, {"y": "uint8", "z": "float32"}), {**values, **feeds})


@halved
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [*NARROW, "int32"])
def test_dequantizing_is_as_in_onnx_runtime(dtype: str, form: str) -> None:
    """The least and the greatest number of each type; differences of int32 wrap."""
    shape, attrs = FORMS[form]
    rng = np.random.default_rng(5)
    feeds = {"x": every(dtype, (3, 5, 32))}
    zero = np.zeros(shape, dtype) if dtype == "int32" else rng.integers(0, 99, shape).astype(dtype)
    known = {"scale": rng.uniform(0.01, 3, shape).astype(np.float32), "zero": zero}
    node = helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["y"], **attrs)
    assert_as_onnxruntime(model_of([node], feeds, {"y": "float32"}, known), feeds)


def test_halves_are_quantized_and_dequantized_by_way_of_float32() -> None:
    """As in ONNX Runtime: the quotient of two float16 numbers is not rounded to float16 first."""
    feeds = {"x": np.arange(0, 60, 0.013).astype(np.float16), "q": every("int8", (70,))}
    known = {"scale": np.float16(0.3), "zero": np.int8(-3)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["z"]),
    ]
    assert_as_onnxruntime(model_of(nodes, feeds, {"y": "int8", "z": "float16"}, known), feeds)


def test_absent_zero_points_are_zero() -> None:
    """``output_dtype`` says what is made."""
    feeds = {"x": numbers((70,))}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale"], ["y"], output_dtype=onnx.TensorProto.INT16),
        helper.make_node("DequantizeLinear", ["y", "scale"], ["z"]),
    ]
    model = model_of(nodes, feeds, {"y": "int16", "z": "float32"}, {"scale": np.float32(0.25)})
    assert_as_onnxruntime(model, feeds)


SMALL = ("INT4", "UINT4", "INT2", "UINT2", "FLOAT8E4M3FN", "FLOAT8E5M2", "FLOAT4E2M1")


@pytest.mark.parametrize("kind", SMALL)
def test_types_of_few_bits_are_quantized_and_dequantized(kind: str) -> None:
    """As onnx's reference evaluator does, which for these types is what there is."""
    feeds = {"x": np.float32([0, 0.5, 1.5, 2.5, -0.5, -1.5, 3, -3, 5, 7.4, -9, 200, -200, 1e5, -1e5] * 3)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale"], ["q"], output_dtype=getattr(onnx.TensorProto, kind)),
        helper.make_node("DequantizeLinear", ["q", "scale"], ["y"]),
    ]
    model = model_of(nodes, feeds, {"y": "float32"}, {"scale": np.float32(0.5)}, opset=25)
    assert set(families_of(program_of(model))) == {"elementwise"}
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_array_equal(run_model(model, feeds)["y"], expected)


def test_quantization_fuses_with_its_neighbours() -> None:
    """What lies between two quantised values is one kernel."""
    feeds = {"a": every("uint8", (5, 40)), "b": every("int8", (5, 40))}
    known = {"s": np.float32(0.03), "z": np.uint8(9), "n": np.int8(-9)}
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "s", "z"], ["x"]),
        helper.make_node("DequantizeLinear", ["b", "s", "n"], ["w"]),
        helper.make_node("Add", ["x", "w"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    model = model_of(nodes, feeds, {"y": "uint8"}, known)
    assert families_of(program_of(model)) == ["elementwise"]
    assert_as_onnxruntime(model, feeds)


RANGES = {
    "both signs": [-1, 5, 2.5],
    "above": [3, 4],
    "below": [-3, -4, -0.1],
    "zeros": [0, 0, -0.0],
    "one": [7],
    "infinite": [np.inf, 1, 0],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RANGES)
def test_the_range_of_the_values_decides_how_they_are_quantized(name: str) -> None:
    """0 belongs to the range, whose scale is 1 if it has nothing else."""
    x = np.resize(np.float32(RANGES[name]), (1 if name == "one" else 3, 31))
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    model = model_of([node], {"x": x}, {"y": "uint8", "scale": "float32", "zero": "uint8"})
    assert_as_onnxruntime(model, {"x": x})


def test_nothing_is_quantized_to_nothing() -> None:
    """A value without elements has kernels too, where a scale is given."""
    feeds = {"x": np.zeros((0, 4), np.float32)}
    node = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["y"], axis=1)
    known = {"scale": np.ones(4, np.float32), "zero": np.zeros(4, np.uint8)}
    assert run_model(model_of([node], feeds, {"y": "uint8"}, known), feeds)["y"].shape == (0, 4)
