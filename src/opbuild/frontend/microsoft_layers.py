"""Layers of ``com.microsoft``: normalizations, gates, branches, and operators on packed sequences.

The latter are convolutions, hashes of runs of tokens, and linear attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.frontend.rewritten import MICROSOFT, REWRITES
from opbuild.graph.breaks import HOST_VALUE
from opbuild.graph.graph_builder import Value
from opbuild.graph.types import Node


def _epsilon(of: Rewriting, default: float = 1e-5) -> float:
    return float(of.attr("epsilon", default))


@writes("EmbedLayerNormalization", "QEmbedLayerNormalization")
def _embed_layer_normalization(of: Rewriting) -> Sequence[Node]:
    """Rows of tables and their layer normalization; of tables of bytes the looked-up rows are dequantised."""
    is_quantized = of.node.op_type == "QEmbedLayerNormalization"

    def rows(table: int, places: str) -> str:
        value = of.input(table)
        if places:
            value = of("Gather", value, of.in_range(places, value.shape[0]), axis=0)
        return of("DequantizeLinear", value, of.scalar(table + 6), of.scalar(table + 11)) if is_quantized else value

    is_placed = of.has(8) and not is_quantized  # then the positions of tokens are an input
    total = rows(2, of.input(0))
    total = of("Add", total, rows(3, of.input(8)) if is_placed else of.slice(rows(3, ""), 0, 0, of.shape(0, 2)[1]))
    if of.has(1):
        total = of("Add", total, rows(4, of.input(1)))
    value = of("LayerNormalization", total, rows(5, ""), rows(6, ""), axis=-1, epsilon=_epsilon(of, 1e-12))
    # Tokens of each batch, 0 if there is no mask
    lengths = of.sum(of.input(7), [1]) if of.has(7) else of.constant(np.zeros(of.shape(0)[0], np.int32))
    return of.finish(value, lengths, *(() if is_quantized else (total,)))


@writes("GroupNorm", "SkipGroupNorm")
def _group_norm(of: Rewriting) -> Sequence[Node]:
    """Normalise groups of channels, of the sum of two inputs and a bias for the one operator, then SiLU if asked."""
    last, rank, kind = bool(of.attr("channels_last", 1)), len(of.shape(0, 3, 4, 5)), of.dtype(0)
    value = total = _sum_of_images(of, last) if of.node.op_type == "SkipGroupNorm" else of.input(0)
    value = of.cast(of.to_front(value, rank) if last else value, "float32", kind)
    scale, bias = map(of.in_float32, (1, 2))
    groups = int(of.attr("groups", 1))
    value = of("GroupNormalization", value, scale, bias, num_groups=groups, epsilon=_epsilon(of))
    if of.attr("activation", 0):
        value = of.silu(value)
    value = of.cast(value, kind, "float32")
    value = of.to_end(value, rank) if last else value
    return of.finish(value, total) if of.node.op_type == "SkipGroupNorm" else of.finish(value)


def _sum_of_images(of: Rewriting, last: bool) -> Value:
    """Return an image plus another one, or a number for each of its channels, plus a bias."""
    shape = of.shape(0)
    ones = (1,) * (len(shape) - 2)

    def spread(index: int, *front: int) -> str:
        given = of.shape(index)
        if len(given) > 2:
            return of.input(index)
        return of.reshape(of.input(index), (*front, *ones, given[-1]) if last else (*front, given[-1], *ones))

    total = of("Add", of.input(0), spread(3, *of.shape(3)[:1]))
    return of("Add", total, spread(4, 1)) if of.has(4) else total


@writes("GatedRMSNorm")
def _gated_norm(of: Rewriting) -> Sequence[Node]:
    """RMS normalization times a gate, in float32."""
    kind, activation = of.dtype(0), of.node.text("activation", "silu")
    value, scale, gate = (of.cast(of.input(index), "float32", kind) for index in range(3))
    of.refuse_if(activation not in ("none", "sigmoid", "silu", "swish"), f"its activation {activation!r} is not known")
    value = of("RMSNormalization", value, scale, axis=-1, epsilon=_epsilon(of))
    if activation != "none":
        opened = of("Sigmoid", gate)
        gate = opened if activation == "sigmoid" else of("Mul", gate, opened)
    return of.finish(of.cast(of("Mul", value, gate), kind, "float32"))


def _branches(of: Rewriting, index: int) -> tuple[str, tuple[int, ...]]:
    """Return an input in float32 with an axis of branches, and its shape, ``(..., C, H)``."""
    shape, count = of.shape(index), int(of.attr("num_branches", 0))
    value = of.in_float32(index)
    if count:
        shape = (*shape[:-1], count, shape[-1] // count)
        value = of.reshape(value, shape)
    return value, shape


@writes("BranchwiseRMSNorm")
def _branchwise_norm(of: Rewriting) -> Sequence[Node]:
    value, shape = _branches(of, 0)
    value = of("RMSNormalization", value, of.constant([1], "float32"), axis=-1, epsilon=_epsilon(of))
    if of.has(1):
        scale = of.in_float32(1)
        value = of("Mul", value, scale if of.shape(1) == shape[-1:] else of.reshape(scale, shape[-2:]))
    return of.finish(of.cast(of.reshape(value, of.shape(0)), of.dtype(0), "float32"))


@writes("HyperConnectionPreMix")
def _pre_mix(of: Rewriting) -> Sequence[Node]:
    value, shape = _branches(of, 0)
    gates = _gates(of, 1, shape)
    total = of.sum(of("Mul", value, gates), [len(shape) - 2])
    total = of("Mul", total, of.constant(of.attr("reduction_scale", 1.0), "float32"))
    return of.finish(of.cast(total, of.dtype(0), "float32"))


@writes("HyperConnectionPostMix")
def _post_mix(of: Rewriting) -> Sequence[Node]:
    value, shape = _branches(of, 0)
    if of.has(3):
        mix, rank = of.in_float32(3), len(of.shape(3))
        value = of("MatMul", of("Transpose", mix, perm=(*range(rank - 2), rank - 1, rank - 2)), value)
    block = of.in_float32(1)
    added = of("Mul", _gates(of, 2, shape), of("Unsqueeze", block, of.ints(-2)))
    total = of.reshape(of("Add", value, added), of.shape(0))
    return of.finish(of.cast(total, of.dtype(0), "float32"))


def _gates(of: Rewriting, index: int, shape: tuple[int, ...]) -> Value:
    """Return gates of branches or of their features so that they broadcast to ``(..., C, H)``."""
    own, value = of.shape(index), of.in_float32(index)
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
    return of.same(attrs={"activation": of.node.text("activation", "none")})


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
    kind, hidden, ones = of.dtype(0), of.shape(0, 4)[3], of.constant([1], "float32")

    def normalized(value: str, scale: int) -> str:
        found = of("RMSNormalization", value, ones, axis=-1, epsilon=_epsilon(of))
        return of("Mul", found, of.in_float32(scale))

    key, query, value = (of.cast(of.input(index), "float32", kind) for index in range(3))
    product = of("Mul", normalized(key, 3), normalized(query, 4))
    dot = of.sum(product, [3], keepdims=True)
    dot = of("Mul", dot, of.constant(hidden**-0.5, "float32"))
    size = of("Sqrt", of("Max", of("Abs", dot), of.constant(1e-6, "float32")))
    gate = of("Sigmoid", of("Mul", of("Sign", dot), size))
    gated = of("Mul", gate, of("Unsqueeze", value, of.ints(2)))
    normed = of.cast(normalized(gated, 5), kind, "float32") if of.has(5) else ""
    return of.finish(of.cast(gated, kind, "float32"), normed)


@writes("MoEGroupRouter")
def _group_router(of: Rewriting) -> Sequence[Node]:
    """Logarithms of the scores of the experts that are chosen, from the groups that are; others get a number."""
    of.refuse_if(of.has(2) or any(of.node.outputs[1:]), "a router that projects, or gives all scores, is not served")
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
        hidden = of("Unsqueeze", _outside_top(of, totals, taken), of.ints(2))
        biased = of.reshape(of("Where", hidden, of.constant(-np.inf, "float32"), apart), (-1, experts))
    least = of.constant(1e-20, "float32")
    sentinel = of.constant(of.attr("router_sentinel", -10000.0), "float32")
    found = of("Where", _outside_top(of, biased, chosen), sentinel, of("Log", of("Max", scores, least)))
    return of.finish(of.cast(found, kind, "float32"))


def _outside_top(of: Rewriting, values: str, count: int) -> Value:
    """Return a mask of the values of each row that are not among so many of the greatest."""
    _, places = of.several("TopK", 2, values, of.ints(count), axis=1)
    zero, one = (of.constant(number, "int32") for number in (0, 1))
    none, all_ = of("Expand", zero, of("Shape", values)), of("Expand", one, of("Shape", places))
    return of("Equal", of("ScatterElements", none, places, all_, axis=1), zero)


@writes("ScaledSiLU")
def _scaled_silu(of: Rewriting) -> Sequence[Node]:
    scale = of.cast(of.scalar(1), of.dtype(0), of.dtype(1)) if of.has(1) else of.floats(float(of.attr("alpha", 1.0)))
    return of.finish(of.silu(of("Mul", of.input(0), scale)))


@writes("GatedAdd")
def _gated_add(of: Rewriting) -> Sequence[Node]:
    of.refuse_if(of.has(3), "a gate that is projected is not served")
    return of.finish(of("Add", of.input(0), of("Mul", of.input(1), of.input(2))))


@writes("LinearAttention")
def _linear_attention(of: Rewriting) -> Sequence[Node]:
    """ONNX's operator with that name, which has no window of states."""
    of.refuse_if(of.attr("state_window", 0), "a window of states is not served")
    return of.same(attrs={name: value for name, value in of.node.attrs.items() if name != "state_window"})


