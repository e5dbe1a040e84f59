"""Normalizations of ``com.microsoft``, and gates, branches and recurrences of recent language models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.frontend.rewritten import MICROSOFT, REWRITES
from opbuild.graph.graph_builder import Value
from opbuild.graph.types import Node


def _skipped(of: Rewriting, bias: int) -> Value:
    return of.plus(of("Add", of.input(0), of.input(1)), bias)


@writes("EmbedLayerNormalization")
def _embed_layer_normalization(of: Rewriting) -> Sequence[Node]:
    batch, length = of.shape(0, 2)
    total = of("Gather", of.input(2), of.in_range(of.input(0), of.shape(2)[0]), axis=0)
    table = of.input(3)
    if of.has(8):
        places = of("Gather", table, of.in_range(of.input(8), table.shape[0]), axis=0)
    else:
        places = of.slice(table, 0, 0, length)
    total = of("Add", total, places)
    if of.has(1):
        total = of("Add", total, of("Gather", of.input(4), of.in_range(of.input(1), of.shape(4)[0]), axis=0))
    attrs: dict[str, Any] = {"axis": -1, "epsilon": float(of.attr("epsilon", 1e-12))}
    value = of("LayerNormalization", total, of.input(5), of.input(6), **attrs)
    return of.finish(value, _lengths(of, 7, batch), total)


def _lengths(of: Rewriting, mask: int, batch: int) -> Value:
    """Return the number of tokens of each batch, 0 if there is no mask."""
    if not of.has(mask):
        return of.constant(np.zeros(batch, np.int32))
    return of.sum(of.input(mask), [1])


@writes("QEmbedLayerNormalization")
def _quantized_embed_layer_normalization(of: Rewriting) -> Sequence[Node]:
    """EmbedLayerNormalization of tables of bytes: the looked-up rows are dequantised."""

    def rows(table: int, places: str, scale: int, zero: int) -> str:
        value = of.input(table)
        if places:
            value = of("Gather", value, of.in_range(places, value.shape[0]), axis=0)
        return of("DequantizeLinear", value, *map(of.scalar, (scale, zero)))

    batch, length = of.shape(0, 2)
    total = rows(2, of.input(0), 8, 13)
    total = of("Add", total, of.slice(rows(3, "", 9, 14), 0, 0, length))
    if of.has(1):
        total = of("Add", total, rows(4, of.input(1), 10, 15))
    attrs: dict[str, Any] = {"axis": -1, "epsilon": float(of.attr("epsilon", 1e-12))}
    value = of("LayerNormalization", total, rows(5, "", 11, 16), rows(6, "", 12, 17), **attrs)
    return of.finish(value, _lengths(of, 7, batch))


@writes("GroupNorm", "SkipGroupNorm")
def _group_norm(of: Rewriting) -> Sequence[Node]:
    """Normalise groups of channels, of the sum of two inputs and a bias for the one operator, then SiLU if asked."""
    last, rank, kind = bool(of.attr("channels_last", 1)), len(of.shape(0, 3, 4, 5)), of.dtype(0)
    value = total = _sum_of_images(of, last) if of.node.op_type == "SkipGroupNorm" else of.input(0)
    if last:
        value = of("Transpose", value, perm=(0, rank - 1, *range(1, rank - 1)))
    value, scale, bias = (
        of.cast(value, "float32", kind),
        *(of.cast(of.input(i), "float32", of.dtype(i)) for i in (1, 2)),
    )
    attrs: dict[str, Any] = {"num_groups": int(of.attr("groups", 1)), "epsilon": float(of.attr("epsilon", 1e-5))}
    value = of("GroupNormalization", value, scale, bias, **attrs)
    if of.attr("activation", 0):
        value = of.silu(value)
    value = of.cast(value, kind, "float32")
    if last:
        value = of("Transpose", value, perm=(0, *range(2, rank), 1))
    return of.finish(value, total) if of.node.op_type == "SkipGroupNorm" else of.finish(value)


def _sum_of_images(of: Rewriting, last: bool) -> Value:
    """Return an image plus another one, or a number for each of its channels, plus a bias."""
    shape = of.shape(0)
    ones = (1,) * (len(shape) - 2)

    def spread(index: int, *front: int) -> str:
        given = of.shape(index)
        if len(given) > 2:
            return of.input(index)
        return (
            of.reshape(of.input(index), (*front, *ones, given[-1]))
            if last
            else of.reshape(of.input(index), (*front, given[-1], *ones))
        )

    total = of("Add", of.input(0), spread(3, *of.shape(3)[:1]))
    return of("Add", total, spread(4, 1)) if of.has(4) else total


@writes("GatedRMSNorm")
def _gated_norm(of: Rewriting) -> Sequence[Node]:
    """RMS normalization times a gate, in float32."""
    kind, activation = of.dtype(0), of.node.text("activation", "silu")
    value, scale, gate = (of.cast(of.input(index), "float32", kind) for index in range(3))
    if activation not in ("none", "sigmoid", "silu", "swish"):
        of.refuse(f"its activation {activation!r} is not known")
    value = of("RMSNormalization", value, scale, axis=-1, epsilon=float(of.attr("epsilon", 1e-5)))
    if activation != "none":
        opened = of("Sigmoid", gate)
        gate = opened if activation == "sigmoid" else of("Mul", gate, opened)
    return of.finish(of.cast(of("Mul", value, gate), kind, "float32"))


def _branches(of: Rewriting, index: int) -> tuple[str, tuple[int, ...]]:
    """Return an input in float32 with an axis of branches, and its shape, ``(..., C, H)``."""
    shape, count = of.shape(index), int(of.attr("num_branches", 0))
    value = of.cast(of.input(index), "float32", of.dtype(index))
    if count:
        shape = (*shape[:-1], count, shape[-1] // count)
        value = of.reshape(value, shape)
    return value, shape


@writes("BranchwiseRMSNorm")
def _branchwise(of: Rewriting) -> Sequence[Node]:
    value, shape = _branches(of, 0)
    ones = of.constant(np.ones(1, np.float32))
    value = of("RMSNormalization", value, ones, axis=-1, epsilon=float(of.attr("epsilon", 1e-5)))
    if of.has(1):
        scale = of.cast(of.input(1), "float32", of.dtype(1))
        own = of.shape(1)
        value = of("Mul", value, scale if own == shape[-1:] else of.reshape(scale, shape[-2:]))
    return of.finish(of.cast(of.reshape(value, of.shape(0)), of.dtype(0), "float32"))


@writes("HyperConnectionPreMix")
def _pre_mix(of: Rewriting) -> Sequence[Node]:
    value, shape = _branches(of, 0)
    gates = _gates(of, 1, shape)
    total = of.sum(of("Mul", value, gates), [len(shape) - 2])
    total = of("Mul", total, of.constant(np.array(of.attr("reduction_scale", 1.0), np.float32)))
    return of.finish(of.cast(total, of.dtype(0), "float32"))


@writes("HyperConnectionPostMix")
def _post_mix(of: Rewriting) -> Sequence[Node]:
    value, shape = _branches(of, 0)
    if of.has(3):
        mix = of.cast(of.input(3), "float32", of.dtype(3))
        rank = len(of.shape(3))
        value = of("MatMul", of("Transpose", mix, perm=(*range(rank - 2), rank - 1, rank - 2)), value)
    block = of.cast(of.input(1), "float32", of.dtype(1))
    added = of("Mul", _gates(of, 2, shape), of("Unsqueeze", block, of.ints(-2)))
    total = of.reshape(of("Add", value, added), of.shape(0))
    return of.finish(of.cast(total, of.dtype(0), "float32"))


def _gates(of: Rewriting, index: int, shape: tuple[int, ...]) -> Value:
    """Return gates of branches or of their features so that they broadcast to ``(..., C, H)``."""
    own, value = of.shape(index), of.cast(of.input(index), "float32", of.dtype(index))
    if len(own) == len(shape):
        return value
    return of.reshape(value, (*shape[:-1], -1 if own[-1] != shape[-2] else 1))


@writes("LinearAttentionGate")
def _decay_gate(of: Rewriting) -> Sequence[Node]:
    kind = of.dtype(0)
    value = of("Softplus", of("Add", of.cast(of.input(0), "float32", kind), of.input(1)))
    decay = of.cast(of("Mul", value, of.input(2)), kind, "float32")
    rate = of.cast(of("Sigmoid", of.cast(of.input(3), "float32", kind)), kind, "float32") if of.has(3) else ""
    return of.finish(decay, rate)


@writes("CausalConvWithState")
def _causal_convolution(of: Rewriting) -> Sequence[Node]:
    """ONNX's operator with that name, which has one spatial axis, the last one."""
    unserved = ("state_update_capacity", "state_window", "state_length", "input_channel_offset", "input_channels")
    if any(of.attr(name, 0) for name in unserved) or of.attr("ndim", 1) != 1:
        of.refuse("windows of states and more than one spatial axis are not served")
    if of.attr("dilation", 1) != 1 or of.attr("channels_last", 0):
        return _dilated(of)
    attrs: dict[str, Any] = {"activation": of.node.text("activation", "none")}
    of.write("CausalConvWithState", of.node.inputs, of.node.outputs, attrs)
    return of.nodes


