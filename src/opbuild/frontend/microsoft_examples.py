"""A small model of each operator of ONNX Runtime that opbuild knows, by which its support is asked.

Which operators there are the registries say: what is written with ONNX's operators, and what has a shape rule. Searches
have decoders and encoders with one layer, of one head: a token's successor is the likeliest; keys and values are kept,
as a search wants them, and nothing attends to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

from opbuild.frontend.onnx_examples import ExampleOperand, OperatorExample, Usage, model_of
from opbuild.frontend.onnx_examples import given as _x
from opbuild.frontend.onnx_examples import known as _w
from opbuild.frontend.rewritten import MICROSOFT, NCHWC, REWRITES
from opbuild.graph.passes import infer  # noqa: F401 - it registers the rules
from opbuild.graph.shape_rules import RULES
from opbuild.platform.records import NamedTuple

_GPT_DECODER = """
decoder (int32[batch, length] input_ids, int32[batch, length] position_ids, int32[batch, total] attention_mask,
         FLOAT[2, batch, 1, past, 8] past_0)
     => (FLOAT[batch, length, 8] logits, FLOAT[2, batch, 1, total, 8] present_0) {
    logits = Gather(next, input_ids)
    axes = Constant <value_ints = [0, 2]> ()
    new = Unsqueeze(logits, axes)
    both = Concat <axis = 0> (new, new)
    present_0 = Concat <axis = 3> (past_0, both)
}
"""
_DECODER = """
decoder (int32[batch, 1] input_ids, MASK FLOAT[batch, 1, past, 8] past_key_self_0,
         FLOAT[batch, 1, past, 8] past_value_self_0, FLOAT[batch, 1, source, 8] past_key_cross_0,
         FLOAT[batch, 1, source, 8] past_value_cross_0)
     => (FLOAT[batch, 1, 8] logits, FLOAT[batch, 1, total, 8] present_key_self_0,
         FLOAT[batch, 1, total, 8] present_value_self_0) {
    logits = Gather(next, input_ids)
    axes = Constant <value_ints = [1]> ()
    new = Unsqueeze(logits, axes)
    present_key_self_0 = Concat <axis = 2> (past_key_self_0, new)
    present_value_self_0 = Concat <axis = 2> (past_value_self_0, new)
}
"""
_T5_ENCODER = """
encoder (int32[batch, source] encoder_input_ids, int32[batch, source] encoder_attention_mask)
     => (FLOAT[batch, 1, source, 8] present_key_cross_0, FLOAT[batch, 1, source, 8] present_value_cross_0) {
    states = Gather(next, encoder_input_ids)
    axes = Constant <value_ints = [1]> ()
    present_key_cross_0 = Unsqueeze(states, axes)
    present_value_cross_0 = Unsqueeze(states, axes)
}
"""
_WHISPER_ENCODER = """
encoder (FLOAT[batch, 4, frames] encoder_input_ids, int32[batch, begun] decoder_input_ids)
     => (FLOAT[batch, begun, 8] logits, FLOAT[batch, frames, 8] encoder_hidden_states,
         FLOAT[batch, 1, begun, 8] present_key_self_0, FLOAT[batch, 1, begun, 8] present_value_self_0,
         FLOAT[batch, 1, frames, 8] present_key_cross_0, FLOAT[batch, 1, frames, 8] present_value_cross_0) {
    frames = Transpose <perm = [0, 2, 1]> (encoder_input_ids)
    encoder_hidden_states = Concat <axis = 2> (frames, frames)
    logits = Gather(next, decoder_input_ids)
    axes = Constant <value_ints = [1]> ()
    present_key_self_0 = Unsqueeze(logits, axes)
    present_value_self_0 = Unsqueeze(logits, axes)
    present_key_cross_0 = Unsqueeze(encoder_hidden_states, axes)
    present_value_cross_0 = Unsqueeze(encoder_hidden_states, axes)
}
"""


class _Graph:
    """A graph, once the element type is known of its values and of its table of successors."""

    def __init__(self, text: str, mask: str = "") -> None:
        self.text = text.replace("MASK", mask)

    def __call__(self, dtype: str) -> onnx.GraphProto:
        graph = parser.parse_graph(self.text.replace("FLOAT", "float" if dtype == "float32" else dtype))
        graph.initializer.append(numpy_helper.from_array(np.eye(8, k=1, dtype=dtype), "next"))
        return graph


_ENDS = {"eos_token_id": 7, "pad_token_id": 0}
_STARTS = {**_ENDS, "decoder_start_token_id": 1}

GPT: dict[str, Any] = {**_ENDS, "decoder": _Graph(_GPT_DECODER)}
T5: dict[str, Any] = {
    **_STARTS,
    "model_type": 1,
    "encoder": _Graph(_T5_ENCODER),
    "decoder": _Graph(_DECODER, "int32[batch, source] encoder_attention_mask,"),
}
WHISPER: dict[str, Any] = {
    **_STARTS,
    "model_type": 2,
    "encoder": _Graph(_WHISPER_ENCODER),
    "decoder": _Graph(_DECODER),
    "no_timestamps_token_id": 2,
    "start_of_lm_token_id": 3,
    "translate_token_id": 4,
    "transcribe_token_id": 5,
    "beginning_timestamp_token_id": 6,
}


class Examples(NamedTuple):
    """The examples of an operator.

    Attributes:
        dtypes: Element types that are asked about; none if it is given text.
        forms: Ways to use it.
    """

    dtypes: tuple[str, ...]
    forms: tuple[Usage, ...]


@lru_cache(maxsize=1)
def operator_types() -> tuple[str, ...]:
    """Return ONNX Runtime's operators that are known, with their domain before their type."""
    known = {f"{domain}.{op_type}" for domain, op_type in (*REWRITES, *RULES) if domain in (MICROSOFT, NCHWC)}
    return tuple(sorted(known))


