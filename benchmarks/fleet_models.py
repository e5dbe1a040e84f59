"""Two hundred and forty small networks as a fleet serves them: twelve families in twenty sizes, with random weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import models  # noqa: F401  it finds the builders of the tests
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from support.networks import bert

SIZES = 20
"""Networks of each family."""


class Layers:
    """Builds a network layer by layer.

    Args:
        name: The network's name.
        shape: Of its input.
    """

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self._name, self._shape = name, shape
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._rng = np.random.default_rng(sum(map(ord, name)))

    def op(self, kind: str, *inputs: str, **attributes: object) -> str:
        """Add a node; return its output."""
        output = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [output], output, **attributes))
        return output

    def weight(self, *shape: int) -> str:
        """Add weights drawn as for training; return their name."""
        name = f"w_{len(self._weights)}"
        values = self._rng.standard_normal(shape) * math.sqrt(2.0 / max(1, math.prod(shape[1:])))
        self._weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def conv(self, x: str, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, group: int = 1) -> str:
        """Add a convolution with a bias."""
        weight, bias = self.weight(outputs, inputs // group, kernel, kernel), self.weight(outputs)
        pads = [kernel // 2] * 4
        return self.op("Conv", x, weight, bias, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, group=group)

    def relu(self, x: str) -> str:
        """Add a Relu."""
        return self.op("Relu", x)

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        """Add a fully connected layer."""
        return self.op("Gemm", x, self.weight(inputs, outputs), self.weight(outputs))

    def head(self, x: str, channels: int) -> onnx.ModelProto:
        """Add what classifies a picture, and return the model."""
        pooled = self.op("Flatten", self.op("GlobalAveragePool", x))
        return self.model(self.dense(pooled, channels, 10))

    def model(self, output: str) -> onnx.ModelProto:
        """Return the model."""
        self._nodes[-1].output[0] = "y"
        graph = helper.make_graph(
            self._nodes,
            self._name,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self._shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            self._weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def mlp(name: str, n: int) -> onnx.ModelProto:
    """Fully connected layers."""
    layers, width, x = Layers(name, (1 + n % 4, 64)), 64 + 16 * n, "x"
    for inputs in (64, *[width] * (2 + n % 3)):
        x = layers.relu(layers.dense(x, inputs, width))
    return layers.model(layers.dense(x, width, 10))


def plain(name: str, n: int) -> onnx.ModelProto:
    """Convolutions and pools, as VGG."""
    channels, x = 16 + 4 * n, "x"
    layers = Layers(name, (1, 3, 32 + 8 * (n % 5), 32 + 8 * (n % 5)))
    for number in range(3):
        x = layers.relu(layers.conv(x, channels if number else 3, channels))
        x = layers.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    return layers.head(x, channels)


def residual(name: str, n: int) -> onnx.ModelProto:
    """Residual blocks, as ResNet."""
    channels = 16 + 4 * n
    layers = Layers(name, (1, 3, 32 + 16 * (n % 3), 32 + 16 * (n % 3)))
    x = layers.relu(layers.conv("x", 3, channels, 7 if n % 2 else 3, 2))
    for _ in range(2 + n % 3):
        y = layers.conv(layers.relu(layers.conv(x, channels, channels)), channels, channels)
        x = layers.relu(layers.op("Add", y, x))
    return layers.head(x, channels)


def separable(name: str, n: int) -> onnx.ModelProto:
    """Depthwise and pointwise convolutions, as MobileNet."""
    channels = 16 + 8 * (n % 10)
    layers = Layers(name, (1, 3, 48, 48 + 16 * (n // 10)))
    x = layers.relu(layers.conv("x", 3, channels, 3, 2))
    for number in range(3):
        y = layers.relu(layers.conv(x, channels, channels, 5 if n % 2 and number else 3, 1, channels))
        x = layers.op("Add", layers.conv(y, channels, channels, 1), x)
    return layers.head(x, channels)


def fire(name: str, n: int) -> onnx.ModelProto:
    """Squeezed and expanded channels, as SqueezeNet."""
    channels = 16 + 4 * n
    layers = Layers(name, (1, 3, 48, 48))
    x = layers.relu(layers.conv("x", 3, 2 * channels, 3, 2))
    for _ in range(2):
        squeezed = layers.relu(layers.conv(x, 2 * channels, channels // 2, 1))
        wide = [layers.relu(layers.conv(squeezed, channels // 2, channels, kernel)) for kernel in (1, 3)]
        x = layers.op("Concat", *wide, axis=1)
    return layers.head(x, 2 * channels)


def inception(name: str, n: int) -> onnx.ModelProto:
    """Branches of several kernels, as Inception."""
    channels = 8 + 2 * n
    layers = Layers(name, (1, 3, 40, 40))
    x = layers.relu(layers.conv("x", 3, 3 * channels, 3, 2))
    for _ in range(2):
        branches = [layers.relu(layers.conv(x, 3 * channels, channels, kernel)) for kernel in (1, 3, 5)]
        x = layers.op("Concat", *branches, axis=1)
    x = layers.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    return layers.head(x, 3 * channels)


def dense_net(name: str, n: int) -> onnx.ModelProto:
    """Channels that are added to what came before, as DenseNet."""
    growth = 8 + 2 * n
    layers, channels = Layers(name, (1, 3, 32, 32)), 2 * growth
    x = layers.relu(layers.conv("x", 3, channels))
    for _ in range(3):
        x = layers.op("Concat", x, layers.relu(layers.conv(x, channels, growth)), axis=1)
        channels += growth
    return layers.head(x, channels)


def u_net(name: str, n: int) -> onnx.ModelProto:
    """Down and up again, as U-Net."""
    c, side = 8 + 2 * n, 32 + 16 * (n % 2)
    layers = Layers(name, (1, 3, side, side))
    top = layers.relu(layers.conv("x", 3, c))
    low = layers.op("MaxPool", top, kernel_shape=[2, 2], strides=[2, 2])
    low = layers.relu(layers.conv(low, c, 2 * c))
    up = layers.op("ConvTranspose", low, layers.weight(2 * c, c, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
    x = layers.relu(layers.conv(layers.op("Concat", up, top, axis=1), 2 * c, c))
    return layers.model(layers.op("Sigmoid", layers.conv(x, c, 2, 1)))


def gated(name: str, n: int) -> onnx.ModelProto:
    """Channels weighed by what all places say, as squeeze-and-excitation."""
    c = 16 + 4 * n
    layers = Layers(name, (1, 3, 40, 40))
    x = layers.relu(layers.conv("x", 3, c, 3, 2))
    for _ in range(2):
        y = layers.relu(layers.conv(x, c, c))
        gate = layers.relu(layers.conv(layers.op("GlobalAveragePool", y), c, c // 4, 1))
        x = layers.op("Mul", y, layers.op("Sigmoid", layers.conv(gate, c // 4, c, 1)))
    return layers.head(x, c)


def recurrent(name: str, n: int) -> onnx.ModelProto:
    """A layer of GRU and what tags each step."""
    hidden, steps = 16 + 8 * (n % 10), 8 + n
    layers = Layers(name, (steps, 1, 32))
    w, r, b = layers.weight(1, 3 * hidden, 32), layers.weight(1, 3 * hidden, hidden), layers.weight(1, 6 * hidden)
    x = layers.op("Squeeze", layers.op("GRU", "x", w, r, b, hidden_size=hidden), _axes(layers, 1))
    return layers.model(layers.op("Softmax", layers.op("MatMul", x, layers.weight(hidden, 12)), axis=-1))


def _axes(layers: Layers, axis: int) -> str:
    layers._weights.append(numpy_helper.from_array(np.array([axis], np.int64), "axes"))
    return "axes"


def encoder(name: str, n: int) -> onnx.ModelProto:
    """Layers of BERT's structure."""
    model = bert(layers=1 + n % 2, hidden=64 + 32 * (n % 5), heads=2 + 2 * (n % 2), seq=16 + 8 * (n // 5))
    model.graph.name = name
    return model


def statistics(name: str, n: int) -> onnx.ModelProto:
    """Features of rows: normalised, weighed and summed."""
    width = 48 + 16 * n
    layers = Layers(name, (32, width))
    x = layers.op("LayerNormalization", "x", layers.weight(width), layers.weight(width))
    x = layers.op("Tanh", layers.dense(x, width, 64))
    weights = layers.op("Softmax", layers.dense(x, 64, 8), axis=-1)
    return layers.model(layers.op("MatMul", layers.op("Transpose", weights, perm=[1, 0]), x))


FAMILIES: tuple[Callable[[str, int], onnx.ModelProto], ...] = (
    mlp, plain, residual, separable, fire, inception, dense_net, u_net, gated, recurrent, encoder, statistics,
)  # fmt: skip


def write_fleet(folder: Path, count: int) -> list[Path]:
    """Write so many of the networks, each family in turn; return their files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(count):
        family, size = FAMILIES[number % len(FAMILIES)], number // len(FAMILIES)
        path = folder / f"{family.__name__}_{size}.onnx"
        if not path.exists():
            path.write_bytes(family(path.stem, size).SerializeToString())
        paths.append(path)
    return paths
