"""Operators of com.microsoft on quantised numbers, and patterns of DequantizeLinear, as kernels on integers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from kernels.small_models import Array, assert_as_onnxruntime, families_of, model_of, program_of, run_model
from support.comparison import exact_weights, onnxruntime_outputs
from support.tiers import halved

MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(7)


def drawn(dtype: str, shape: tuple[int, ...]) -> Array:
    """Return random bytes, all that the type has and that ONNX Runtime multiplies exactly."""
    return exact_weights(RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True))


def scales(*shape: int) -> Array:
    """Return random scales."""
    return RNG.uniform(0.005, 0.02, shape).astype(np.float32)


@halved
@pytest.mark.parametrize("weights", ["uint8", "int8"])
@pytest.mark.parametrize("columns", [(), (37,)], ids=["one scale", "one a column"])
def test_a_product_to_float_with_zero_points_and_a_bias(weights: str, columns: tuple[int, ...]) -> None:
    """The int32 sum times both scales, plus the bias: equal to ONNX Runtime's to rounding."""
    feeds = {"a": drawn("uint8", (5, 66)), "sa": np.array(0.02, np.float32), "za": np.array(119, np.uint8)}
    known = {
        "b": drawn(weights, (66, 37)), "sb": scales(*columns), "zb": drawn(weights, columns),
        "bias": RNG.standard_normal(37).astype(np.float32),
    }  # fmt: skip
    node = helper.make_node("MatMulIntegerToFloat", ["a", "b", "sa", "sb", "za", "zb", "bias"], ["y"], domain=MICROSOFT)
    model = model_of([node], feeds, {"y": "float32"}, known)
    (expected,) = onnxruntime_outputs(model, feeds, optimized=False)
    np.testing.assert_allclose(run_model(model, feeds)["y"], expected, 1e-5, 1e-5)


@pytest.mark.slow
def test_a_product_that_quantizes_its_left_operand_by_its_range() -> None:
    """``DynamicQuantizeMatMul``; its zero point and bias may be absent."""
    feeds = {"x": RNG.standard_normal((2, 5, 66)).astype(np.float32)}
    known = {"b": drawn("int8", (66, 37)), "sb": scales(37), "bias": RNG.standard_normal(37).astype(np.float32)}
    nodes = [
        helper.make_node("DynamicQuantizeMatMul", ["x", "b", "sb", "", "bias"], ["y"], domain=MICROSOFT),
        helper.make_node("DynamicQuantizeMatMul", ["x", "b", "sb"], ["z"], domain=MICROSOFT),
    ]
    model = model_of(nodes, feeds, {"y": "float32", "z": "float32"}, known)
    expected = onnxruntime_outputs(model, feeds, optimized=False)
    found = run_model(model, feeds)
    for name, wanted in zip("yz", expected, strict=True):
        np.testing.assert_allclose(found[name], wanted, 1e-5, 1e-5)
    assert families_of(program_of(model)).count("reduce") == 4  # the range is found once for both


@halved
@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("result", ["uint8", "float32"])
def test_a_product_of_matrices_with_an_addend_in_int32(result: str, turned: int) -> None:
    """``QGemm`` with weights that are transposed or not, to bytes or to float32."""
    b = drawn("int8", (66, 37))
    feeds = {"a": drawn("uint8", (5, 66))}
    known = {
        "sa": np.float32(0.02), "za": np.uint8(119), "b": b.T.copy() if turned else b, "sb": scales(37),
        "zb": np.zeros(37, np.int8), "c": RNG.integers(-9999, 9999, 37, np.int32),
    }  # fmt: skip
    if result == "uint8":
        known |= {"sy": np.float32(0.7), "zy": np.uint8(118)}
    node = helper.make_node("QGemm", ["a", *known], ["y"], domain=MICROSOFT, transB=turned, alpha=0.5)
    model = model_of([node], feeds, {"y": result}, known)
    if result == "uint8":
        assert_as_onnxruntime(model, feeds)
        return
    (expected,) = onnxruntime_outputs(model, feeds, optimized=False)
    np.testing.assert_allclose(run_model(model, feeds)["y"], expected, 1e-5, 1e-5)


