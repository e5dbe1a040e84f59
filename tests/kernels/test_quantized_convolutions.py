"""Networks of quantised convolutions: kernels on integers, equal to ONNX Runtime's results bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from kernels.small_models import (
    Array,
    assert_as_onnxruntime,
    families_of,
    model_of,
    program_of,
    run_model,
)
from kernels.test_conv_integer import convolved
from support.comparison import exact_weights, onnxruntime_outputs
from support.tiers import halved

MICROSOFT = "com.microsoft"
INTEGER = ("conv_integer", "conv_integer_depthwise")


def drawn(dtype: str, *shape: int, seed: int = 0) -> Array:
    """Return bytes of every value that ONNX Runtime multiplies exactly."""
    info = np.iinfo(dtype)
    return exact_weights(np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True))


def node(op_type: str, inputs: str, output: str, **attrs: Any) -> onnx.NodeProto:
    """Return a node; names of inputs are separated by spaces."""
    return helper.make_node(op_type, inputs.split(" "), [output], output, **attrs)


def scales(count: int, least: float = 1e-3) -> Array:
    """Return a scale for each channel."""
    return np.linspace(least, 4 * least, count, dtype=np.float32)


@halved
@pytest.mark.parametrize(
    ("kind", "zeros"), [("uint8", (0, 0)), ("uint8", (131, 77)), ("int8", (-128, -128)), ("int8", (3, 127))]
)
@pytest.mark.parametrize("channels", [3, 20, 32])
@pytest.mark.parametrize("each", [True, False])
def test_qlinear_conv_is_rounded_as_onnxruntime_rounds(
    kind: str, zeros: tuple[int, int], channels: int, each: bool
) -> None:
    """Scales for each channel and one for all, zero points at the ends of the types, padding, a bias."""
    x, w = drawn(kind, 2, channels, 9, 8), drawn("int8", 19, channels, 3, 3, seed=1)
    constants = {
        "x_scale": np.float32(0.02),
        "x_zero": np.array(zeros[0], kind),
        "w": w,
        "w_scale": scales(19) if each else np.float32(3e-3),
        "w_zero": np.zeros(19 if each else (), np.int8),
        "y_scale": np.float32(0.07),
        "y_zero": np.array(zeros[1], kind),
        "bias": np.arange(-900, 1000, 100, dtype=np.int32),
    }
    made = node("QLinearConv", " ".join(("x", *constants)), "y", pads=[1, 1, 1, 0], strides=[1, 2])
    model = model_of([made], {"x": x}, {"y": kind}, constants)
    assert_as_onnxruntime(model, {"x": x})


@pytest.mark.parametrize("group", [4, 24])
def test_grouped_qlinear_convs_are_kernels(group: int) -> None:
    """Groups that share channel blocks, and depthwise; weights of uint8 whose zero point is none of int8."""
    x, w = drawn("uint8", 1, 24, 7, 7), drawn("uint8", 24, 24 // group, 3, 3, seed=1)
    constants = {
        "x_scale": np.float32(0.02),
        "x_zero": np.uint8(9),
        "w": w,
        "w_scale": np.float32(0.01),
        "w_zero": np.uint8(128),
        "y_scale": np.float32(0.3),
        "y_zero": np.uint8(100),
    }
    made = node("QLinearConv", " ".join(("x", *constants)), "y", pads=[1, 1, 1, 1], group=group)
    assert_as_onnxruntime(model_of([made], {"x": x}, {"y": "uint8"}, constants), {"x": x})


def qdq(kind: str = "uint8", limit: Sequence[onnx.NodeProto] = (), zero: int = 0) -> tuple[onnx.ModelProto, Array]:
    """Return the graph of quantisation tools: a Conv and its limits between DequantizeLinear and QuantizeLinear."""
    x, w = drawn(kind, 1, 20, 8, 9), drawn("int8", 33, 20, 3, 3, seed=1)
    constants = {
        "xs": np.float32(0.0137),
        "xz": np.array(zero, kind),
        "w": w,
        "ws": scales(33),
        "wz": np.zeros(33, np.int8),
        "b": np.arange(33, dtype=np.int32) * 77 - 900,
        "bs": np.float32(0.0137) * scales(33),
        "bz": np.zeros(33, np.int32),
        "ys": np.float32(0.031),
        "yz": np.array(zero, kind),
        "low": np.float32(0),
        "six": np.float32(0.9),
    }
    nodes = [
        node("DequantizeLinear", "x xs xz", "xf"),
        node("DequantizeLinear", "w ws wz", "wf", axis=0),
        node("DequantizeLinear", "b bs bz", "bf", axis=0),
        node("Conv", "xf wf bf", "conv", pads=[1, 1, 1, 1]),
        *limit,
        node("QuantizeLinear", f"{limit[-1].output[0] if limit else 'conv'} ys yz", "y"),
    ]
    return model_of(nodes, {"x": x}, {"y": kind}, constants), x


LIMITS = {
    "nothing": [],
    "Relu": [node("Relu", "conv", "limited")],
    "Clip": [node("Clip", "conv low six", "limited")],
    "Clip above": [helper.make_node("Clip", ["conv", "", "six"], ["limited"])],
    "Relu, Clip": [node("Relu", "conv", "positive"), node("Clip", "positive low six", "limited")],
}


@halved
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(("kind", "zero"), [("uint8", 0), ("uint8", 100), ("int8", -128), ("int8", 7)])
def test_a_conv_between_dequantize_and_quantize_is_one_kernel(kind: str, zero: int, limit: str) -> None:
    """Within a step of the result in floats, which rounds sums in another order; all but ties are equal."""
    model, x = qdq(kind, LIMITS[limit], zero)
    families = families_of(program_of(model))
    assert [name for name in families if name not in ("copy", "to_blocked", "from_blocked", "elementwise")] == [
        "conv_integer"
    ]
    found, (expected,) = run_model(model, {"x": x})["y"], onnxruntime_outputs(model, {"x": x}, optimized=False)
    difference = np.abs(found.astype(int) - expected.astype(int))
    assert difference.max() <= 1
    assert np.count_nonzero(difference) <= 3


def sum_of_two(scale: str) -> list[onnx.NodeProto]:
    """Return two convolutions of ``x``, each quantised, the second one by the scale that is named, and their sum."""
    return [
        node("DequantizeLinear", "x s z", "xf"),
        node("DequantizeLinear", "w ws wz", "wf"),
        node("DequantizeLinear", "v vs wz", "vf"),
        node("Conv", "xf wf", "a"),
        node("QuantizeLinear", "a t tz", "aq"),
        node("DequantizeLinear", "aq t tz", "af"),
        node("Conv", "xf vf", "b", pads=[1, 1, 1, 1]),
        node("QuantizeLinear", f"b {scale} tz", "bq"),
        node("DequantizeLinear", f"bq {scale} tz", "bf"),
        node("Add", "af bf", "sum"),
    ]


def residual() -> tuple[onnx.ModelProto, Array]:
    """Return two convolutions whose results are added, as residual networks have them."""
    x, w = drawn("uint8", 1, 16, 6, 6), drawn("int8", 16, 16, 1, 1, seed=1)
    constants = {
        "s": np.float32(2**-6),
        "z": np.uint8(3),
        "w": w,
        "v": drawn("int8", 16, 16, 3, 3, seed=2),
        "ws": np.float32(2**-7),
        "wz": np.int8(0),
        "vs": np.float32(2**-8),
        "t": np.float32(2**-4),
        "tz": np.uint8(120),
        "u": np.float32(2**-4),
        "uz": np.uint8(0),
    }
    nodes = [
        *sum_of_two("t"),
        node("Relu", "sum", "positive"),
        node("QuantizeLinear", "positive u uz", "y"),
    ]
    return model_of(nodes, {"x": x}, {"y": "uint8"}, constants), x


def test_a_residual_is_added_by_the_second_convolution() -> None:
    """Two kernels: one makes bytes, the other reads them. Scales are powers of 2, with which floats are exact too."""
    model, x = residual()
    families = families_of(program_of(model))
    assert [name for name in families if name in INTEGER or name == "elementwise"] == ["conv_integer"] * 2
    assert_as_onnxruntime(model, {"x": x})


def added(
    kind: str, zeros: tuple[int, int, int], step: float, limit: Sequence[onnx.NodeProto], read_again: bool = False
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return two convolutions of which each is quantised, whose sum is limited and quantised in steps of ``step``.

    All other scales are powers of 2, with which floats are exact.
    """
    x, constants = drawn(kind, 1, 20, 6, 6), {
        "s": np.float32(2**-6), "z": np.array(zeros[0], kind), "w": drawn("int8", 24, 20, 1, 1, seed=1),
        "v": drawn("int8", 24, 20, 3, 3, seed=2), "ws": np.float32(2**-7), "wz": np.int8(0), "vs": np.float32(2**-9),
        "t": np.float32(2**-5), "r": np.float32(2**-4), "tz": np.array(zeros[1], kind), "u": np.float32(step),
        "uz": np.array(zeros[2], kind), "low": np.float32(-0.5), "high": np.float32(3),
    }  # fmt: skip
    nodes = [
        *sum_of_two("r"),
        *limit,
        node("QuantizeLinear", f"{limit[-1].output[0] if limit else 'sum'} u uz", "y"),
        *([node("Identity", "aq", "p"), node("Identity", "bq", "q")] if read_again else []),
    ]
    outputs = {"y": kind, **({"p": kind, "q": kind} if read_again else {})}
    return model_of(nodes, {"x": x}, outputs, constants), {"x": x}


