"""Networks for tests: the nine light ones with weights that tell right from wrong, an MLP, BERT-style encoders, edits.

The light networks' own weights are constants (every output of a layer is equal), so a kernel that mixes up channels
would pass. ``light`` therefore takes the models of ``opbuild example``, whose weights are drawn as for training, and
leaves the last Softmax out.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from opbuild.frontend.example_models import example_model, light_path

Array = npt.NDArray[np.generic]

LIGHT = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet", "vgg19",
    "zfnet512",
)  # fmt: skip
"""Names of the networks that the onnx package brings with it."""


def expected_output(name: str) -> Array:
    """Return the output that comes with a light network; ``light_input`` is the input it belongs to."""
    tensor = TensorProto()
    tensor.ParseFromString(light_path(name).with_name(f"light_{name}_output_0.pb").read_bytes())
    return numpy_helper.to_array(tensor)


def light_input(name: str) -> Array:
    """Return the input for which ``expected_output`` holds: numbers from 0 to 1 in rising order."""
    model = onnx.load(light_path(name))
    known = {tensor.name for tensor in model.graph.initializer}
    (value,) = (each for each in model.graph.input if each.name not in known)
    shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    count = math.prod(shape)
    return (np.arange(count, dtype=np.float32) / np.float32(count)).reshape(shape)


def random_input(model: onnx.ModelProto, seed: int = 1) -> dict[str, Array]:
    """Return normally distributed values (small whole numbers for integers) for a model's inputs with fixed shapes."""
    rng = np.random.default_rng(seed)
    known = {tensor.name for tensor in model.graph.initializer}
    feeds: dict[str, Array] = {}
    for value in model.graph.input:
        if value.name in known:
            continue
        kind = value.type.tensor_type
        shape = tuple(dim.dim_value for dim in kind.shape.dim)
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        whole = np.issubdtype(dtype, np.integer)
        feeds[value.name] = (rng.integers(0, 8, shape) if whole else rng.standard_normal(shape)).astype(dtype)
    return feeds


def light(name: str, random_weights: bool = True, seed: int = 0, without_softmax: bool = True) -> onnx.ModelProto:
    """Return a light network.

    Args:
        name: One of ``LIGHT``.
        random_weights: Those of ``opbuild example``; else the file's constants stay.
        seed: Of the weights.
        without_softmax: Leave the last Softmax out.
    """
    model = example_model(name, seed) if random_weights else onnx.load(light_path(name))
    if without_softmax:
        _remove_last_softmax(model.graph)
    return model


def _remove_last_softmax(graph: onnx.GraphProto) -> None:
    last = graph.node[-1]
    if last.op_type != "Softmax":
        return
    before = next(node for node in graph.node if last.input[0] in node.output)
    before.output[list(before.output).index(last.input[0])] = last.output[0]
    graph.node.remove(last)


# Edits


def conv_to_5x5(model: onnx.ModelProto, index: int = 0, seed: int = 7) -> onnx.ModelProto:
    """Return a copy in which the ``index``-th 3x3 Conv of stride 1 has a 5x5 kernel and its output the same shape."""
    changed = copy.deepcopy(model)
    for node, tensor in _convolutions(changed.graph):
        attrs = {attribute.name: attribute for attribute in node.attribute}
        if tensor.dims[2:] != [3, 3] or ("strides" in attrs and list(attrs["strides"].ints) != [1, 1]):
            continue
        if index == 0:
            weights = numpy_helper.to_array(tensor)
            shape = (*weights.shape[:2], 5, 5)
            drawn = np.random.default_rng(seed).standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))
            tensor.CopyFrom(numpy_helper.from_array(drawn.astype(np.float32), tensor.name))
            attrs["kernel_shape"].ints[:] = [5, 5]
            attrs["pads"].ints[:] = [pad + 1 for pad in attrs["pads"].ints]
            return changed
        index -= 1
    raise ValueError("the model has no such convolution")


def scale_weights(model: onnx.ModelProto, factor: float = 1.25) -> onnx.ModelProto:
    """Return a copy in which the first Conv's weights are multiplied by a factor."""
    changed = copy.deepcopy(model)
    _, tensor = next(_convolutions(changed.graph))
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(factor), tensor.name))
    return changed


