"""Searches, experts and tokenizers of com.microsoft: what is refused, and what ONNX Runtime has for GPUs only."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper

import opbuild
from generated.search_networks import Sizes, gpt_decoder, t5_decoder, t5_encoder
from opbuild.errors import InvalidModelError, OpbuildError, RunError, UnsupportedOperatorError
from support.walk_runner import WalkRunner

Array = npt.NDArray[Any]

SIZES = Sizes(12, 1, 2, 4, 17)
TOKENS = np.array([[3, 4, 5], [6, 7, 8]], np.int32)


def i32(*values: int) -> Array:
    """Return integers."""
    return np.array(values, np.int32)


def model(
    op_type: str, inputs: list[Array | None], attrs: dict[str, Any], outputs: int = 1
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a node of com.microsoft as a model, and its inputs."""
    names = [f"i{index}" if value is not None else "" for index, value in enumerate(inputs)]
    results = [f"o{index}" for index in range(outputs)]
    node = helper.make_node(op_type, names, results, "node", domain="com.microsoft", **attrs)
    feeds = {name: value for name, value in zip(names, inputs, strict=True) if value is not None}
    kinds = {n: helper.np_dtype_to_tensor_dtype(v.dtype) if v.dtype != object else 8 for n, v in feeds.items()}
    infos = [helper.make_tensor_value_info(name, kinds[name], value.shape) for name, value in feeds.items()]
    graph = helper.make_graph([node], "graph", infos, [onnx.ValueInfoProto(name=name) for name in results])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), feeds


def search(op_type: str, inputs: list[Array | None], outputs: int = 1, **attrs: Any) -> list[Any]:
    """Return the outputs of a search on the host."""
    decoder = gpt_decoder(SIZES, np.random.default_rng(0))
    made, feeds = model(op_type, inputs, {"decoder": decoder, "eos_token_id": 1, "pad_token_id": 0} | attrs, outputs)
    return WalkRunner(made)(**feeds)


def test_tokens_that_are_present_are_less_likely_in_every_sequence() -> None:
    """ONNX Runtime's kernel for CPUs subtracts the penalty from one score alone."""
    mask = np.ones((2, 12), np.int32)
    mask[:, [4, 9]] = 0
    attrs = {"presence_penalty": 1e6, "top_p": 0.9}
    (found,) = search("Sampling", [TOKENS, i32(8), i32(1), None, None, None, None, mask, i32(5)], **attrs)
    assert {*found[:, 3:].flat} <= {4, 9}


def test_the_same_seed_chooses_the_same_tokens() -> None:
    """And without one they differ sooner or later."""
    inputs = [TOKENS, i32(10), i32(9), None, None, None, None, None, i32(5)]
    first, second = (search("Sampling", inputs, temperature=3.0, top_p=0.95)[0] for _ in range(2))
    assert np.array_equal(first, second)
    others = [search("Sampling", inputs[:8], temperature=3.0, top_p=0.95)[0] for _ in range(6)]
    assert len({other.tobytes() for other in others}) > 1


@pytest.mark.parametrize(
    ("inputs", "attrs", "said"),
    [
        ([TOKENS, i32(3)], {}, "max_length is 3, not more than 3 tokens"),
        ([TOKENS, i32(9), None, np.float32([0])], {}, "repetition_penalty is 0.0, not more than 0"),
        ([TOKENS, i32(9), None, None, np.ones(5, np.int32)], {}, "vocab_mask has 5 tokens, the vocabulary 12"),
        ([TOKENS, i32(9), None, None, None, None, np.ones((2, 2), np.int32)], {}, "attention_mask has shape"),
    ],
)
def test_options_that_do_not_fit_are_errors(inputs: list[Array | None], attrs: dict[str, Any], said: str) -> None:
    """They name the option, and what it may be."""
    with pytest.raises(RunError, match=said):
        search("GreedySearch", inputs, **attrs)


def test_beams_that_do_not_fit_are_errors() -> None:
    """Their number, and that of the sequences to return."""
    with pytest.raises(RunError, match="num_beams is 0, not 1 to 128"):
        search("BeamSearch", [TOKENS, i32(9), i32(0), i32(0), i32(1)])
    with pytest.raises(RunError, match="num_return_sequences is 3, not 1 to 2, which num_beams is"):
        search("BeamSearch", [TOKENS, i32(9), i32(0), i32(2), i32(3)])


def test_searches_of_other_forms_are_refused_when_they_are_read() -> None:
    """With the node's name and what is the matter."""
    encoder, decoder = (make(SIZES, np.random.default_rng(0)) for make in (_encoder, t5_decoder))
    attrs = {"encoder": encoder, "decoder": decoder, "eos_token_id": 1, "pad_token_id": 0, "model_type": 1}
    for op_type, inputs, changed, said in (
        ("GreedySearch", [TOKENS, i32(9)], {}, "model_type is 1, not 0"),
        ("BeamSearch", [TOKENS, i32(9), i32(0), i32(2), i32(1)], {"model_type": 0}, "buffers that past and present"),
        ("BeamSearch", [TOKENS, i32(9), i32(0), i32(2), i32(1)], {"encoder": decoder}, "its encoder has"),
    ):
        made, _ = model(op_type, inputs, attrs | changed)
        with pytest.raises(UnsupportedOperatorError, match=f"{op_type} node 'node': .*{said}"):
            opbuild.compile(made)