def _dilated(of: Rewriting) -> Sequence[Node]:
    """The convolution of carried-over and new values; the end of both is carried over."""
    last, shape, apart = bool(of.attr("channels_last", 0)), of.shape(0), int(of.attr("dilation", 1))
    channels, _, taps = of.shape(1, 3)
    batch, length = (shape[0], shape[1]) if last else (shape[0], shape[2])
    carried = (taps - 1) * apart

    def first(value: str, count: int) -> str:
        """Return a value with channels in front of its positions."""
        return of("Transpose", of.reshape(value, (batch, count, channels)), perm=(0, 2, 1)) if last else value

    def back(value: str, count: int) -> str:
        return of.reshape(of("Transpose", value, perm=(0, 2, 1)), (batch, count, *shape[2:])) if last else value

    state = first(of.input(3), carried) if of.has(3) else of("Expand", of.floats(0), of.ints(batch, channels, carried))
    whole = of("Concat", state, first(of.input(0), length), axis=2)
    bias = (of.input(2),) if of.has(2) else ()
    value = of("Conv", whole, of.input(1), *bias, group=channels, dilations=(apart,))
    if of.node.text("activation", "none") in ("silu", "swish"):
        value = of.silu(value)
    kept = of.slice(whole, 2, length, length + carried)
    return of.finish(back(value, length), back(kept, carried))