@halved
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
def test_sums_and_products_of_quantized_values(op_type: str, dtype: str) -> None:
    """One kernel; equal to ONNX Runtime's, which multiplies by other factors, but for ties of rounding."""
    feeds = {"a": drawn(dtype, (3, 40)), "b": drawn(dtype, (3, 40))}
    known = {
        "sa": np.float32(0.03), "za": np.array(9, dtype), "sb": np.float32(0.02), "zb": np.array(4, dtype),
        "sy": np.float32(0.05), "zy": np.array(7, dtype),
    }  # fmt: skip
    node = helper.make_node(op_type, ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"], ["y"], domain=MICROSOFT)
    model = model_of([node], feeds, {"y": dtype}, known)
    assert families_of(program_of(model)) == ["elementwise"]
    _assert_next_to_onnxruntime(model, feeds)


UNARY = {
    "QLinearSigmoid": {},
    "QLinearLeakyRelu": {"alpha": 0.1},
    "QLinearSoftmax": {"axis": -1, "opset": 13},
}


@halved
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("op_type", UNARY)
def test_functions_of_quantized_values(op_type: str, dtype: str) -> None:
    """Dequantised, computed in float32, and quantised."""
    feeds = {"x": drawn(dtype, (3, 40))}
    known = {"sx": np.float32(0.03), "zx": np.array(9, dtype), "sy": np.float32(0.004), "zy": np.array(7, dtype)}
    node = helper.make_node(op_type, ["x", *known], ["y"], domain=MICROSOFT, **UNARY[op_type])
    _assert_next_to_onnxruntime(model_of([node], feeds, {"y": dtype}, known), feeds)


def test_quantized_values_of_several_scales_are_joined_and_chosen_from() -> None:
    """``QLinearConcat`` and ``QLinearWhere`` bring their values to one scale."""
    feeds = {"a": drawn("uint8", (3, 40)), "b": drawn("uint8", (3, 40)), "c": RNG.random((3, 40)) < 0.5}
    known = {
        "sa": np.float32(0.03), "za": np.uint8(9), "sb": np.float32(0.02), "zb": np.uint8(4),
        "sy": np.float32(0.05), "zy": np.uint8(7),
    }  # fmt: skip
    joined = ["sy", "zy", "a", "sa", "za", "b", "sb", "zb"]
    chosen = ["c", "a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
    nodes = [
        helper.make_node("QLinearConcat", joined, ["y"], domain=MICROSOFT, axis=1),
        helper.make_node("QLinearWhere", chosen, ["z"], domain=MICROSOFT),
    ]
    _assert_next_to_onnxruntime(model_of(nodes, feeds, {"y": "uint8", "z": "uint8"}, known), feeds)


def _assert_next_to_onnxruntime(model: onnx.ModelProto, feeds: dict[str, Array]) -> None:
    """Assert that bytes are ONNX Runtime's, but for one in ten that may be the next one."""
    expected = onnxruntime_outputs(model, feeds, optimized=False)
    found = run_model(model, feeds)
    for name, wanted in zip((port.name for port in model.graph.output), expected, strict=True):
        away = np.abs(found[name].astype(int) - wanted)
        assert away.max() <= 1
        assert (away > 0).mean() <= 0.1


WEIGHTS = {
    "one scale": ((), {}),
    "one a column": ((37,), {"axis": 1}),
}


@halved
@pytest.mark.parametrize("form", WEIGHTS)
@pytest.mark.parametrize("types", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")], ids="-".join)
def test_a_product_of_dequantized_values_is_one_of_integers(types: tuple[str, str], form: str) -> None:
    """From DequantizeLinear to QuantizeLinear, bias and activation between: float32 is never stored."""
    shape, attrs = WEIGHTS[form]
    feeds = {"a": drawn(types[0], (5, 66))}
    known = {
        "sa": np.float32(0.02), "za": np.array(7, types[0]), "b": drawn(types[1], (66, 37)), "sb": scales(*shape),
        "zb": np.zeros(shape, types[1]) if types[1] == "int8" else drawn("uint8", shape),
        "bias": RNG.standard_normal(37).astype(np.float32), "sy": np.float32(0.05), "zy": np.uint8(7),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "sa", "za"], ["af"]),
        helper.make_node("DequantizeLinear", ["b", "sb", "zb"], ["bf"], **attrs),
        helper.make_node("MatMul", ["af", "bf"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["active"]),
        helper.make_node("QuantizeLinear", ["active", "sy", "zy"], ["y"]),
    ]
    model = model_of(nodes, feeds, {"y": "uint8"}, known)
    families = families_of(program_of(model))
    assert set(families) <= {"matmul_integer", "elementwise"}
    assert families.count("matmul_integer") == (2 if types[1] == "uint8" else 1)  # sums of rows, where zb is not 0
    _assert_next_to_onnxruntime(model, feeds)


def test_a_gemm_of_dequantized_values_is_one_of_integers() -> None:
    """Transposed weights with a scale a row, alpha, beta and a dequantised int32 bias."""
    feeds = {"a": drawn("uint8", (5, 66))}
    known = {
        "sa": np.float32(0.02), "za": np.uint8(7), "b": drawn("int8", (37, 66)), "sb": scales(37),
        "zb": np.zeros(37, np.int8), "c": RNG.integers(-9999, 9999, 37, np.int32), "sc": np.float32(1e-4),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "sa", "za"], ["af"]),
        helper.make_node("DequantizeLinear", ["b", "sb", "zb"], ["bf"], axis=0),
        helper.make_node("DequantizeLinear", ["c", "sc"], ["cf"]),
        helper.make_node("Gemm", ["af", "bf", "cf"], ["y"], transB=1, alpha=0.5, beta=2.0),
    ]
    model = model_of(nodes, feeds, {"y": "float32"}, known)
    assert families_of(program_of(model)) == ["matmul_integer"]
    (expected,) = onnxruntime_outputs(model, feeds, optimized=False)
    np.testing.assert_allclose(run_model(model, feeds)["y"], expected, 1e-4, 1e-4)