def resnet50_with_channels(channels: int = 96, seed: int = 0) -> onnx.ModelProto:
    """Return ResNet-50 whose first 3x3 Conv makes another number of channels than 64, which its successor reads."""
    changed = light("resnet50", seed=seed)
    graph = changed.graph
    first = next(node for node, tensor in _convolutions(graph) if tensor.dims[2:] == [3, 3])
    resized = {first.input[1]: 0}
    value, successor = first.output[0], None
    while successor is None:
        (reader,) = (node for node in graph.node if value in node.input)
        if reader.op_type == "BatchNormalization":
            resized.update(dict.fromkeys(reader.input[1:], 0))
        elif reader.op_type == "Conv":
            successor = reader
            resized[reader.input[1]] = 1
        value = reader.output[0]
    resized.update(dict.fromkeys(first.input[2:], 0))
    for tensor in graph.initializer:
        if tensor.name in resized:
            axis = resized[tensor.name]
            old = numpy_helper.to_array(tensor)
            new = np.take(old, np.arange(channels) % old.shape[axis], axis)
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(new), tensor.name))
    return changed


def resnet50_any_size(height: int, width: int, seed: int = 0) -> onnx.ModelProto:
    """Return ResNet-50 for another image size: its AveragePool over 7x7 becomes a GlobalAveragePool."""
    changed = light("resnet50", seed=seed)
    pool = next(node for node in changed.graph.node if node.op_type == "AveragePool")
    pool.op_type = "GlobalAveragePool"
    del pool.attribute[:]
    return with_input_shape(changed, (1, 3, height, width))


def with_input_shape(model: onnx.ModelProto, shape: tuple[int | str, ...]) -> onnx.ModelProto:
    """Return a copy whose first input has another declared shape; a string leaves that extent open."""
    changed = copy.deepcopy(model)
    known = {tensor.name for tensor in changed.graph.initializer}
    value = next(each for each in changed.graph.input if each.name not in known)
    kind = value.type.tensor_type.elem_type
    value.CopyFrom(helper.make_tensor_value_info(value.name, kind, shape))
    del changed.graph.value_info[:]
    for output in changed.graph.output:
        output.type.tensor_type.ClearField("shape")
    return changed


def _convolutions(graph: onnx.GraphProto) -> Iterator[tuple[onnx.NodeProto, TensorProto]]:
    weights = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Conv" and node.input[1] in weights:
            yield node, weights[node.input[1]]


# Networks without a file