@writes("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def _skip_normalization(of: Rewriting) -> Sequence[Node]:
    """Normalise the sum of two inputs and a bias; the sum is the fourth output."""
    is_plain = of.node.op_type == "SkipLayerNormalization"
    total = of.plus(of("Add", of.input(0), of.input(1)), 4 if is_plain else 3)
    attrs: dict[str, Any] = {"axis": -1, "epsilon": _epsilon(of, 1e-12)}
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


@writes("MurmurHash3")
def _hash(of: Rewriting) -> Sequence[Node]:
    """MurmurHash3 of 32 bits, of the bytes of each number; the host computes it of text."""
    kind = of.dtype(0)
    if kind == HOST_VALUE.dtype:
        return of.same("opbuild")
    words = {4: 1, 8: 2}.get(np.dtype(kind).itemsize)
    if words is None:
        of.refuse(f"hashes of {kind} are not served")
    seed = np.uint32(int(of.attr("seed", 0)) & 0xFFFFFFFF)
    bits = of.bits(of.input(0), kind, "uint64" if words == 2 else "uint32")
    state = of.constant(np.asarray(seed, np.uint32))
    for number in range(words):
        word = bits
        if words == 2:
            word = of("BitShift", bits, of.constant(32, "uint64"), direction="RIGHT") if number else bits
            word = of.cast(of("BitwiseAnd", word, of.constant(0xFFFFFFFF, "uint64")), "uint32")
        word = of("Mul", _rotated(of, of("Mul", word, _word(of, 0xCC9E2D51)), 15), _word(of, 0x1B873593))
        state = of("BitwiseXor", state, word)
        state = of("Add", of("Mul", _rotated(of, state, 13), _word(of, 5)), _word(of, 0xE6546B64))
    state = of("BitwiseXor", state, _word(of, 4 * words))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 0)):
        state = of("BitwiseXor", state, _shifted(of, state, shift, "RIGHT"))
        state = of("Mul", state, _word(of, factor)) if factor else state
    return of.finish(state if of.attr("positive", 1) else of.bits(state, "uint32", "int32"))