@writes("EngramGate")
def _engram(of: Rewriting) -> Sequence[Node]:
    kind = of.dtype(0)
    hidden = of.shape(0, 4)[3]
    epsilon = float(of.attr("epsilon", 1e-5))
    ones = of.constant(np.ones(1, np.float32))

    def normalized(value: str, scale: int) -> str:
        found = of("RMSNormalization", value, ones, axis=-1, epsilon=epsilon)
        return of("Mul", found, of.cast(of.input(scale), "float32", of.dtype(scale)))

    key, query, value = (of.cast(of.input(index), "float32", kind) for index in range(3))
    product = of("Mul", normalized(key, 3), normalized(query, 4))
    dot = of.sum(product, [3], keepdims=True)
    dot = of("Mul", dot, of.constant(np.array(hidden**-0.5, np.float32)))
    size = of("Sqrt", of("Max", of("Abs", dot), of.constant(np.array(1e-6, np.float32))))
    gate = of("Sigmoid", of("Mul", of("Sign", dot), size))
    gated = of("Mul", gate, of("Unsqueeze", value, of.ints(2)))
    normed = of.cast(normalized(gated, 5), kind, "float32") if of.has(5) else ""
    return of.finish(of.cast(gated, kind, "float32"), normed)


@writes("MoEGroupRouter")
def _group_router(of: Rewriting) -> Sequence[Node]:
    """Logarithms of the scores of the experts that are chosen, from the groups that are; others get a number."""
    if of.has(2) or any(of.node.outputs[1:]):
        of.refuse("a router that projects, or gives all scores, is not served")
    kind, experts = of.dtype(0), of.shape(0)[-1]
    names = ("n_group", "topk_group", "group_topk", "top_k")
    groups, taken, summed, chosen = (int(of.attr(name, 2 if name == "group_topk" else 1)) for name in names)
    scores = of("Sigmoid", of.cast(of.reshape(of.input(0), (-1, experts)), "float32", kind))
    biased = of("Add", scores, of.input(1))
    if taken < groups:
        each = experts // groups
        apart = of.reshape(biased, (-1, groups, each))
        best, _ = of.several("TopK", 2, apart, of.ints(min(summed, each)), axis=2)
        totals = of.sum(best, [2])
        hidden = of("Unsqueeze", _outside(of, totals, taken), of.ints(2))
        biased = of.reshape(of("Where", hidden, of.constant(np.array(-np.inf, np.float32)), apart), (-1, experts))
    least = of.constant(np.array(1e-20, np.float32))
    sentinel = of.constant(np.array(of.attr("router_sentinel", -10000.0), np.float32))
    found = of("Where", _outside(of, biased, chosen), sentinel, of("Log", of("Max", scores, least)))
    return of.finish(of.cast(found, kind, "float32"))