class Writer:
    """Collects the nodes and weights of a model."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []
        self._rng = np.random.default_rng(seed)

    def add(self, op_type: str, *inputs: str, **attrs: object) -> str:
        name = f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name, **attrs))
        return name

    def constant(self, values: object, dtype: str = "float32") -> str:
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def drawn(self, *shape: int, scale: float | None = None, mean: float = 0.0) -> str:
        spread = 1 / math.sqrt(shape[0]) if scale is None else scale
        return self.constant(mean + self._rng.standard_normal(shape) * spread)

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        return self.add("Add", self.add("MatMul", x, self.drawn(inputs, outputs)), self.drawn(outputs, scale=0.1))

    def model(self, inputs: list[onnx.ValueInfoProto], output: str, opset: int) -> onnx.ModelProto:
        result = onnx.ValueInfoProto(name=output)
        result.type.tensor_type.elem_type = TensorProto.FLOAT
        graph = helper.make_graph(self.nodes, "network", inputs, [result], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def mlp(batch: int = 4, sizes: tuple[int, ...] = (64, 128, 96, 10), seed: int = 0, opset: int = 17) -> onnx.ModelProto:
    """Return a perceptron of Gemm and Relu layers; input ``x`` is ``[batch, sizes[0]]`` float32."""
    to = Writer(seed)
    value = "x"
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        value = to.add("Gemm", value, to.drawn(inputs, outputs), to.drawn(outputs, scale=0.1))
        if layer < len(sizes) - 2:
            value = to.add("Relu", value)
    return to.model([helper.make_tensor_value_info("x", TensorProto.FLOAT, (batch, sizes[0]))], value, opset)


def bert(
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    seq: int = 16,
    *,
    batch: int = 1,
    vocabulary: int = 128,
    decomposed: bool = True,
    seed: int = 0,
) -> onnx.ModelProto:
    """Return a BERT-style encoder.

    Args:
        layers: Number of encoder layers.
        hidden: Width; the feed-forward part is four times as wide.
        heads: Attention heads.
        seq: Tokens in a sequence.
        batch: Sequences.
        vocabulary: Distinct tokens.
        decomposed: LayerNormalization and Gelu written out as older exporters do (opset 13); else as operators (20).
        seed: Of the weights.

    Returns:
        A model of ``input_ids`` (int64 ``[batch, seq]``) and ``attention_mask`` (int64, 1 where a token is real).
    """
    to = Writer(seed)
    words = to.add("Gather", to.drawn(vocabulary, hidden, scale=1.0), "input_ids")
    positions = to.drawn(seq, hidden, scale=0.5)
    mask = to.add("Cast", to.add("Unsqueeze", "attention_mask", to.constant([1, 2], "int64")), to=TensorProto.FLOAT)
    masked = to.add("Mul", to.add("Sub", to.constant(1.0), mask), to.constant(-10000.0))
    x = _norm(to, to.add("Add", words, positions), hidden, decomposed)
    for _ in range(layers):
        attended = _attention(to, x, masked, (batch, seq, hidden, heads))
        x = _norm(to, to.add("Add", x, attended), hidden, decomposed)
        wide = _gelu(to, to.linear(x, hidden, 4 * hidden), decomposed)
        x = _norm(to, to.add("Add", x, to.linear(wide, 4 * hidden, hidden)), hidden, decomposed)
    names = ("input_ids", "attention_mask")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, (batch, seq)) for name in names]
    return to.model(inputs, x, 13 if decomposed else 20)


def bert_input(batch: int = 1, seq: int = 16, vocabulary: int = 128, seed: int = 3) -> dict[str, Array]:
    """Return tokens, and a mask in which the last quarter of each sequence is padding."""
    mask = np.ones((batch, seq), np.int64)
    mask[:, seq - seq // 4 :] = 0
    return {
        "input_ids": np.random.default_rng(seed).integers(0, vocabulary, (batch, seq)),
        "attention_mask": mask,
    }


def _attention(to: Writer, x: str, mask: str, sizes: tuple[int, int, int, int]) -> str:
    batch, seq, hidden, heads = sizes
    split = to.constant([batch, seq, heads, hidden // heads], "int64")
    queries, keys, values = (
        to.add("Transpose", to.add("Reshape", to.linear(x, hidden, hidden), split), perm=perm)
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    scores = to.add("Div", to.add("MatMul", queries, keys), to.constant(math.sqrt(hidden / heads)))
    weights = to.add("Softmax", to.add("Add", scores, mask), axis=-1)
    mixed = to.add("Transpose", to.add("MatMul", weights, values), perm=[0, 2, 1, 3])
    return to.linear(to.add("Reshape", mixed, to.constant([batch, seq, hidden], "int64")), hidden, hidden)


def _norm(to: Writer, x: str, hidden: int, decomposed: bool) -> str:
    scale, bias = to.drawn(hidden, scale=0.1, mean=1.0), to.drawn(hidden, scale=0.1)
    if not decomposed:
        return to.add("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)
    centred = to.add("Sub", x, to.add("ReduceMean", x, axes=[-1]))
    variance = to.add("ReduceMean", to.add("Pow", centred, to.constant(2.0)), axes=[-1])
    deviation = to.add("Sqrt", to.add("Add", variance, to.constant(1e-5)))
    return to.add("Add", to.add("Mul", to.add("Div", centred, deviation), scale), bias)


def _gelu(to: Writer, x: str, decomposed: bool) -> str:
    if not decomposed:
        return to.add("Gelu", x)
    erf = to.add("Erf", to.add("Div", x, to.constant(math.sqrt(2))))
    return to.add("Mul", to.add("Mul", x, to.add("Add", erf, to.constant(1.0))), to.constant(0.5))


@lru_cache(maxsize=1)
def newest_opset() -> int:
    """Return the newest operator set that the installed onnx package knows."""
    return onnx.defs.onnx_opset_version()