SUM_LIMITS: dict[str, tuple[list[onnx.NodeProto], float, float]] = {
    "nothing": ([], -np.inf, np.inf),
    "Relu": ([node("Relu", "sum", "limited")], 0, np.inf),
    "Clip": ([node("Clip", "sum low high", "limited")], -0.5, 3),
    "Relu, Clip": ([node("Relu", "sum", "positive"), node("Clip", "positive low high", "limited")], 0, 3),
}


@pytest.mark.slow
@halved
@pytest.mark.parametrize("limit", SUM_LIMITS)
@pytest.mark.parametrize(
    ("kind", "zeros"),
    [("uint8", (3, 120, 0)), ("uint8", (0, 0, 77)), ("int8", (5, -128, -128)), ("int8", (-128, 3, 0))],
)
def test_a_quantised_sum_of_convolutions_divides_nothing(kind: str, zeros: tuple[int, int, int], limit: str) -> None:
    """Each value times its scale over that of the result, as QLinearAdd; coarse steps, and fine ones that saturate."""
    nodes, low, high = SUM_LIMITS[limit]
    for step in (0.171, 0.0113):
        whole, feeds = added(kind, zeros, step, nodes, read_again=True)
        _, a, b = onnxruntime_outputs(whole, feeds, optimized=False)
        scale, info = np.float32(step), np.iinfo(kind)
        ratios = np.float32(2**-5) / scale, np.float32(2**-4) / scale
        steps = sum((each.astype(np.float32) - zeros[1]) * ratio for each, ratio in zip((a, b), ratios, strict=True))
        steps = np.clip(steps, np.float32(low) / scale, np.float32(high) / scale)
        expected = np.clip(np.round(steps) + np.float32(zeros[2]), info.min, info.max).astype(kind)
        model, _ = added(kind, zeros, step, nodes)
        sums = [call.desc for call in program_of(model).calls if getattr(call, "desc", None) is not None]
        assert [desc.family for desc in sums].count("conv_integer") == 2
        assert not any("Div" in desc.op_types for desc in sums)
        assert {each.dtype for desc in sums for each in desc.outputs} == {"uint8", kind}
        for each in (model, whole):
            np.testing.assert_array_equal(run_model(each, feeds)["y"], expected)


