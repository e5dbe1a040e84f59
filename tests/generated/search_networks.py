"""Small decoders and encoders for com.microsoft's searches, as convert_generation writes them, with random weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]

FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
Shape = Sequence["int | str"]


class Sizes:
    """Sizes of a network.

    Attributes:
        vocabulary, layers, heads, size: Tokens, layers, heads of each, and elements of a head.
        places: Most tokens of a sequence.
        opset: The operator set.
    """

    def __init__(self, vocabulary: int, layers: int, heads: int, size: int, opset: int, places: int = 40) -> None:
        self.vocabulary, self.layers, self.heads, self.size = vocabulary, layers, heads, size
        self.places, self.opset, self.hidden = places, opset, heads * size


class Writer:
    """Writes one graph; weights are normal, and the same for the same name if ``shared`` holds them."""

    def __init__(self, sizes: Sizes, rng: np.random.Generator) -> None:
        self.sizes, self._rng = sizes, rng
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self._count = 0

    def __call__(self, op_type: str, *inputs: str, outputs: Sequence[str] = (), domain: str = "", **attrs: Any) -> str:
        """Add a node and return its first output."""
        self._count += 1
        names = list(outputs) or [f"v{self._count}"]
        self.nodes.append(helper.make_node(op_type, inputs, names, f"n{self._count}", domain=domain, **attrs))
        return names[0]

    def constant(self, value: Array) -> str:
        """Add a constant."""
        self._count += 1
        self.tensors.append(numpy_helper.from_array(value, f"c{self._count}"))
        return self.tensors[-1].name

    def ints(self, *values: int) -> str:
        """Add a list of integers."""
        return self.constant(np.array(values, np.int64))

    def weights(self, *shape: int, scale: float = 1.0) -> str:
        """Add random weights."""
        values = self._rng.standard_normal(shape) * scale / np.sqrt(shape[0])
        return self.constant(values.astype(np.float32))

    def split(self, value: str) -> str:
        """Write ``(batch, length, hidden)`` as ``(batch, heads, length, size)``."""
        apart = self("Reshape", value, self.ints(0, 0, self.sizes.heads, self.sizes.size))
        return self("Transpose", apart, perm=[0, 2, 1, 3])

    def attend(self, query: str, key: str, value: str, shown: str = "") -> str:
        """Write attention of heads, and their join."""
        scores = self("MatMul", query, self("Transpose", key, perm=[0, 1, 3, 2]))
        if shown:
            scores = self("Add", scores, shown)
        joined = self("Transpose", self("MatMul", self("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
        return self("Reshape", joined, self.ints(0, 0, self.sizes.hidden))

    def hidden_by(self, mask: str) -> str:
        """Write what a mask ``(batch, keys)`` adds to scores."""
        axes = self("Unsqueeze", mask, self.ints(1, 2))
        missing = self("Sub", self.constant(np.float32(1)), self("Cast", axes, to=FLOAT))
        return self("Mul", missing, self.constant(np.float32(-1e4)))

    def logits(self, x: str) -> None:
        """Write the logits of a token that follows each."""
        self("MatMul", x, self.weights(self.sizes.hidden, self.sizes.vocabulary, scale=4), outputs=["logits"])

    def graph(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> onnx.GraphProto:
        """Return it as a graph; inputs and outputs are names, element types and shapes."""
        declared = ([helper.make_tensor_value_info(*each) for each in values] for values in (inputs, outputs))
        return helper.make_graph(self.nodes, name, *declared, self.tensors)


def gpt_decoder(sizes: Sizes, rng: np.random.Generator) -> onnx.GraphProto:
    """Return a decoder as GPT-2's: positions, a mask, and one tensor of earlier keys and values for each layer."""
    of = Writer(sizes, rng)
    h = sizes.hidden
    places = of("Gather", of.weights(sizes.places, h, scale=4), "position_ids")
    x = of("Add", of("Gather", of.weights(sizes.vocabulary, h, scale=4), "input_ids"), places)
    for layer in range(sizes.layers):
        value = of(
            *("Attention", x, of.weights(h, 3 * h), of.weights(3 * h), "attention_mask", f"past_{layer}"),
            outputs=[f"a{layer}", f"present_{layer}"],
            domain="com.microsoft",
            num_heads=sizes.heads,
            unidirectional=1,
        )
        x = of("Add", x, of("MatMul", of("Tanh", value), of.weights(h, h)))
    of.logits(x)
    cache = (2, "batch", sizes.heads, "past", sizes.size)
    inputs = [(n, INT32, ("batch", "length")) for n in ("input_ids", "position_ids")]
    inputs += [("attention_mask", INT32, ("batch", "total"))]
    inputs += [(f"past_{layer}", FLOAT, cache) for layer in range(sizes.layers)]
    outputs: list[Any] = [("logits", FLOAT, ("batch", "length", sizes.vocabulary))]
    outputs += [(f"present_{layer}", FLOAT, (*cache[:3], "total", sizes.size)) for layer in range(sizes.layers)]
    return of.graph("decoder", inputs, outputs)


def _pairs(kind: str, when: str, sizes: Sizes, length: str) -> list[Any]:
    shape = ("batch", sizes.heads, length, sizes.size)
    return [(f"{when}_{each}_{kind}_{i}", FLOAT, shape) for i in range(sizes.layers) for each in ("key", "value")]