def _rotated(of: Rewriting, value: str, bits: int) -> Value:
    return of("BitwiseOr", _shifted(of, value, bits, "LEFT"), _shifted(of, value, 32 - bits, "RIGHT"))


def _shifted(of: Rewriting, value: str, bits: int, direction: str) -> Value:
    return of("BitShift", value, _word(of, bits), direction=direction)


def _word(of: Rewriting, value: int) -> Value:
    return of.constant(value, "uint32")


@writes("NGramHashMapping")
def _hash_rows(of: Rewriting) -> Sequence[Node]:
    """Hashes of each run of two and more tokens that ends at a token, some of each length."""
    batch, length = of.shape(0, 2)
    most = int(of.attr("max_ngram_size", 2))
    filler = before_all(of, 5)
    before = of.input(3) if of.has(3) else of("Expand", filler, of.ints(batch, most - 1))
    whole = of("Concat", before, of.input(0), axis=1)

    def shifted(value: str, back: int) -> str:
        return of.slice(value, 1, most - 1 - back, most - 1 - back + length)

    segments: tuple[str, ...] = ()
    if of.has(6):
        first = of.slice(of.input(6), 1, 0, 1)  # what came before is of the first one's segment
        joined = of("Concat", of("Expand", first, of.ints(batch, most - 1)), of.input(6), axis=1)
        segments = tuple(shifted(joined, back) for back in range(most))
    runs = tuple(shifted(whole, back) for back in range(most))
    found = hashes(of, until_reset(of, runs, segments, filler, 5), 4)
    return of.finish(found, of.slice(whole, 1, length, length + most - 1))