@pytest.mark.slow
def test_bytes_stay_bytes_through_what_only_moves_or_compares_them() -> None:
    """MaxPool, Concat and Transpose between DequantizeLinear and QuantizeLinear work on bytes, of another scale too."""
    x = drawn("uint8", 2, 16, 6, 6)
    constants = {"s": np.float32(0.02), "z": np.uint8(3), "t": np.float32(0.05), "tz": np.uint8(120)}
    nodes = [
        node("DequantizeLinear", "x s z", "xf"),
        node("MaxPool", "xf", "p", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("QuantizeLinear", "p s z", "pq"),
        node("DequantizeLinear", "pq s z", "pf"),
        node("DequantizeLinear", "x s z", "xg"),
        node("Concat", "pf xg", "c", axis=1),
        node("QuantizeLinear", "c t tz", "cq"),
        node("DequantizeLinear", "cq t tz", "cf"),
        node("Transpose", "cf", "f", perm=[0, 2, 3, 1]),
        node("QuantizeLinear", "f t tz", "y"),
    ]
    model = model_of(nodes, {"x": x}, {"y": "uint8"}, constants)
    assert_as_onnxruntime(model, {"x": x})
    called = [call.desc for call in program_of(model).calls if hasattr(call, "desc")]
    assert {operand.dtype for desc in called if desc.family == "pool" for operand in desc.operands} == {"uint8"}


@pytest.mark.parametrize("image", [(7, 7), (17, 16)])
def test_averages_of_planes_are_sums_of_bytes(image: tuple[int, int]) -> None:
    """QLinearGlobalAveragePool; of large images, which are averaged in floats, within a step."""
    x = drawn("uint8", 2, 20, *image)
    constants = {"s": np.float32(0.02), "z": np.uint8(3), "t": np.float32(0.011), "tz": np.uint8(120)}
    made = node("QLinearGlobalAveragePool", "x s z t tz", "y", domain=MICROSOFT)
    model = model_of([made], {"x": x}, {"y": "uint8"}, constants)
    if image == (7, 7):
        assert_as_onnxruntime(model, {"x": x})
    found, (expected,) = run_model(model, {"x": x})["y"], onnxruntime_outputs(model, {"x": x})
    assert np.abs(found.astype(int) - expected).max() <= 1


@pytest.mark.slow
def test_operators_on_images_with_channels_innermost_are_kernels() -> None:
    """com.microsoft's QLinearConv and NhwcMaxPool, and QLinearAveragePool."""
    x = drawn("uint8", 1, 8, 8, 16)
    constants = {
        "s": np.float32(0.02),
        "z": np.uint8(3),
        "w": drawn("int8", 24, 16, 3, 3, seed=1),
        "ws": np.float32(0.01),
        "wz": np.int8(0),
        "t": np.float32(0.2),
        "tz": np.uint8(120),
    }
    nodes = [
        node("QLinearConv", "x s z w ws wz t tz", "c", domain=MICROSOFT, channels_last=1, pads=[1, 1, 1, 1]),
        node("NhwcMaxPool", "c", "p", domain=MICROSOFT, kernel_shape=[2, 2], strides=[2, 2]),
        node("QLinearAveragePool", "p t tz t tz", "y", domain=MICROSOFT, channels_last=1, kernel_shape=[3, 3]),
    ]
    model = model_of(nodes, {"x": x}, {"y": "uint8"}, constants)
    found, (expected,) = run_model(model, {"x": x})["y"], onnxruntime_outputs(model, {"x": x})
    assert found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).max() <= 1


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 16])
def test_a_zero_point_may_be_computed(groups: int) -> None:
    """Dynamic quantisation, as tools write it: the padding holds what DynamicQuantizeLinear finds."""
    x = np.random.default_rng(0).uniform(-1, 3, (2, 16, 7, 6)).astype(np.float32)
    w = drawn("int8", 32 if groups == 1 else 16, 16 // groups, 3, 3, seed=1)
    constants = {"w": w, "ws": np.float32(2**-7), "b": np.linspace(-1, 1, len(w), dtype=np.float32).reshape(-1, 1, 1)}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        node("ConvInteger", "q w z", "sums", pads=[1, 1, 1, 1], group=groups),
        node("Cast", "sums", "wide", to=onnx.TensorProto.FLOAT),
        node("Mul", "s ws", "factor"),
        node("Mul", "wide factor", "scaled"),
        node("Add", "scaled b", "y"),
    ]
    model = model_of(nodes, {"x": x}, {"y": "float32"}, constants)
    assert_as_onnxruntime(model, {"x": x})
    assert "copy" in families_of(program_of(model))


@pytest.mark.slow
@pytest.mark.parametrize("channels", [4, 40])
def test_weights_that_are_computed_have_kernels_as_far_as_floats_are_exact(channels: int) -> None:
    """Sums of at most 257 products are exact in float32; others the host adds up."""
    x, w = drawn("int8", 1, channels, 5, 5), drawn("uint8", 3, channels, 3, 3)
    zeros = {"z": np.int8(-128), "v": np.uint8([0, 255, 128])}
    model = model_of([node("ConvInteger", "x w z v", "y", pads=[1, 0, 0, 1])], {"x": x, "w": w}, {"y": "int32"}, zeros)
    if channels == 40:
        assert "host" in families_of(program_of(model))
        return
    xs, ws = x.astype(int) + 128, w.astype(int) - zeros["v"].astype(int).reshape(-1, 1, 1, 1)
    found = run_model(model, {"x": x, "w": w})["y"]
    np.testing.assert_array_equal(found, convolved(xs, ws, (0, 0), {"pads": (1, 0, 0, 1)}))
