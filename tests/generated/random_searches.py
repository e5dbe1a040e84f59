"""Random searches of com.microsoft, with random decoders, encoders and options."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from generated.search_networks import Sizes, gpt_decoder, t5_decoder, t5_encoder, whisper_encoder

Array = npt.NDArray[Any]


class Search(NamedTuple):
    """A search.

    Attributes:
        model: The model.
        feeds: Its inputs.
        pad: The token that fills what is left.
        prompt: How many tokens each sequence begins with.
        is_beams: Whether it follows beams, and gives scores.
    """

    model: onnx.ModelProto
    feeds: dict[str, Array]
    pad: int
    prompt: int
    is_beams: bool


def _number(value: float) -> Array:
    return np.array([value], np.int32 if isinstance(value, int) else np.float32)


class _Drawn:
    """Draws one search; inputs are by the names that the operator gives them."""

    def __init__(self, seed: int) -> None:
        self.draw, self.rng = random.Random(seed), np.random.default_rng(seed)
        draw = self.draw
        self.sizes = Sizes(
            draw.randint(8, 30), draw.randint(1, 2), draw.randint(1, 2), draw.choice((4, 8)), draw.choice((14, 17, 21))
        )
        self.batch, self.length = draw.randint(1, 3), draw.randint(1, 5)
        self.pad, self.eos = draw.sample(range(self.sizes.vocabulary), 2)
        if draw.random() < 0.3:
            self.pad = self.eos
        self.attrs: dict[str, Any] = {"eos_token_id": self.eos, "pad_token_id": self.pad}
        self.inputs: dict[str, Array | None] = {}

    def chance(self, part: float) -> bool:
        return self.draw.random() < part

    def mask(self, *shape: int) -> Array:
        return (self.rng.random(shape) < 0.7).astype(np.int32)

    def prompt(self) -> None:
        tokens = self.rng.integers(0, self.sizes.vocabulary, (self.batch, self.length)).astype(np.int32)
        for row in tokens:
            if self.chance(0.3):
                row[: self.draw.randrange(self.length)] = self.pad
        self.inputs["input_ids"] = tokens

    def options(self) -> None:
        """Draw what changes scores."""
        size = self.sizes.vocabulary
        if self.chance(0.3):
            self.inputs["min_length"] = _number(self.draw.randint(0, 8))
        if self.chance(0.3):
            self.inputs["repetition_penalty"] = _number(self.draw.choice((0.7, 1.0, 1.3, 2.0)))
        if self.chance(0.3):
            self.inputs["vocab_mask"] = self.mask(size)
        if self.chance(0.3):
            self.inputs["prefix_vocab_mask"] = self.mask(self.batch, size)
        if self.chance(0.3):
            self.inputs["attention_mask"] = self.mask(self.batch, self.length)
        if self.chance(0.3):
            self.attrs["no_repeat_ngram_size"] = self.draw.randint(1, 4)

    def gpt(self) -> None:
        seed = self.draw.randrange(1000)
        self.attrs["decoder"] = gpt_decoder(self.sizes, np.random.default_rng(seed))
        if self.chance(0.3):
            self.attrs["init_decoder"] = gpt_decoder(self.sizes, np.random.default_rng(seed + self.chance(0.5)))

    def t5(self) -> None:
        begins = self.chance(0.5)
        has_hidden = begins and self.chance(0.5)
        self.attrs["encoder"] = t5_encoder(self.sizes, self.rng, begins=begins)
        self.attrs["decoder"] = t5_decoder(self.sizes, self.rng, has_hidden=has_hidden)
        self.attrs |= {"model_type": 1, "decoder_start_token_id": self.draw.randrange(self.sizes.vocabulary)}

    def whisper(self) -> None:
        """Draw a network as Whisper's, whose prompt is a sound; its last tokens are timestamps."""
        size, features = self.sizes.vocabulary, self.draw.randint(1, 4)
        self.attrs["encoder"] = whisper_encoder(self.sizes, self.rng, features=features)
        self.attrs["decoder"] = t5_decoder(self.sizes, self.rng, has_mask=False)
        names = ("no_timestamps_token_id", "start_of_lm_token_id", "translate_token_id", "transcribe_token_id")
        tokens = self.draw.sample(range(size - 2), 5)
        self.attrs |= dict(zip(names, tokens, strict=False)) | {"decoder_start_token_id": tokens[-1], "model_type": 2}
        self.attrs["beginning_timestamp_token_id"] = self.draw.randint(size // 2, size - 1)
        self.inputs["input_ids"] = self.rng.standard_normal((self.batch, features, self.length)).astype(np.float32)
        self.inputs["attention_mask"] = None
        if self.chance(0.5):
            shape = (self.batch, self.draw.randint(1, 4))
            self.inputs["decoder_input_ids"] = self.rng.integers(0, size, shape).astype(np.int32)
        if self.chance(0.6):
            self.inputs["logits_processor"] = _number(self.draw.randint(0, 1))
        if self.chance(0.3):
            self.inputs["temperature"] = _number(self.draw.choice((0.5, 2.0)))


INPUTS = {
    "GreedySearch": (
        *("input_ids", "max_length", "min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask"),
        "attention_mask",
    ),
    "BeamSearch": (
        *("input_ids", "max_length", "min_length", "num_beams", "num_return_sequences", "length_penalty"),
        *("repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask"),
    ),
}
INPUTS["WhisperBeamSearch"] = (
    *INPUTS["BeamSearch"],
    *("decoder_input_ids", "logits_processor", "", "", "temperature"),
)
INPUTS["Sampling"] = (*INPUTS["GreedySearch"], "presence_mask", "seed")


def random_search(seed: int) -> Search:
    """Return the search of a seed."""
    drawn = _Drawn(seed)
    draw = drawn.draw
    kind = draw.choice(("GreedySearch", "Sampling", "BeamSearch", "BeamSearch", "BeamSearch", "WhisperBeamSearch"))
    is_t5 = kind == "BeamSearch" and drawn.chance(0.5)
    drawn.prompt()
    drawn.options()
    prompt = 1 if is_t5 else drawn.length
    if kind == "WhisperBeamSearch":
        drawn.whisper()
        begun = drawn.inputs.get("decoder_input_ids")
        prompt = 1 if begun is None else begun.shape[1]
    else:
        drawn.t5() if is_t5 else drawn.gpt()
    # A first step in the encoder leaves one token to the decoder, at least.
    drawn.inputs["max_length"] = _number(prompt + draw.randint(2, 12))
    least = drawn.inputs.get("min_length")
    if least is not None:
        least[:] = np.minimum(least, drawn.inputs["max_length"] - 1)
    outputs = ["sequences"]
    if kind.endswith("BeamSearch"):
        beams = draw.randint(1, min(4, drawn.sizes.vocabulary // 3))
        drawn.inputs |= {"num_beams": _number(beams), "num_return_sequences": _number(draw.randint(1, beams))}
        drawn.inputs.setdefault("min_length", _number(0))  # ONNX Runtime takes none without
        drawn.inputs["length_penalty"] = _number(draw.choice((0.0, 0.5, 1.0, 2.0)))
        drawn.attrs["early_stopping"] = draw.randint(0, 1)
        # What follows the end of one sequence of several is scored by what lies in memory.
        outputs += ["sequences_scores", "scores"][: draw.randint(0, 2 if drawn.batch == 1 else 1)]
    if kind == "Sampling":
        drawn.attrs |= {"top_p": draw.choice((0.2, 0.6, 0.9)), "temperature": draw.choice((0.5, 1.0, 3.0))}
        drawn.attrs |= {"custom": draw.randint(0, 1), "min_tokens_to_keep": draw.randint(0, 3)}
        drawn.inputs["seed"] = _number(draw.randrange(10000))
    names = [name if drawn.inputs.get(name) is not None else "" for name in INPUTS[kind]]
    node = helper.make_node(kind, names, outputs, "search", domain="com.microsoft", **drawn.attrs)
    feeds = {name: value for name, value in drawn.inputs.items() if value is not None}
    constants = {name for name in feeds if name != "input_ids" and drawn.chance(0.3)}
    model = _model(node, feeds, constants, drawn.sizes.opset)
    model.graph.initializer.extend(_outside(model.graph.node[0], draw))
    given = {name: value for name, value in feeds.items() if name not in constants}
    return Search(model, given, drawn.pad, prompt, kind.endswith("BeamSearch"))


def _outside(node: onnx.NodeProto, draw: random.Random) -> list[onnx.TensorProto]:
    """Move weights of the graphs into the one around them, as exporters do with those that several graphs share.

    Those of Whisper's and of a first step ONNX Runtime does not find there.
    """
    moved: list[onnx.TensorProto] = []
    if node.op_type == "WhisperBeamSearch" or any(attribute.name == "init_decoder" for attribute in node.attribute):
        return moved
    for attribute in node.attribute:
        if attribute.type != onnx.AttributeProto.GRAPH or draw.random() < 0.5:
            continue
        graph = attribute.g
        names = {tensor.name: f"{attribute.name}.{tensor.name}" for tensor in graph.initializer}
        for tensor in graph.initializer:
            moved.append(onnx.TensorProto.FromString(tensor.SerializeToString()))
            moved[-1].name = names[tensor.name]
        del graph.initializer[:]
        for inner in graph.node:
            inner.input[:] = [names.get(name, name) for name in inner.input]
    return moved


def _model(node: onnx.NodeProto, feeds: dict[str, Array], constants: set[str], opset: int) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feeds.items()
        if name not in constants
    ]
    tensors = [numpy_helper.from_array(value, name) for name, value in feeds.items() if name in constants]
    kinds = {"sequences": onnx.TensorProto.INT32}
    outputs = [
        helper.make_tensor_value_info(name, kinds.get(name, onnx.TensorProto.FLOAT), None) for name in node.output
    ]
    graph = helper.make_graph([node], "search", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
