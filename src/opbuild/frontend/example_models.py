"""Example networks: the nine structures that the ``onnx`` package ships for its tests, with random weights.

The files of the package have constant weights, so that all outputs are equal and a wrong result looks right. Here
weights are drawn as for training (He et al., "Delving Deep into Rectifiers", 2015), from a seed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from opbuild.errors import InvalidModelError
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass

PRODUCER = "opbuild example"
"""The ``producer_name`` of the models that are made here."""

_FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"

_Draw = Callable[[np.random.Generator, tuple[int, ...]], npt.NDArray[np.float64]]


@dataclass(frozen=True)
class ExampleNetwork:
    """An example network.

    Attributes:
        input: The name of its input, a batch of one image.
        shape: The input's shape.
        megabytes: The size of the model with its weights, rounded.
        last_gain: What the weights of the last layer are multiplied by, which brings the outputs before Softmax to a
            standard deviation of about 3 for normally distributed inputs. Without, residual sums and pooled branches
            let it grow to 24,000, where Softmax gives one 1 and zeros.
    """

    input: str
    shape: tuple[int, ...]
    megabytes: int
    last_gain: float


EXAMPLES: dict[str, ExampleNetwork] = {
    "resnet50": ExampleNetwork("gpu_0/data_0", (1, 3, 224, 224), 103, 1 / 1000),
    "squeezenet": ExampleNetwork("data_0", (1, 3, 224, 224), 5, 1.5),
    "shufflenet": ExampleNetwork("gpu_0/data_0", (1, 3, 224, 224), 6, 1 / 8000),
    "densenet121": ExampleNetwork("data_0", (1, 3, 224, 224), 33, 9.0),
    "inception_v1": ExampleNetwork("data_0", (1, 3, 224, 224), 28, 1 / 50),
    "inception_v2": ExampleNetwork("data_0", (1, 3, 224, 224), 45, 3.0),
    "bvlc_alexnet": ExampleNetwork("data_0", (1, 3, 224, 224), 244, 1.5),
    "vgg19": ExampleNetwork("data_0", (1, 3, 224, 224), 575, 1.3),
    "zfnet512": ExampleNetwork("gpu_0/data_0", (1, 3, 224, 224), 349, 4.5),
}
"""Every example by name; the smallest are best to try things with."""


def light_path(name: str) -> Path:
    """Return the path of the ``onnx`` package's own file of a network, whose weights are constants."""
    return _FOLDER / f"light_{name}.onnx"


def example_model(name: str, seed: int = 0) -> onnx.ModelProto:
    """Return an example network with random weights.

    Raises:
        InvalidModelError: If the installed ``onnx`` package does not have it.
    """
    try:
        model = onnx.load(light_path(name))
    except OSError as error:
        problem = f"the installed onnx {onnx.__version__} has no example network {name!r}: {error.strerror}"
        raise InvalidModelError(problem, "install the onnx package again") from error
    model.producer_name = PRODUCER
    model.ir_version = max(model.ir_version, 4)  # from 4 on an initializer need not be an input
    _draw_weights(model.graph, np.random.default_rng(seed), EXAMPLES[name].last_gain)
    return model


def _draw_weights(graph: onnx.GraphProto, rng: np.random.Generator, last_gain: float) -> None:
    """Replace every ConstantOfShape by an initializer drawn for the operator that reads it."""
    shapes = {tensor.name: tensor for tensor in graph.initializer}
    readers: dict[str, tuple[onnx.NodeProto, int]] = {}
    for node in graph.node:
        for position, name in enumerate(node.input):
            readers.setdefault(name, (node, position))
    last = next(node for node in reversed(graph.node) if node.op_type in ("Conv", "Gemm"))
    drawn, kept = [], []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        shape = tuple(int(extent) for extent in numpy_helper.to_array(shapes[node.input[0]]))
        reader, position = _reader(readers, node.output[0])
        values = _distribution(reader, position)(rng, shape)
        if reader is last:
            values *= last_gain
        drawn.append(numpy_helper.from_array(values.astype(np.float32), node.output[0]))
    used = {name for node in kept for name in node.input}
    initializers = [tensor for tensor in graph.initializer if tensor.name in used] + drawn
    inputs = [value for value in graph.input if value.name not in shapes]
    for field, items in ((graph.node, kept), (graph.initializer, initializers), (graph.input, inputs)):
        copies = [copy.deepcopy(item) for item in items]
        del field[:]
        field.extend(copies)


def _reader(readers: dict[str, tuple[onnx.NodeProto, int]], name: str) -> tuple[onnx.NodeProto, int]:
    """Return the operator that computes with a weight, and which of its inputs that is."""
    node, position = readers[name]
    while node.op_type in ("Unsqueeze", "Reshape"):
        node, position = readers[node.output[0]]
    return node, position


def _distribution(node: onnx.NodeProto, position: int) -> _Draw:
    if node.op_type == "Conv" and position == 1:
        return lambda rng, shape: rng.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))
    if node.op_type == "Gemm" and position == 1:
        return lambda rng, shape: rng.standard_normal(shape) * math.sqrt(1 / shape[1])
    if node.op_type == "BatchNormalization" and position in (1, 4):
        return lambda rng, shape: rng.uniform(0.5, 1.2, shape)
    if node.op_type == "Mul":
        return lambda rng, shape: rng.uniform(0.6, 1.2, shape)
    return lambda rng, shape: rng.normal(0, 0.1, shape)