def examples(name: str) -> Iterator[OperatorExample]:
    """Yield models of an operator: one for each form and element type."""
    domain, _, op_type = name.rpartition(".")
    found = EXAMPLES[op_type if domain == MICROSOFT else name]
    for form in found.forms:
        if not found.dtypes:
            yield OperatorExample(name, form.label, "", None)
        for dtype in found.dtypes:
            yield OperatorExample(name, form.label, dtype, model_of(domain, op_type, form, dtype, {"": 21, domain: 1}))


# -- what operators need -----------------------------------------------------------------------------------------------

FLOATS = ("float16", "float32", "float64", "bfloat16")
UP_TO_32_BITS = ("float16", "float32", "bfloat16")
SEARCHED = ("float16", "float32")
BYTES = ("uint8", "int8")
MOVED = ("bool", "uint8", "uint32", "uint64", "int8", "int32", "int64", *FLOATS)


def _one(dtypes: tuple[str, ...], *inputs: ExampleOperand | None, outputs: int = 1, **attrs: Any) -> Examples:
    return Examples(dtypes, (Usage("", inputs, attrs, outputs),))


_ROWS, _WIDE = _x(2, 4, 16), _w(16)
_SCALE, _ZERO = _w(dtype="float32"), _w()
_QUANTIZED = (_SCALE, _ZERO)
_IDS = _x(2, 4, dtype="int32")
_IMAGE, _FILTERS = _x(1, 16, 8, 8), _w(16, 16, 3, 3)
_LAST = _x(1, 8, 8, 16)
_CONV: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
_POOLED: dict[str, Any] = {"kernel_shape": [2, 2]}
_BITS: dict[str, Any] = {"K": 32, "N": 16, "block_size": 32}
_PROMPT, _SOUND = _x(2, 3, dtype="int32"), _x(2, 4, 3)
_TURNS, _NONE, _BEAMS = (_w(1, dtype="int32", value=value) for value in (6, 0, 2))
_PENALTY = _w(1, dtype="float32")
_ROUTED = _x(4, 4)
_TOKEN, _KEYS = _x(2, 1, 16), _x(2, 2, 4, 8)