def _outside(of: Rewriting, values: str, count: int) -> Value:
    """Return a mask of the values of each row that are not among so many of the greatest."""
    _, places = of.several("TopK", 2, values, of.ints(count), axis=1)
    zero, one = (of.constant(np.array(number, np.int32)) for number in (0, 1))
    none, all_ = of("Expand", zero, of("Shape", values)), of("Expand", one, of("Shape", places))
    return of("Equal", of("ScatterElements", none, places, all_, axis=1), zero)


@writes("ScaledSiLU")
def _scaled_silu(of: Rewriting) -> Sequence[Node]:
    scale = of.cast(of.scalar(1), of.dtype(0), of.dtype(1)) if of.has(1) else of.floats(float(of.attr("alpha", 1.0)))
    return of.finish(of.silu(of("Mul", of.input(0), scale)))


@writes("GatedAdd")
def _gated_add(of: Rewriting) -> Sequence[Node]:
    if of.has(3):
        of.refuse("a gate that is projected is not served")
    return of.finish(of("Add", of.input(0), of("Mul", of.input(1), of.input(2))))


@writes("LinearAttention")
def _linear_attention(of: Rewriting) -> Sequence[Node]:
    """ONNX's operator with that name, which has no window of states."""
    if of.attr("state_window", 0):
        of.refuse("a window of states is not served")
    attrs: dict[str, Any] = {name: value for name, value in of.node.attrs.items() if name != "state_window"}
    of.write("LinearAttention", of.node.inputs, of.node.outputs, attrs)
    return of.nodes


@writes("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def _skip_normalization(of: Rewriting) -> Sequence[Node]:
    """Normalise the sum of two inputs and a bias; the sum is the fourth output."""
    is_plain = of.node.op_type == "SkipLayerNormalization"
    total = _skipped(of, 4 if is_plain else 3)
    attrs: dict[str, Any] = {"axis": -1, "epsilon": float(of.attr("epsilon", 1e-12))}
    if is_plain:
        value = of("LayerNormalization", total, of.input(2), *of.optional(3), **attrs)
    else:
        value = of("RMSNormalization", total, of.input(2), **attrs)
    return of.finish(value, "", "", total)


@writes("SimplifiedLayerNormalization")
@writes("SimplifiedLayerNormalization", domain="")
def _rms_normalization(of: Rewriting) -> Sequence[Node]:
    attrs: dict[str, Any] = {"axis": of.attr("axis", -1), "epsilon": of.attr("epsilon", 1e-5)}
    return of.finish(of("RMSNormalization", of.input(0), of.input(1), **attrs))


REWRITES.register_all({"LayerNormalization": lambda of: of.same()}, MICROSOFT)
