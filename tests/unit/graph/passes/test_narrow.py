"""float16 and bfloat16 computed in float32: which nodes the pass writes, and that values stay those of 16 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.backend.host.evaluate import evaluate
from opbuild.dtypes import NARROW_FLOATS, numpy_dtype
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.passes.narrow import widen_narrow_floats
from opbuild.graph.types import Graph
from support.exact_arithmetic import Array
from support.narrow_models import NUMBERS, in_sixteen_bits
from support.networks import bert, bert_input, mlp, random_input

pytestmark = pytest.mark.usefixtures("kept_objects")

SHAPE = (2, 4, 6, 6)


def model(nodes: list[onnx.NodeProto], dtype: str = "float16", outputs: tuple[str, ...] = ("y",)) -> onnx.ModelProto:
    """Return a model of x, an image, and of constants: ``w`` a kernel, ``c`` and ``k`` channels' numbers, ``shape``."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((4, 4, 3, 3)).astype(numpy_dtype(dtype)),
        "c": rng.standard_normal((4, 1, 1)).astype(numpy_dtype(dtype)),
        "k": rng.uniform(0.5, 2, 4).astype(numpy_dtype(dtype)),
        "shape": np.array([2, -1]),
    }
    graph = helper.make_graph(
        nodes,
        "narrow",
        [helper.make_tensor_value_info("x", NUMBERS[dtype], SHAPE)],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def image(dtype: str = "float16") -> Array:
    """Return the input."""
    return np.random.default_rng(1).standard_normal(SHAPE).astype(numpy_dtype(dtype))


def widened(proto: onnx.ModelProto) -> Graph:
    """Return the graph after the pass."""
    return widen_narrow_floats(load_model(proto).bind({}, evaluate))


def kinds(graph: Graph) -> list[str]:
    """Return operator types in order."""
    return [node.op_type for node in graph.nodes]


def node(op_type: str, inputs: str, output: str = "y", **attrs: Any) -> onnx.NodeProto:
    """Return a node; its inputs are separated by spaces."""
    return helper.make_node(op_type, inputs.split(), [output], **attrs)


def test_a_result_is_rounded_once_and_read_in_float32() -> None:
    """Between two operators stands one conversion there and back; what is exact needs none."""
    proto = model([node("Conv", "x w", "a"), node("Relu", "a", "b"), node("Conv", "b w")])
    graph = widened(proto)
    assert kinds(graph) == ["Cast", "Conv", "Cast", "Cast", "Relu", "Conv", "Cast"]
    assert {graph.types[name].dtype for node in graph.nodes if node.op_type != "Cast" for name in node.inputs} == {
        "float32"
    }
    assert graph.types["y"].dtype == "float16"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "outputs", "between"),
    [("float16", ("y",), []), ("bfloat16", ("y",), ["Cast", "Cast"]), ("float16", ("y", "a"), ["Cast", "Cast"])],
    ids=["float16", "bfloat16", "an-output-between"],
)
def test_a_normalized_convolution_of_float16_is_rounded_once(
    dtype: str, outputs: tuple[str, ...], between: list[str], tmp_path: Path
) -> None:
    """It folds into the weights, as in float32: but those of bfloat16, which are multiplied in pairs, stay theirs."""
    proto = model([node("Conv", "x w", "a"), node("BatchNormalization", "a k k k k")], dtype, outputs)
    assert kinds(widened(proto)) == ["Cast", "Conv", *between, "BatchNormalization", "Cast"]
    (found, *_) = run(proto, {"x": image(dtype)}, tmp_path)
    w, scale = (numpy_helper.to_array(each).astype(np.float64) for each in proto.graph.initializer if each.name in "wk")
    windows = np.lib.stride_tricks.sliding_window_view(image(dtype).astype(np.float64), (3, 3), (2, 3))
    sums, channel = np.einsum("nchwij,ocij->nohw", windows, w), scale[:, None, None]
    expected = (sums - channel) / np.sqrt(channel + 1e-5) * channel + channel
    tolerance = 1e-3 if not between else 5e-3 if dtype == "float16" else 4e-2
    np.testing.assert_allclose(found.astype(np.float64), expected, tolerance, tolerance)


def test_what_only_moves_elements_moves_the_form_that_there_is() -> None:
    """An input is moved as it came, a result as it was computed."""
    moved = widened(model([node("Transpose", "x", "a"), node("Reshape", "a shape")]))
    assert kinds(moved) == ["Transpose", "Reshape"]
    computed = widened(model([node("Conv", "x w", "a"), node("Transpose", "a", "b"), node("Exp", "b")]))
    assert kinds(computed) == ["Cast", "Conv", "Cast", "Cast", "Transpose", "Exp", "Cast"]


