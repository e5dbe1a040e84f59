"""Operators of domain ``com.microsoft`` that ONNX Runtime's optimizer and exporters write, as ONNX's own operators.

What they compute is what ONNX Runtime's schemas say (``onnxruntime/core/graph/contrib_ops``); passes fuse it again.
Operators of that domain that have kernels of their own have shape rules instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from opbuild.frontend.microsoft_attention import (
    attention,
    grouped_query_attention,
    multi_head_attention,
    quantized_attention,
    rotated,
)
from opbuild.frontend.microsoft_beams import beam_search, whisper_beam_search
from opbuild.frontend.microsoft_decoding import decoder_masked_attention
from opbuild.frontend.microsoft_experts import mixture, quantized_mixture
from opbuild.frontend.microsoft_recurrent import dynamic_quantize_lstm
from opbuild.frontend.microsoft_search import greedy_search, sampling
from opbuild.frontend.rewriting import Rewriting, Scope
from opbuild.graph.types import Node

Rewrite = Callable[[Rewriting], Sequence[Node]]

CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def _with_attributes(op_type: str, **attrs: object) -> Rewrite:
    """Take an operator of another name with the same inputs, and attributes set."""

    def rewrite(of: Rewriting) -> Sequence[Node]:
        kept = {**attrs, **of.node.attrs}
        of.write(op_type, of.node.inputs, of.node.outputs, kept)
        return of.nodes

    return rewrite


def _activated(of: Rewriting, value: str, names: tuple[str, str, str]) -> str:
    """Apply the activation that a fused operator names; ``names`` are those of its parameters."""
    kind = of.node.text("activation", "")
    given = of.attr("activation_params", ()) or [of.attr(name, None) for name in names]
    first, second = (*[float(each) for each in given if each is not None], 0.0, 0.0)[:2]
    if not kind:
        return value
    if kind in ("Relu", "Tanh", "Sigmoid"):
        return of(kind, value)
    if kind in ("LeakyRelu", "Elu", "ThresholdedRelu"):
        return of(kind, value, alpha=first)
    if kind == "HardSigmoid":
        return of(kind, value, alpha=first, beta=second)
    if kind != "Clip":
        of.refuse(f"its activation {kind!r} is not known")
    return of("Clip", value, of.floats(first), of.floats(second))


def _fused_conv(of: Rewriting) -> Sequence[Node]:
    attrs = {name: of.attr(name, None) for name in CONV if name in of.node.attrs}
    value = of("Conv", *of.node.inputs[:3], **attrs)
    if of.has(3):
        value = of("Add", value, of.input(3))
    return of.finish(_activated(of, value, ("", "", "")))


def _nhwc_conv(of: Rewriting) -> Sequence[Node]:
    rank = len(of.shape(0))
    first, last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    attrs = {name: of.attr(name, None) for name in CONV if name in of.node.attrs}
    x = of("Transpose", of.input(0), perm=first)
    value = of("Transpose", of("Conv", x, *of.node.inputs[1:3], **attrs), perm=last)
    if of.has(3):
        value = of("Add", value, of.input(3))
    return of.finish(_activated(of, value, ("", "", "")))


def _fused_gemm(of: Rewriting) -> Sequence[Node]:
    attrs = {name: of.attr(name, None) for name in ("alpha", "beta", "transA", "transB") if name in of.node.attrs}
    value = of("Gemm", *of.node.inputs, **attrs)
    return of.finish(_activated(of, value, ("activation_alpha", "activation_beta", "activation_gamma")))


def _fused_matmul(of: Rewriting) -> Sequence[Node]:
    sides = []
    for index, side in enumerate("AB"):
        rank = len(of.shape(index))
        order = list(range(rank))
        if of.attr(f"transBatch{side}", 0) and rank > 2:
            order = [*order[1:-1], 0, order[-1]]
        if of.attr(f"trans{side}", 0) and rank > 1:
            order[-2:] = order[:-3:-1]
        value = of.input(index)
        sides.append(value if order == sorted(order) else of("Transpose", value, perm=tuple(order)))
    value, alpha = of("MatMul", *sides), float(of.attr("alpha", 1.0))
    return of.finish(value if alpha == 1.0 else of("Mul", value, of.floats(alpha)))


def _gelu(approximate: str) -> Rewrite:
    """A GELU of an input, to which a second one is added first."""

    def rewrite(of: Rewriting) -> Sequence[Node]:
        x = of("Add", of.input(0), of.input(1)) if of.has(1) else of.input(0)
        return of.finish(of("Gelu", x, approximate=approximate))

    return rewrite


def _quick_gelu(of: Rewriting) -> Sequence[Node]:
    x = of.input(0)
    scaled = of("Mul", x, of.floats(of.attr("alpha", 1.702)))
    return of.finish(of("Mul", x, of("Sigmoid", scaled)))


def _rms_normalization(of: Rewriting) -> Sequence[Node]:
    attrs = {"axis": of.attr("axis", -1), "epsilon": of.attr("epsilon", 1e-5)}
    return of.finish(of("RMSNormalization", of.input(0), of.input(1), **attrs))


def _skip_normalization(simplified: bool) -> Rewrite:
    """Normalise the sum of two inputs and a bias; the sum is the fourth output."""

    def rewrite(of: Rewriting) -> Sequence[Node]:
        bias = 3 if simplified else 4
        total = of("Add", of.input(0), of.input(1))
        if of.has(bias):
            total = of("Add", total, of.input(bias))
        attrs = {"axis": -1, "epsilon": float(of.attr("epsilon", 1e-12))}
        if simplified:
            value = of("RMSNormalization", total, of.input(2), **attrs)
        else:
            value = of("LayerNormalization", total, *of.node.inputs[2 : 4 if of.has(3) else 3], **attrs)
        return of.finish(value, "", "", total)

    return rewrite


def _embed_layer_normalization(of: Rewriting) -> Sequence[Node]:
    batch, length = of.shape(0, 2)
    total = of("Gather", of.input(2), of.input(0), axis=0)
    table = of.input(3)
    places = of("Gather", table, of.input(8), axis=0) if of.has(8) else of.slice(table, 0, 0, length)
    total = of("Add", total, places)
    if of.has(1):
        total = of("Add", total, of("Gather", of.input(4), of.input(1), axis=0))
    attrs = {"axis": -1, "epsilon": float(of.attr("epsilon", 1e-12))}
    value = of("LayerNormalization", total, of.input(5), of.input(6), **attrs)
    if of.has(7):
        lengths = of("Cast", of("ReduceSum", of.input(7), of.ints(1), keepdims=0), to=6)
    else:
        lengths = of.constant(np.zeros(batch, np.int32))
    return of.finish(value, lengths, total)


def _rotary_embedding(of: Rewriting) -> Sequence[Node]:
    shape = of.shape(0, 3, 4)
    batch, length = shape[0], shape[-2]
    positions = of.input(1)
    if len(of.shape(1)) == 1:
        steps = of.constant(np.arange(length, dtype=np.int64))
        positions = of("Expand", of("Add", positions, steps), of.ints(batch, length))
    if float(of.attr("scale", 1.0)) != 1.0 or of.attr("is_packed_batching", 0):
        of.refuse("a scale or a packed batch is not served")
    part, interleaved = 2 * of.shape(2)[1], bool(of.attr("interleaved", 0))
    tables, value = (of.input(2), of.input(3)), of.input(0)
    if len(shape) == 4:
        return of.finish(rotated(of, value, shape, tables, positions, part=part, interleaved=interleaved))
    heads = int(of.attr("num_heads", 0)) or shape[-1] // part  # a head is as long as its table if nothing is said
    size = shape[-1] // heads
    value = of("Transpose", of.reshape(value, batch, length, heads, size), perm=(0, 2, 1, 3))
    split = (batch, heads, length, size)
    value = rotated(of, value, split, tables, positions, part=part, interleaved=interleaved)
    return of.finish(of.reshape(of("Transpose", value, perm=(0, 2, 1, 3)), *shape))


def _tokenizer(of: Rewriting) -> Sequence[Node]:
    of.write("Tokenizer", of.node.inputs, of.node.outputs, of.node.attrs, "opbuild")
    return of.nodes


REWRITES: dict[str, Rewrite] = {
    "Attention": attention,
    "BeamSearch": beam_search,
    "BiasGelu": _gelu("none"),
    "DecoderMaskedMultiHeadAttention": decoder_masked_attention,
    "DynamicQuantizeLSTM": dynamic_quantize_lstm,
    "EmbedLayerNormalization": _embed_layer_normalization,
    "FastGelu": _gelu("tanh"),
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "Gelu": _gelu("none"),
    "GreedySearch": greedy_search,
    "GroupQueryAttention": grouped_query_attention,
    "LayerNormalization": _with_attributes("LayerNormalization"),
    "MoE": mixture,
    "MultiHeadAttention": multi_head_attention,
    "NhwcConv": _nhwc_conv,
    "NhwcFusedConv": _nhwc_conv,
    "QAttention": quantized_attention,
    "QMoE": quantized_mixture,
    "QuickGelu": _quick_gelu,
    "RotaryEmbedding": _rotary_embedding,
    "Sampling": sampling,
    "SimplifiedLayerNormalization": _rms_normalization,
    "SkipLayerNormalization": _skip_normalization(simplified=False),
    "SkipSimplifiedLayerNormalization": _skip_normalization(simplified=True),
    "Tokenizer": _tokenizer,
    "WhisperBeamSearch": whisper_beam_search,
}
"""How each operator is written with ONNX's own."""


def rewrite(node: Node, scope: Scope) -> Sequence[Node]:
    """Return nodes of ONNX's newest operator set that compute what a node does.

    Raises:
        UnsupportedOperatorError: If this form of it can not be written with ONNX's operators.
        InvalidModelError: If an input is missing or has a wrong rank.
    """
    return REWRITES[node.op_type](Rewriting(node, scope))