def before_all(of: Rewriting, end: int) -> Value:
    """Return the filler before the first token: the input that is the token at an end, else a number."""
    return of.scalar(end) if of.has(end) else of.constant(of.attr("pad_id", 0), of.dtype(0))


def until_reset(of: Rewriting, runs: Sequence[str], segments: Sequence[str], filler: str, end: int) -> Sequence[str]:
    """Return tokens of runs, each so many places before the last, but the filler from where another text ends.

    Args:
        of: Where it is written.
        runs: The tokens, the last one of each run first.
        segments: Their segments, in which texts lie apart; none if there are none.
        filler: What stands where there is no token.
        end: The place of the input that has the token at which a text ends.
    """
    has_end = bool(of.has(end) and of.attr("reset_on_eos", 0))
    if not has_end and not segments:
        return runs
    found, is_over = [runs[0]], ""
    for back in range(1, len(runs)):
        ends = [of("Equal", runs[back], of.scalar(end))] if has_end else []
        if segments:
            ends.append(of("Not", of("Equal", segments[back], segments[back - 1])))
        for each in ends:
            is_over = of("Or", is_over, each) if is_over else each
        found.append(of("Where", is_over, filler, runs[back]))
    return found


def hashes(of: Rewriting, runs: Sequence[str], offsets: int) -> Value:
    """Return the hashes of runs, a column for each length and head; ``offsets`` is the place of the addends."""
    heads, found = int(of.attr("n_head_per_ngram", 1)), list[str]()
    mixed = ""
    for back, run in enumerate(runs):
        part = of("Mul", run, of.slice(of.input(1), 0, back, back + 1))
        mixed = of("BitwiseXor", mixed, part) if mixed else part
        if back:
            sizes = of.slice(of.input(2), 0, (back - 1) * heads, back * heads)
            found.append(of("Mod", of("Unsqueeze", mixed, of.ints(-1)), sizes))
    value = of("Concat", *found, axis=-1)
    return of("Add", value, of.input(offsets)) if of.has(offsets) else value