def test_conversions_read_the_number_whatever_its_form() -> None:
    """A Cast to float32 of what was computed is that value, not another conversion."""
    proto = model([node("Conv", "x w", "a"), node("Cast", "a", "b", to=TensorProto.FLOAT), node("Exp", "b")])
    assert kinds(widened(proto)) == ["Cast", "Conv", "Cast", "Cast", "Identity", "Exp"]
    like = model([node("Exp", "x", "a"), node("CastLike", "a shape")])
    assert kinds(widened(like)) == ["Exp", "CastLike"]


def run(proto: onnx.ModelProto, feeds: dict[str, Array], cache: Path) -> list[Array]:
    """Return the outputs of a network that runs without the host."""
    net = opbuild.compile(proto, cache_path=cache, workers=2)
    assert not net.report.host
    return list(net.run(feeds).values())


@pytest.mark.parametrize("dtype", NARROW_FLOATS)
def test_outputs_that_are_read_too_are_values_of_the_type(dtype: str, tmp_path: Path) -> None:
    """The second operator reads what the first one's output holds."""
    nodes = [node("Mul", "x c", "a"), node("Relu", "a", "b"), node("Add", "b x")]
    a, b, y = run(model(nodes, dtype, ("a", "b", "y")), {"x": image(dtype)}, tmp_path)
    c = numpy_helper.to_array(model([], dtype).graph.initializer[1])
    wide = image(dtype).astype(np.float32)
    np.testing.assert_array_equal(a, (wide * c.astype(np.float32)).astype(a.dtype))
    np.testing.assert_array_equal(b, np.maximum(a, 0))
    np.testing.assert_array_equal(y, (b.astype(np.float32) + wide).astype(y.dtype))


def test_clip_without_a_bound_ends_at_the_limit_of_the_type(tmp_path: Path) -> None:
    """Not at that of float32, which would round to infinity."""
    x = image()
    x.reshape(-1)[:3] = np.inf, -np.inf, 65504
    (y,) = run(model([node("Clip", "x")]), {"x": x}, tmp_path)
    assert y.reshape(-1)[:3].tolist() == [65504, -65504, 65504]


def test_sums_beyond_the_type_are_infinite_between_operators(tmp_path: Path) -> None:
    """A float32 would come back from there."""
    x = np.full(SHAPE, 60000, np.float16)
    (y,) = run(model([node("Add", "x x", "a"), node("Sub", "a x")]), {"x": x}, tmp_path)
    assert np.isinf(y).all()


def as_type(feeds: dict[str, Array], dtype: str) -> dict[str, Array]:
    """Return inputs whose float32 numbers are of another type."""
    kind = numpy_dtype(dtype)
    return {name: value.astype(kind) if value.dtype == np.float32 else value for name, value in feeds.items()}


def pools() -> onnx.ModelProto:
    """Return a convolution, a pool, a normalization and a mean, in float32."""
    nodes = [node("Conv", "x w", "a", pads=[1] * 4), node("MaxPool", "a", "b", kernel_shape=[2, 2], strides=[2, 2])]
    proto = model([*nodes, node("Softmax", "b", "s", axis=1), node("GlobalAveragePool", "s")])
    for tensor in proto.graph.initializer[:2]:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT
    return proto


@pytest.mark.slow
@pytest.mark.parametrize("dtype", NARROW_FLOATS)
def test_networks_of_16_bits_run_on_kernels_and_are_right(dtype: str, tmp_path: Path) -> None:
    """A perceptron, an encoder of BERT's kind, a convolution with pools: as near to float32 as their digits are."""
    tolerance = 5e-3 if dtype == "float16" else 4e-2
    cases = ((mlp(), random_input(mlp())), (bert(layers=1, decomposed=False), bert_input()), (pools(), {"x": image()}))
    for proto, feeds in cases:
        wide = {name: value.astype(np.float32) if value.dtype == np.float16 else value for name, value in feeds.items()}
        (expected,) = run(proto, wide, tmp_path)
        (got,) = run(in_sixteen_bits(proto, dtype), as_type(wide, dtype), tmp_path)
        assert got.dtype == numpy_dtype(dtype)
        assert np.abs(got.astype(np.float64) - expected).max() <= tolerance * np.abs(expected).max()