def test_scales_along_the_summed_axis_leave_a_product_in_float32() -> None:
    """A sum of products has one scale: weights with one for each row of K are dequantised when the network is built."""
    feeds = {"a": drawn("uint8", (5, 66))}
    known = {"sa": np.float32(0.02), "za": np.uint8(7), "b": drawn("int8", (66, 37)), "sb": scales(66)}
    nodes = [
        helper.make_node("DequantizeLinear", ["a", "sa", "za"], ["af"]),
        helper.make_node("DequantizeLinear", ["b", "sb"], ["bf"], axis=0),
        helper.make_node("MatMul", ["af", "bf"], ["y"]),
    ]
    model = model_of(nodes, feeds, {"y": "float32"}, known)
    assert "matmul" in families_of(program_of(model))
    (expected,) = onnxruntime_outputs(model, feeds, optimized=False)
    np.testing.assert_allclose(run_model(model, feeds)["y"], expected, 1e-4, 1e-4)


def test_a_quantized_table_is_looked_up_in_bytes() -> None:
    """What is taken from it is dequantised, not the table."""
    feeds = {"places": np.array([[3, 0, -1], [1, 1, 2]])}
    known = {"table": drawn("int8", (4, 6)), "s": np.float32(0.02), "z": np.int8(7)}
    nodes = [
        helper.make_node("DequantizeLinear", ["table", "s", "z"], ["f"]),
        helper.make_node("Gather", ["f", "places"], ["g"]),
        helper.make_node("Neg", ["g"], ["y"]),
    ]
    model = model_of(nodes, feeds, {"y": "float32"}, known)
    program = program_of(model)
    assert families_of(program) == ["gather", "elementwise"]
    assert [buffer.dtype for buffer in program.buffers if buffer.kind == "temporary"] == ["int8"]
    assert_as_onnxruntime(model, feeds)


@pytest.mark.slow
@pytest.mark.parametrize("types", [("uint8", "int8"), ("uint8", "uint8")], ids="-".join)
def test_attention_whose_projection_is_one_of_integers(types: tuple[str, str]) -> None:
    """``QAttention`` with a mask and a zero point of either side; scores and what follows are float32."""
    feeds = {"x": drawn(types[0], (2, 5, 16)), "mask": np.array([5, 3], np.int32)}
    known = {
        "w": drawn(types[1], (16, 24)), "b": RNG.standard_normal(24).astype(np.float32), "sx": np.float32(0.01),
        "sw": np.float32(0.005), "zx": np.array(100, types[0]), "zw": np.array(7, types[1]),
    }  # fmt: skip
    names = ["x", "w", "b", "sx", "sw", "mask", "zx", "zw"]
    node = helper.make_node("QAttention", names, ["y"], domain=MICROSOFT, num_heads=2)
    model = model_of([node], feeds, {"y": "float32"}, known)
    families = families_of(program_of(model))
    assert "matmul_integer" in families
    assert "host" not in families
    (expected,) = onnxruntime_outputs(model, feeds, optimized=False)
    np.testing.assert_allclose(run_model(model, feeds)["y"], expected, 1e-4, 1e-4)