class PackedSequences:
    """Sequences of tokens, one behind the other; the input ``bounds`` says where they begin and end.

    Attributes:
        count: How many sequences there are.
        begins: Where each begins.
        lengths: How long each is.
        own: The sequence of each token.
        places: The place of each token in its sequence.
    """

    def __init__(self, of: Rewriting, bounds: int, tokens: int) -> None:
        self.of, self.tokens = of, tokens
        self.count = of.shape(bounds, 1)[0] - 1
        wide = of.cast(of.input(bounds), "int64", of.dtype(bounds))
        self.begins, ends = of.slice(wide, 0, 0, self.count), of.slice(wide, 0, 1, self.count + 1)
        self.lengths = of("Sub", ends, self.begins)
        steps = of.steps(tokens)
        is_behind = of("LessOrEqual", of.reshape(ends, (1, self.count)), of.reshape(steps, (tokens, 1)))
        own = of.sum(of.cast(is_behind, "int64"), [1])
        self.own = of("Min", own, of.ints(self.count - 1))
        self.places = of("Sub", steps, of("Gather", self.begins, self.own, axis=0))

    def rows(self, sequences: str, places: str, carried: int) -> Value:
        """Return the rows of places in sequences, in a table of carried-over rows and of all tokens.

        Args:
            sequences: Numbers of sequences.
            places: Places in them; negative ones are counted from the end of what was carried over.
            carried: How much was carried over for each sequence.
        """
        of = self.of
        begins = of("Add", of("Gather", self.begins, sequences, axis=0), of.ints(self.count * carried))
        inside = of("Add", begins, places)
        first = of("Mul", sequences, of.ints(carried))
        outside = of("Add", of("Add", first, of.ints(carried)), places)
        return of("Where", of("Less", places, of.ints(0)), outside, inside)

    def filled(self, value: str) -> Value:
        """Return tokens as ``(count, tokens, ...)``, each sequence filled up with zeros."""
        of = self.of
        steps = of("Add", of.reshape(self.begins, (self.count, 1)), of.steps(self.tokens))
        inside = of("Less", of.steps(self.tokens), of.reshape(self.lengths, (self.count, 1)))
        found = of("Gather", value, of("Min", steps, of.number(self.tokens - 1)), axis=0)
        return of("Where", of("Unsqueeze", inside, of.ints(2, 3)), found, of.constant([0], "float32"))

    def taken(self, value: str) -> Value:
        """Return the tokens of sequences that were filled up, one behind the other."""
        of = self.of
        rows = of("Add", of("Mul", self.own, of.number(self.tokens)), self.places)
        return of("Gather", value, rows, axis=0)

    def window(self, back: Sequence[int], carried: int) -> Value:
        """Return the rows ``(tokens, len(back))`` that lie so many places before each token."""
        of = self.of
        places = of("Sub", of.reshape(self.places, (self.tokens, 1)), of.ints(*back))
        return self.rows(of.reshape(self.own, (self.tokens, 1)), places, carried)

    def last(self, carried: int) -> Value:
        """Return the rows ``(count, carried)`` of the last tokens of each sequence."""
        of = self.of
        places = of("Add", of.reshape(self.lengths, (self.count, 1)), of.ints(*range(-carried, 0)))
        return self.rows(of.reshape(of.steps(self.count), (self.count, 1)), places, carried)

    def captured(self, index: int, capacity: int) -> Value:
        """Return a mask of the first tokens of each sequence that are asked for, ``(count, capacity)``."""
        of = self.of
        wanted = of.cast(of.input(index), "int64", of.dtype(index))
        return of("Less", of.ints(*range(capacity)), of.reshape(of("Min", wanted, self.lengths), (self.count, 1)))

    def first(self, capacity: int, back: Sequence[int], carried: int) -> Value:
        """Return the rows ``(count, capacity, len(back))`` before the first tokens of each sequence."""
        of = self.of
        last = of.reshape(of("Sub", self.lengths, of.ints(1)), (self.count, 1, 1))
        steps = of("Min", of.reshape(of.steps(capacity), (capacity, 1)), last)
        places = of("Sub", steps, of.ints(*back))
        return self.rows(of.reshape(of.steps(self.count), (self.count, 1, 1)), places, carried)


@writes("VarlenCausalConvWithState")
def _convolution(of: Rewriting) -> Sequence[Node]:
    """A depthwise convolution that reads no other sequence, and before its own the carried-over rows."""
    if of.has(6) or of.has(7):
        of.refuse("weights that change with the token (kernel_delta, previous_mask) are not served")
    (tokens, channels), taps, apart = of.shape(0, 2), of.shape(1, 3)[2], int(of.attr("dilation", 1))
    kind, carried, capacity = of.dtype(0), (taps - 1) * apart, int(of.attr("state_update_capacity", 0))
    packed = PackedSequences(of, 2, tokens)
    table = of.input(0)
    if carried:
        turned = of.reshape(of("Transpose", of.input(4), perm=(0, 2, 1)), (packed.count * carried, channels))
        table = of("Concat", turned, table, axis=0)
    seen = of("Gather", table, packed.window([(taps - 1 - tap) * apart for tap in range(taps)], carried), axis=0)
    weights = of("Transpose", of.reshape(of.input(1), (channels, taps)), perm=(1, 0))
    seen, weights = (of.cast(each, "float32", kind) for each in (seen, weights))
    value = of.sum(of("Mul", seen, weights), [1])
    if of.has(3):
        value = of("Add", value, of.cast(of.input(3), "float32", kind))
    if of.node.text("activation", "none") in ("silu", "swish"):
        value = of.silu(value)
    state = of.input(4)
    if carried:
        state = of("Transpose", of("Gather", table, packed.last(carried), axis=0), perm=(0, 2, 1))
    update = ""
    if capacity:
        new = of("Gather", table, packed.first(capacity, [0], carried), axis=0)
        new = of.reshape(new, (packed.count, capacity, channels))
        update = of("Where", of("Unsqueeze", packed.captured(5, capacity), of.ints(2)), new, of.floats(0))
    return of.finish(of.cast(value, kind, "float32"), state, update)