def _t5_layers(of: Writer, x: str, cross: Sequence[str], *, has_past: bool, has_mask: bool = True) -> str:
    """Write layers; of several new tokens each sees all, as none needs to be hidden from them."""
    sizes = of.sizes
    h = sizes.hidden
    shown = of.hidden_by("encoder_attention_mask") if has_mask else ""
    for layer in range(sizes.layers):
        new = [of.split(of("MatMul", x, of.weights(h, h))) for _ in range(2)]
        for index, each in enumerate(("key", "value")):
            before = [f"past_{each}_self_{layer}"] if has_past else []
            new[index] = of("Concat", *before, new[index], axis=2, outputs=[f"present_{each}_self_{layer}"])
        x = of("Add", x, of.attend(of.split(of("MatMul", x, of.weights(h, h))), *new))
        asked = of.split(of("MatMul", x, of.weights(h, h)))
        x = of("Add", x, of("Tanh", of.attend(asked, *cross[2 * layer : 2 * layer + 2], shown)))
    return x


def t5_decoder(
    sizes: Sizes, rng: np.random.Generator, *, has_hidden: bool = False, has_mask: bool = True
) -> onnx.GraphProto:
    """Return a decoder as T5's: keys and values apart, those of the encoder behind those of itself; or Whisper's."""
    of = Writer(sizes, rng)
    x = of("Gather", of.weights(sizes.vocabulary, sizes.hidden, scale=4), "input_ids")
    cross = [name for name, *_ in _pairs("cross", "past", sizes, "")]
    place = of("Slice", of("Shape", "past_key_self_0"), of.ints(2), of.ints(3), of.ints(0))
    x = of("Add", x, of("Gather", of.weights(sizes.places, sizes.hidden, scale=4), place))
    if has_hidden:
        x = of("Add", x, of("ReduceSum", "encoder_hidden_states", of.ints(1), keepdims=1))
    of.logits(_t5_layers(of, x, cross, has_past=True, has_mask=has_mask))
    inputs: list[Any] = [("input_ids", INT32, ("batch", 1))]
    if has_mask:
        inputs.append(("encoder_attention_mask", INT32, ("batch", "source")))
    if has_hidden:
        inputs.append(("encoder_hidden_states", FLOAT, ("batch", "source", sizes.hidden)))
    inputs += _pairs("self", "past", sizes, "past") + _pairs("cross", "past", sizes, "source")
    outputs: list[Any] = [("logits", FLOAT, ("batch", 1, sizes.vocabulary))]
    return of.graph("decoder", inputs, outputs + _pairs("self", "present", sizes, "total"))


def t5_encoder(sizes: Sizes, rng: np.random.Generator, *, begins: bool) -> onnx.GraphProto:
    """Return an encoder as T5's; if ``begins`` with the first step of the decoder, as older exporters wrote it."""
    of = Writer(sizes, rng)
    h = sizes.hidden
    x = of("Gather", of.weights(sizes.vocabulary, h, scale=4), "encoder_input_ids")
    query, key, value = (of.split(of("MatMul", x, of.weights(h, h))) for _ in range(3))
    states = of("Add", x, of.attend(query, key, value, of.hidden_by("encoder_attention_mask")))
    states = of("Identity", states, outputs=["encoder_hidden_states"])
    cross = [name for name, *_ in _pairs("cross", "present", sizes, "")]
    for name in cross:
        of("Identity", of.split(of("MatMul", states, of.weights(h, h))), outputs=[name])
    inputs = [(n, INT32, ("batch", "source")) for n in ("encoder_input_ids", "encoder_attention_mask")]
    outputs: list[Any] = []
    if begins:
        start = of("Gather", of.weights(sizes.vocabulary, h, scale=4), "decoder_input_ids")
        of.logits(_t5_layers(of, start, cross, has_past=False))
        inputs.append(("decoder_input_ids", INT32, ("batch", 1)))
        outputs = [("logits", FLOAT, ("batch", 1, sizes.vocabulary))]
        outputs += [("encoder_hidden_states", FLOAT, ("batch", "source", h)), *_pairs("self", "present", sizes, "one")]
    outputs += _pairs("cross", "present", sizes, "source")
    return of.graph("encoder", inputs, outputs)


def whisper_encoder(sizes: Sizes, rng: np.random.Generator, *, features: int) -> onnx.GraphProto:
    """Return an encoder of sounds as Whisper's, with the first step of the decoder."""
    of = Writer(sizes, rng)
    h = sizes.hidden
    frames = of("Transpose", "encoder_input_ids", perm=[0, 2, 1])
    states = of("Tanh", of("MatMul", frames, of.weights(features, h)), outputs=["encoder_hidden_states"])
    cross = [name for name, *_ in _pairs("cross", "present", sizes, "")]
    for name in cross:
        of("Identity", of.split(of("MatMul", states, of.weights(h, h))), outputs=[name])
    start = of("Gather", of.weights(sizes.vocabulary, h, scale=4), "decoder_input_ids")
    of.logits(_t5_layers(of, start, cross, has_past=False, has_mask=False))
    inputs: list[Any] = [("encoder_input_ids", FLOAT, ("batch", features, "frames"))]
    inputs.append(("decoder_input_ids", INT32, ("batch", "begun")))
    outputs: list[Any] = [("logits", FLOAT, ("batch", "begun", sizes.vocabulary))]
    outputs += [("encoder_hidden_states", FLOAT, ("batch", "frames", h)), *_pairs("self", "present", sizes, "begun")]
    return of.graph("encoder", inputs, outputs + _pairs("cross", "present", sizes, "frames"))