EXAMPLES: Mapping[str, Examples] = {
    "Attention": _one(FLOATS, _ROWS, _w(16, 48), _w(48), num_heads=2),
    "BeamSearch": Examples(
        SEARCHED,
        (
            Usage("as GPT-2", (_PROMPT, _TURNS, _NONE, _BEAMS, _BEAMS, _PENALTY), GPT, 2),
            Usage("as T5", (_PROMPT, _TURNS, _NONE, _BEAMS, _BEAMS, _PENALTY), T5, 2),
        ),
    ),
    "BiasAdd": _one(FLOATS, _ROWS, _WIDE, _ROWS),
    **dict.fromkeys(("BiasGelu", "BiasSplitGelu", "FastGelu"), _one(FLOATS, _ROWS, _WIDE)),
    "BiasSoftmax": _one(FLOATS, _ROWS, _ROWS, axis=2, is_inner_broadcast=0),
    "BifurcationDetector": _one(("int64",), _x(4), _x(3), _x(), outputs=2),
    "BranchwiseRMSNorm": _one(FLOATS, _ROWS, _WIDE),
    "CDist": _one(FLOATS, _x(4, 16), _x(5, 16)),
    "CausalConvWithState": _one(FLOATS, _x(2, 16, 8), _w(16, 1, 3), outputs=2),
    **dict.fromkeys(("ComplexMul", "ComplexMulConj"), _one(FLOATS, _x(4, 2), _x(4, 2))),
    "CropAndResize": _one(FLOATS, _IMAGE, _x(2, 4), _w(2, dtype="int32", value=0), _w(2, dtype="int32", value=4)),
    "ConvTransposeWithDynamicPads": _one(FLOATS, _IMAGE, _FILTERS, _w(4, dtype="int64")),
    "WordConvEmbedding": _one(FLOATS, _x(3, 8, dtype="int32"), _w(5, 1, 3, 4), _w(5), _w(9, 4)),
    "MoE": _one(UP_TO_32_BITS, _x(4, 32), _ROUTED, _w(4, 32, 32), None, _w(4, 32, 32), k=2),
    "MoEGroupRouter": _one(FLOATS, _x(4, 16), _w(16, dtype="float32"), top_k=2, n_group=4, topk_group=2),
    "DecoderMaskedMultiHeadAttention": _one(FLOATS, _TOKEN, _TOKEN, _TOKEN, None, None, _KEYS, _KEYS,
                                            _w(1, dtype="int32"), num_heads=2, past_present_share_buffer=1, outputs=3),
    "DequantizeLinear": _one(("uint8", "int8", "uint16", "int16", "int32"), _ROWS, *_QUANTIZED),
    "QuantizeLinear": Examples(
        ("uint8", "int8", "uint16", "int16", "uint4", "int4"),
        (Usage("", (_x(2, 4, 16, dtype="float32"), *_QUANTIZED)),),
    ),
    "DynamicQuantizeLSTM": _one(("float32",), _x(5, 2, 16), _w(1, 16, 32, dtype="int8"), _w(1, 8, 32, dtype="int8"),
                                None, None, None, None, None, _w(1), _w(1, dtype="int8"), _w(1), _w(1, dtype="int8"),
                                hidden_size=8),
    "DynamicQuantizeMatMul": _one(("float32",), _ROWS, _w(16, 8, dtype="int8"), _w()),
    "DynamicTimeWarping": _one(("float32",), _x(4, 6)),
    "EmbedLayerNormalization": _one(FLOATS, _IDS, None, _w(9, 16), _w(9, 16), None, _WIDE, _WIDE, outputs=2),
    "EngramGate": _one(FLOATS, _x(2, 4, 3, 16), _x(2, 4, 3, 16), _ROWS, _w(3, 16), _w(3, 16)),
    "ExpandDims": _one(MOVED, _ROWS, _w(dtype="int32")),
    "FusedConv": _one(FLOATS, _IMAGE, _FILTERS, _WIDE, activation="Relu", **_CONV),
    "NhwcConv": _one(FLOATS, _LAST, _FILTERS, _WIDE, **_CONV),
    "NhwcFusedConv": _one(FLOATS, _LAST, _FILTERS, _WIDE, activation="Relu", **_CONV),
    "FusedGemm": _one(FLOATS, _x(4, 16), _w(16, 8), _w(8), activation="Relu"),
    **dict.fromkeys(("FusedMatMul", "TransposeMatMul"), _one(FLOATS, _ROWS, _w(16, 8), alpha=0.5)),
    "GatedAdd": _one(FLOATS, _ROWS, _ROWS, _x(2, 4, 1)),
    "GatedRMSNorm": _one(FLOATS, _ROWS, _WIDE, _ROWS),
    "GatherBlockQuantized": _one(("uint8", "uint4", "int4", "float8_e4m3fn", "float8_e5m2"), _w(8, 32),
                                 _x(2, dtype="int64"), _w(8, 2, dtype="float32"), block_size=16, bits=8),
    "GatedDeltaNet": _one(UP_TO_32_BITS, _x(2, 4, 2, 8), _x(2, 4, 2, 8), _x(2, 4, 2, 8), None,
                          _x(2, 4, 2, dtype="float32"), _x(2, 4, 2, dtype="float32"), outputs=2),
    "GatherND": _one(MOVED, _ROWS, _x(3, 1, dtype="int64")),
    **dict.fromkeys(("Gelu", "QuickGelu", "ScaledSiLU", "SampleOp"), _one(FLOATS, _ROWS)),
    "GemmFastGelu": _one(FLOATS, _ROWS, _w(16, 8), _w(8)),
    "GreedySearch": _one(SEARCHED, _PROMPT, _TURNS, **GPT),
    "GridSample": _one(FLOATS, _IMAGE, _x(1, 4, 4, 2)),
    "GroupNorm": _one(FLOATS, _LAST, _w(16, dtype="float32"), _w(16, dtype="float32"), groups=4, activation=1),
    "SkipGroupNorm": _one(FLOATS, _LAST, _w(16, dtype="float32"), _w(16, dtype="float32"), _LAST, groups=4,
                          activation=1, outputs=2),
    "GroupQueryAttention": _one(FLOATS, _ROWS, _x(2, 4, 8), _x(2, 4, 8), None, None, _x(2, dtype="int32"),
                                _w(dtype="int32", value=4), num_heads=4, kv_num_heads=2, outputs=3),
    "HyperConnectionPreMix": _one(FLOATS, _ROWS, _x(2, 4)),
    "HyperConnectionPostMix": _one(FLOATS, _ROWS, _x(2, 16), _x(2, 4)),
    "Inverse": _one(("float16", "float32", "float64"), _x(2, 4, 4)),
    "Irfft": _one(FLOATS, _x(2, 9, 2), signal_ndim=1),
    "Rfft": _one(FLOATS, _x(2, 16), signal_ndim=1),
    "IsAllFinite": _one(FLOATS, _ROWS),
    "LayerNormalization": _one(FLOATS, _ROWS, _WIDE, _WIDE),
    "SimplifiedLayerNormalization": _one(FLOATS, _ROWS, _WIDE),
    "SkipLayerNormalization": _one(FLOATS, _ROWS, _ROWS, _WIDE),
    "SkipSimplifiedLayerNormalization": _one(FLOATS, _ROWS, _ROWS, _WIDE),
    "LinearAttention": _one(UP_TO_32_BITS, _ROWS, _ROWS, _ROWS, outputs=2, q_num_heads=2, kv_num_heads=2,
                            update_rule="linear"),
    "LinearAttentionGate": _one(FLOATS, _ROWS, _w(16, dtype="float32"), _w(16, dtype="float32")),
    "MRotaryEmbedding": _one(FLOATS, _ROWS, _x(3, 2, 4, dtype="int64"), _w(9, 4), _w(9, 4), mrope_section=[2, 1, 1]),
    "RotaryEmbedding": _one(FLOATS, _ROWS, _x(2, 4, dtype="int64"), _w(9, 4), _w(9, 4)),
    "RelativePositionBias": _one(FLOATS, _w(32, 4), _w(1, dtype="int64", value=4), _w(1, dtype="int64", value=4),
                                 max_distance=128),
    "MatMulBnb4": _one(FLOATS, _x(4, 32), _w(256, dtype="uint8"), _w(16), quant_type=1, **_BITS),
    "MatMulInteger16": _one(("int16",), _ROWS, _w(16, 8)),
    "MatMulIntegerToFloat": _one(BYTES, _ROWS, _w(16, 8, dtype="int8"), _SCALE, _SCALE),
    "MatMulNBits": Examples(
        UP_TO_32_BITS,
        tuple(
            Usage(f"{bits} bits", (_x(4, 32), _w(16, 1, 4 * bits, dtype="uint8"), _w(16, 1)), {**_BITS, "bits": bits})
            for bits in (2, 4, 8)
        ),
    ),
    "MulInteger": _one(BYTES, _ROWS, _ZERO, _ROWS, _ZERO),
    "MultiHeadAttention": _one(FLOATS, _ROWS, _ROWS, _ROWS, num_heads=2),
    "MurmurHash3": _one(("uint32", "uint64", "int32", "int64", "float32", "float64"), _ROWS),
    "NGramHashMapping": _one(("int32", "int64"), _x(2, 8), _w(2), _w(2), max_ngram_size=2, n_head_per_ngram=2,
                             pad_id=0),
    "NGramRepeatBlock": _one(FLOATS, _x(2, 8, dtype="int64"), _x(2, 16), ngram_size=2),
    "NhwcMaxPool": _one(BYTES, _LAST, **_POOLED),
    "Pad": _one(MOVED, _ROWS, _w(6, dtype="int64")),
    "QAttention": _one(BYTES, _x(2, 4, 16, dtype="uint8"), _w(16, 48), _w(48, dtype="float32"), _SCALE, _SCALE,
                       num_heads=2),
    "QEmbedLayerNormalization": _one(BYTES, _IDS, None, _w(9, 16), _w(9, 16), None, _WIDE, _WIDE, None, _SCALE, _SCALE,
                                     None, _SCALE, _SCALE, _ZERO, _ZERO, None, _ZERO, _ZERO, outputs=2),
    "QGemm": _one(BYTES, _x(4, 16), *_QUANTIZED, _w(16, 8, dtype="int8"), _SCALE, _w(dtype="int8"), None, *_QUANTIZED),
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), _one(BYTES, _ROWS, *_QUANTIZED, _ROWS, *_QUANTIZED, *_QUANTIZED)),
    "QLinearAveragePool": _one(BYTES, _IMAGE, *_QUANTIZED, *_QUANTIZED, **_POOLED),
    "QLinearConcat": _one(BYTES, *_QUANTIZED, _ROWS, *_QUANTIZED, _ROWS, *_QUANTIZED, axis=1),
    "QLinearConv": _one(BYTES, _IMAGE, *_QUANTIZED, _w(16, 16, 3, 3, dtype="int8"), _SCALE, _w(dtype="int8"),
                        *_QUANTIZED, channels_last=0),
    "QLinearGlobalAveragePool": _one(BYTES, _IMAGE, *_QUANTIZED, *_QUANTIZED),
    **dict.fromkeys(("QLinearLeakyRelu", "QLinearSigmoid"), _one(BYTES, _ROWS, *_QUANTIZED, *_QUANTIZED)),
    "QLinearMatMul": _one(BYTES, _ROWS, *_QUANTIZED, _w(16, 8, dtype="int8"), _SCALE, _w(dtype="int8"), *_QUANTIZED),
    "QLinearReduceMean": _one(BYTES, _ROWS, *_QUANTIZED, *_QUANTIZED, axes=[1], keepdims=1),
    "QLinearSoftmax": _one(BYTES, _ROWS, *_QUANTIZED, *_QUANTIZED, axis=-1, opset=13),
    "QLinearWhere": _one(BYTES, _x(2, 4, 16, dtype="bool"), _ROWS, *_QUANTIZED, _ROWS, *_QUANTIZED, *_QUANTIZED),
    "QMoE": Examples(
        UP_TO_32_BITS,
        tuple(
            Usage(f"{bits} bits", (_x(4, 32), _ROUTED, *(_w(4, 32, 4 * bits, dtype="uint8"), _w(4, 32), None) * 2),
                 {"k": 2, "expert_weight_bits": bits})
            for bits in (2, 4, 8)
        ),
    ),
    "Range": _one(("int16", "int32", "int64", "float32", "float64"), _w(value=0), _w(value=8)),
    "ReduceSumInteger": _one(BYTES, _ROWS, axes=[1], keepdims=1),
    "Sampling": _one(SEARCHED, _PROMPT, _TURNS, **GPT),
    "Tokenizer": _one((), _x(2, dtype="str")),
    "TorchEmbedding": _one(FLOATS, _w(9, 16), _x(4, dtype="int64")),
    "Trilu": _one(MOVED, _x(4, 4)),
    "UnfoldTensor": _one(MOVED, _x(2, 16), size=4, step=2),
    "Unique": _one(("float32",), _x(8), outputs=3),
    "VarlenCausalConvWithState": _one(UP_TO_32_BITS, _x(8, 16), _w(16, 1, 3), _x(3, dtype="int32"), None,
                                      _x(2, 16, 2), outputs=2),
    "VarlenNGramHashMapping": _one(("int32", "int64"), _x(8), _w(2), _w(2), _x(3, dtype="int32"), max_ngram_size=2,
                                   n_head_per_ngram=2, pad_id=0, outputs=2),
    "WhisperBeamSearch": _one(SEARCHED, _SOUND, _TURNS, _NONE, _BEAMS, _BEAMS, _PENALTY, outputs=2, **WHISPER),
    "com.microsoft.nchwc.Conv": _one(("float32",), _IMAGE, _FILTERS, _WIDE, **_CONV),
    **dict.fromkeys(
        ("com.microsoft.nchwc.AveragePool", "com.microsoft.nchwc.MaxPool"), _one(("float32",), _IMAGE, **_POOLED)
    ),
    **dict.fromkeys(
        ("com.microsoft.nchwc.GlobalAveragePool", "com.microsoft.nchwc.GlobalMaxPool"), _one(("float32",), _IMAGE)
    ),
    "com.microsoft.nchwc.ReorderInput": _one(("float32",), _IMAGE),
    "com.microsoft.nchwc.ReorderOutput": _one(("float32",), _IMAGE, channels=16),
    "com.microsoft.nchwc.Upsample": _one(("float32",), _IMAGE, scales=[1, 1, 2, 2]),
}  # fmt: skip
"""By an operator's type, with its domain if that is another one than ``com.microsoft``."""