@writes("VarlenNGramHashMapping")
def _hash_runs(of: Rewriting) -> Sequence[Node]:
    """Hashes of the runs of two and more tokens that end at a token, of its own sequence."""
    (tokens,), most = of.shape(0, 1), int(of.attr("max_ngram_size", 2))
    packed, filler, carried = PackedSequences(of, 3, tokens), before_all(of, 6), most - 1
    capacity = int(of.attr("state_update_capacity", 0))

    def with_past(given: str, past: int, missing: str) -> str:
        """Return the table of carried-over rows, or of those that stand for them, and of the given ones."""
        shape = (packed.count, carried)
        before = of.input(past) if of.has(past) else of("Expand", missing, of.ints(*shape))
        return of("Concat", of.reshape(before, (packed.count * carried,)), given, axis=0)

    def each(table: str) -> tuple[str, ...]:
        rows = packed.window(range(most), carried)
        return tuple(of.reshape(of.slice(of("Gather", table, rows, axis=0), 1, back, back + 1), (tokens,))
                     for back in range(most))  # fmt: skip

    table = with_past(of.input(0), 4, filler)
    segments, last_segments = tuple[str, ...](), ""
    if of.has(7):
        own = of("Gather", of.input(7), packed.begins, axis=0)  # what came before is of the first one's segment
        joined = with_past(of.input(7), 8, of.reshape(own, (packed.count, 1)))
        segments, last_segments = each(joined), of("Gather", joined, packed.last(carried), axis=0)
    found = hashes(of, until_reset(of, each(table), segments, filler, 6), 5)
    update = ""
    if capacity:
        new = of("Gather", table, packed.first(capacity, range(carried - 1, -1, -1), carried), axis=0)
        unused = of.constant(of.attr("pad_id", 0), of.dtype(0))
        update = of("Where", of("Unsqueeze", packed.captured(9, capacity), of.ints(2)), new, unused)
    return of.finish(found, of("Gather", table, packed.last(carried), axis=0), last_segments, update)


_QUERY, _KEY, _VALUE, _BOUNDS, _DECAY, _BETA, _STATE, _LOG, _BIAS = range(9)

_SMALL = 1e-6
"""What is added to the square of a norm, so that none is 0."""