def test_a_search_without_an_end_and_an_operator_with_a_graph_are_refused() -> None:
    """What is missing, or too much, is named."""
    decoder = gpt_decoder(SIZES, np.random.default_rng(0))
    made, _ = model("GreedySearch", [TOKENS, i32(9)], {"decoder": decoder, "pad_token_id": 0})
    with pytest.raises(InvalidModelError, match="GreedySearch node 'node' lacks the attribute 'eos_token_id'"):
        opbuild.compile(made)
    made, _ = model("RotaryEmbedding", [np.zeros((3, 4), np.float32)], {"decoder": decoder})
    with pytest.raises(InvalidModelError, match="which reads 'i0', has a graph that its operator does not take"):
        opbuild.compile(made)


def _encoder(sizes: Sizes, rng: np.random.Generator) -> onnx.GraphProto:
    return t5_encoder(sizes, rng, begins=False)


def test_a_third_layer_of_experts_multiplies_the_first() -> None:
    """ONNX Runtime's kernel for CPUs has none; float16 is computed in float32 besides the weights' own rounding."""
    rng = np.random.default_rng(0)
    x, router = rng.standard_normal((3, 4)), rng.standard_normal((3, 2))
    first, second, third = (rng.standard_normal(shape) for shape in ((2, 6, 4), (2, 4, 6), (2, 6, 4)))
    share = np.exp(router) / np.exp(router).sum(axis=1, keepdims=True)
    gate = np.einsum("eih,th->tei", first, x)
    value = gate / (1 + np.exp(-gate)) * np.einsum("eih,th->tei", third, x)
    wanted = np.einsum("te,teh->th", share, np.einsum("ehi,tei->teh", second, value))
    for dtype, close in ((np.float32, 1e-5), (np.float16, 2e-2)):
        arrays = [
            None if each is None else each.astype(dtype) for each in (x, router, first, None, second, None, third)
        ]
        made, feeds = model("MoE", arrays, {"k": 2, "activation_type": "silu"})
        (found,) = WalkRunner(made)(**feeds)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, wanted, rtol=close, atol=close)


def test_gates_may_lie_behind_one_another() -> None:
    """``swiglu_fusion`` 2: first all gates, then all that they open."""
    rng = np.random.default_rng(0)
    x, router = rng.standard_normal((3, 4)).astype(np.float32), rng.standard_normal((3, 2)).astype(np.float32)
    first, second = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 12, 4), (2, 4, 6)))
    turned = first.reshape(2, 2, 6, 4).transpose(0, 2, 1, 3).reshape(2, 12, 4)
    attrs = {"k": 1, "activation_type": "swiglu", "activation_alpha": 1.7, "activation_beta": 1.0, "swiglu_limit": 2.0}
    results = []
    for fusion, weights in ((1, turned), (2, first)):
        made, feeds = model("MoE", [x, router, weights, None, second], attrs | {"swiglu_fusion": fusion})
        results += WalkRunner(made)(**feeds)
    np.testing.assert_allclose(*results, rtol=1e-6)


@pytest.mark.parametrize(
    ("op_type", "attrs", "said"),
    [
        ("MoE", {"k": 3}, "it chooses k = 3 of 2 experts"),
        ("MoE", {"activation_type": "relu2"}, "its activation 'relu2' is not served"),
        ("MoE", {"activation_type": "swiglu"}, "swiglu needs swiglu_fusion 1 or 2, or a third layer"),
    ],
)
def test_experts_of_other_forms_are_refused(op_type: str, attrs: dict[str, Any], said: str) -> None:
    """With the node's name and what is the matter."""
    inputs = [np.zeros(shape, np.float32) for shape in ((3, 4), (3, 2), (2, 6, 4))]
    made, feeds = model(op_type, [*inputs, None, np.zeros((2, 4, 6), np.float32)], attrs)
    with pytest.raises(UnsupportedOperatorError, match=f"{op_type} node 'node': {said}"):
        WalkRunner(made)(**feeds)


@pytest.mark.parametrize(
    ("attrs", "said"),
    [
        ({}, "neither separators nor tokenexp"),
        ({"tokenexp": "(a"}, "is not valid"),
        ({"tokenexp": ".", "mincharnum": 2}, "mincharnum is 2, and each character is a token"),
        ({"tokenexp": "a(?=b)"}, "RE2 has no groups that begin with"),
    ],
)
def test_tokenizers_that_make_no_sense_are_errors(attrs: dict[str, Any], said: str) -> None:
    """They say what is the matter."""
    made, feeds = model("Tokenizer", [np.array(["ab"], object)], {"mark": 0, "pad_value": "", "mincharnum": 1} | attrs)
    with pytest.raises(OpbuildError) as raised:
        opbuild.compile(made).run(None, feeds)
    assert said in str(raised.value)
