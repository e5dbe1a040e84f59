"""Models that are run on the fake device: a perceptron, MiniLM's structure, a small convolutional network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from kernels.models import Sizes
from kernels.transformer import FORMS, bert
from support import networks
from support.narrow_models import in_sixteen_bits


def perceptron(batch: int | str = 8) -> onnx.ModelProto:
    """Return three layers; ``x`` is ``[batch, 16]``."""
    return networks.with_input_shape(networks.mlp(batch=8, sizes=(16, 32, 24, 10)), (batch, 16))


def mini_lm(tokens: int = 9, layers: int = 1) -> onnx.ModelProto:
    """Return an encoder as torch exports MiniLM, with random weights."""
    return with_weights(bert(Sizes(1, tokens), FORMS[3], 384, layers=layers))


def with_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a structure with random weights in place of the numbers that it has."""
    draw = np.random.default_rng(0)
    shapes = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    nodes = []
    for node in model.graph.node:
        shape = shapes.get(node.input[0]) if node.op_type == "ConstantOfShape" else None
        kind = helper.get_attribute_value(node.attribute[0]) if node.attribute else None
        if shape is None or kind is None or kind.data_type != TensorProto.FLOAT:
            nodes.append(node)
            continue
        weight = (draw.standard_normal(shape) * 0.05).astype(np.float32)
        weight = weight if weight.ndim > 1 else abs(weight) + 0.5  # factors and variances are positive
        model.graph.initializer.append(numpy_helper.from_array(weight, node.output[0]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


def convolutional(batch: int | str = 2) -> onnx.ModelProto:
    """Return two convolutions, a norm over positions, a product and a softmax; ``x`` is ``[batch, 3, 16, 16]``."""
    draw = np.random.default_rng(1)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array((draw.standard_normal(shape) * 0.2).astype(np.float32), name)

    weights = [weight("w1", 8, 3, 3, 3), weight("b1", 8), weight("w2", 16, 8, 3, 3), weight("b2", 16)]
    weights += [weight("w3", 16, 10), weight("b3", 10)]
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Exp", ["p1"], ["e1"]),
        helper.make_node("Conv", ["e1", "w2", "b2"], ["c2"], pads=[1] * 4),
        helper.make_node("ReduceL2", ["c2"], ["m2"], axes=[2, 3], keepdims=0),
        helper.make_node("Gemm", ["m2", "w3", "b3"], ["g3"]),
        helper.make_node("Softmax", ["g3"], ["y"], axis=1),
    ]
    return _model("cnn", nodes, (batch, 3, 16, 16), (batch, 10), weights)


class _Layers:
    """Layers of convolutions with random weights, each with a norm, and the nodes and weights so far."""

    def __init__(self) -> None:
        self.draw = np.random.default_rng(6)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []

    def weight(self, *shape: int, least: float = -1.0) -> str:
        """Add weights whose sums keep the size of what they are multiplied by, and return their name."""
        name = f"w{len(self.weights)}"
        value = self.draw.uniform(least, 1.0, shape) * (1.5 / np.sqrt(np.prod(shape[1:])))
        self.weights.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    def add(self, op_type: str, *inputs: str, **attributes: object) -> str:
        """Add a node and return its output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], **attributes))
        return name

    def conv(self, x: str, inputs: int, outputs: int, taps: int = 1, stride: int = 1, group: int = 1) -> str:
        """Add a convolution, padded so that only its stride makes the image smaller, and its norm."""
        pads = [taps // 2] * 4
        w = self.weight(outputs, inputs // group, taps, taps)
        x = self.add("Conv", x, w, strides=[stride] * 2, pads=pads, group=group)
        norm = [self.weight(outputs, least=least) for least in (0.5, -1.0, -1.0, 0.5)]
        return self.add("BatchNormalization", x, *norm)


def residual(batch: int | str = 2) -> onnx.ModelProto:
    """Return two blocks as ResNet-50 has them, one of which halves the image; ``x`` is ``[batch, 3, 21, 18]``."""
    net = _Layers()
    x = net.add("Relu", net.conv("x", 3, 16, 7, 2))
    x = net.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for inside, stride in ((16, 1), (32, 2)):
        inner = net.add("Relu", net.conv(x, inside, 16))
        inner = net.add("Relu", net.conv(inner, 16, 16, 3, stride))
        shortcut = net.conv(x, inside, 32, 1, stride)
        x = net.add("Relu", net.add("Add", net.conv(inner, 16, 32), shortcut))
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    net.nodes.append(helper.make_node("Gemm", [x, net.weight(32, 10)], ["y"]))
    return _model("residual", net.nodes, (batch, 3, 21, 18), (batch, 10), net.weights)


def mobile(batch: int | str = 2) -> onnx.ModelProto:
    """Return depthwise convolutions between those of 1 x 1, a gate by channel; ``x`` is ``[batch, 3, 14, 15]``."""
    net = _Layers()
    x = net.add("Relu", net.conv("x", 3, 16, 3, 2))
    for stride in (2, 1):
        inner = net.add("Relu", net.conv(x, 16, 40))
        inner = net.add("Relu", net.conv(inner, 40, 40, 3, stride, 40))
        gate = net.add("Sigmoid", net.conv(net.add("GlobalAveragePool", inner), 40, 40))
        inner = net.conv(net.add("Mul", inner, gate), 40, 16)
        x = inner if stride > 1 else net.add("Add", inner, x)
    x = net.add("AveragePool", x, kernel_shape=[2, 3], pads=[1, 1, 0, 1])
    x = net.add("Concat", x, net.conv(x, 16, 8, 3, group=4), axis=1)
    net.nodes.append(helper.make_node("ReduceMax", [x], ["y"], axes=[2, 3], keepdims=0))
    return _model("mobile", net.nodes, (batch, 3, 14, 15), (batch, 24), net.weights)


def in_half(name: str) -> onnx.ModelProto:
    """Return another one of these in float16."""
    model: onnx.ModelProto = globals()[name]()
    return in_sixteen_bits(model, "float16")


def pooled() -> onnx.ModelProto:
    """Return a pool, an exponential, a norm over positions and a softmax; ``x`` is ``[2, 3, 16, 16]``."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Exp", ["p"], ["e"]),
        helper.make_node("ReduceL2", ["e"], ["m"], axes=[2, 3], keepdims=0),
        helper.make_node("Softmax", ["m"], ["y"], axis=1),
    ]
    return _model("pooled", nodes, (2, 3, 16, 16), (2, 3), [])