class _Tokens:
    """The tokens of a node: queries, keys and values of float32, each ``(tokens, heads, size)``."""

    def __init__(self, of: Rewriting) -> None:
        self.of = of
        shape = of.shape(_QUERY)
        if of.has(_KEY):
            self.lead, (self.heads, self.size) = shape[:-2], shape[-2:]
            self.values, self.width = of.shape(_VALUE)[-2:]
            query, key, value = (self.flat(index, *of.shape(index)[-2:]) for index in (_QUERY, _KEY, _VALUE))
        else:
            _, self.values, self.width, self.size = of.shape(_STATE, 4)
            self.lead, columns = shape[:-1], (shape[-1] - self.values * self.width) // 2
            self.heads, whole = columns // self.size, self.flat(_QUERY, shape[-1])
            query, key, value = (
                of.reshape(of.slice(whole, 1, begin, end), (-1, count, size))
                for begin, end, count, size in (
                    (0, columns, self.heads, self.size),
                    (columns, 2 * columns, self.heads, self.size),
                    (2 * columns, shape[-1], self.values, self.width),
                )
            )
        self.tokens = self.lead[0] if len(self.lead) == 1 else self.lead[0] * self.lead[1]
        if of.attr("qk_l2_norm", 0):
            query, key = self._normal(query), self._normal(key)
        self.query, self.key, self.value = self._shared(query), self._shared(key), value

    def flat(self, index: int, *shape: int) -> Value:
        """Return an input in float32 with one axis of tokens."""
        of = self.of
        return of.reshape(of.in_float32(index), (-1, *shape))

    def _normal(self, value: str) -> Value:
        of = self.of
        squares = of("ReduceSumSquare", value, of.ints(2), keepdims=1)
        return of("Div", value, of("Sqrt", of("Add", squares, of.constant(_SMALL, "float32"))))

    def _shared(self, value: str) -> str:
        """Return queries or keys with one for each head of values; neighbours share one."""
        of, times = self.of, self.values // self.heads
        if times == 1:
            return value
        repeated = of("Expand", of("Unsqueeze", value, of.ints(2)), of.ints(1, 1, times, 1))
        return of.reshape(repeated, (-1, self.values, self.size))

    def decay(self) -> Value:
        """Return the logarithm of the share of a state that stays, ``(tokens, values, 1 or size)``."""
        of, kind = self.of, self.of.node.text("gate_activation", "none")
        depth = 1 if len(of.shape(_DECAY)) == len(self.lead) + 1 else self.size
        value = self.flat(_DECAY, self.values, depth)
        if kind == "none":
            return value
        if of.has(_BIAS):
            count = int(np.prod(of.shape(_BIAS)))
            value = of("Add", value, of.reshape(of.input(_BIAS), (self.values, count // self.values)))
        has_rate = of.has(_LOG)
        rate = of("Exp", of.reshape(of.input(_LOG), (self.values, 1))) if has_rate else of.constant([1], "float32")
        if kind in ("softplus", "qwen"):
            return of("Mul", of("Neg", rate), of("Softplus", value))
        of.refuse_if(kind not in ("sigmoid", "kda"), f"its gate_activation {kind!r} is not known")
        bound = of.constant(of.attr("gate_lower_bound", -5.0), "float32")
        return of("Mul", bound, of("Sigmoid", of("Mul", rate, value)))

    def beta(self) -> Value:
        """Return the share of the new values that is taken, ``(tokens, values, 1)``."""
        value = self.flat(_BETA, self.values, 1)
        return self.of("Sigmoid", value) if self.of.node.text("beta_activation", "none") == "sigmoid" else value


@writes("GatedDeltaNet")
def _gated_delta(of: Rewriting) -> Sequence[Node]:
    """Linear attention of each sequence; those of several lengths are filled up with tokens that change no state."""
    if of.attr("state_update_capacity", 0):
        of.refuse("what single tokens change of a state (state_update_capacity) is not served")
    rule, tokens = of.node.text("update_rule", "gated_delta"), _Tokens(of)
    given = [tokens.query, tokens.key, tokens.value]
    given += [tokens.decay() if "gated" in rule else "", tokens.beta() if "delta" in rule else ""]
    packed = PackedSequences(of, _BOUNDS, tokens.tokens) if of.has(_BOUNDS) else None
    batch = packed.count if packed else tokens.lead[0] if len(tokens.lead) == 2 else of.shape(_STATE, 4)[0]
    length = tokens.tokens if packed else tokens.tokens // batch
    if packed:
        given = [packed.filled(each) if each else "" for each in given]
    query, key, value, decay, beta = (of.reshape(each, (batch, length, -1)) if each else "" for each in given)
    state = of("Transpose", of.input(_STATE), perm=(0, 1, 3, 2)) if of.has(_STATE) else ""
    attrs: dict[str, Any] = {
        "q_num_heads": tokens.values,
        "kv_num_heads": tokens.values,
        "scale": float(of.attr("scale", 0.0)),
    }
    found, state = of.several("LinearAttention", 2, query, key, value, state, decay, beta, update_rule=rule, **attrs)
    found = of.reshape(found, (batch * length, tokens.values * tokens.width))
    if packed:
        found = packed.taken(found)
    found = of.reshape(found, (*tokens.lead, tokens.values, tokens.width))
    return of.finish(of.cast(found, of.dtype(), "float32"), of("Transpose", state, perm=(0, 1, 3, 2)))


REWRITES.register_all({"LayerNormalization": lambda of: of.same()}, MICROSOFT)