def in_segments() -> onnx.ModelProto:
    """Return a network that breaks where a value decides a shape: ``y`` is a product of those rows that are not 0."""
    draw = np.random.default_rng(2)
    weight = numpy_helper.from_array(draw.standard_normal((16, 8)).astype(np.float32), "w")
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["g"]),
        helper.make_node("Relu", ["g"], ["r"]),
        helper.make_node("ReduceSum", ["r"], ["s"], keepdims=0),
        helper.make_node("NonZero", ["r"], ["places"]),
        helper.make_node("Transpose", ["places"], ["rows"], perm=[1, 0]),
        helper.make_node("GatherND", ["r", "rows"], ["found"]),
        helper.make_node("Exp", ["found"], ["e"]),
        helper.make_node("Div", ["e", "s"], ["y"]),
    ]
    return _model("segments", nodes, (4, 16), ("found",), [weight])


def _model(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    given: Sequence[int | str],
    made: Sequence[int | str],
    weights: Sequence[TensorProto],
) -> onnx.ModelProto:
    inputs, outputs = (
        [helper.make_tensor_value_info(each, TensorProto.FLOAT, shape)] for each, shape in (("x", given), ("y", made))
    )
    graph = helper.make_graph(nodes, name, inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def moved(batch: int | str = 1) -> onnx.ModelProto:
    """Return elementwise operators between transpositions; ``x`` is ``[batch, 6, 10]``."""
    draw = np.random.default_rng(4)
    weights = [
        numpy_helper.from_array(draw.standard_normal(shape).astype(np.float32), name)
        for name, shape in (("b", (6,)), ("s", (10,)))
    ]
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Transpose", ["e"], ["t"], perm=[0, 2, 1]),
        helper.make_node("Concat", ["t", "t"], ["c"], axis=1),
        helper.make_node("Add", ["c", "b"], ["a"]),
        helper.make_node("Slice", ["a", "first", "last", "axes"], ["h"]),
        helper.make_node("Transpose", ["h"], ["u"], perm=[0, 2, 1]),
        helper.make_node("Mul", ["u", "s"], ["y"]),
    ]
    weights += [
        numpy_helper.from_array(np.array([value]), name) for name, value in (("first", 5), ("last", 15), ("axes", 1))
    ]
    return _model("moved", nodes, (batch, 6, 10), (batch, 6, 10), weights)
