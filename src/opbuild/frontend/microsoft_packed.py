"""Operators of ``com.microsoft`` on sequences that lie one behind the other: convolutions, hashes, linear attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.graph.breaks import HOST_VALUE
from opbuild.graph.graph_builder import Value
from opbuild.graph.types import Node


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
            word = of("BitShift", bits, of.constant(np.array(32, np.uint64)), direction="RIGHT") if number else bits
            word = of.cast(of("BitwiseAnd", word, of.constant(np.array(0xFFFFFFFF, np.uint64))), "uint32")
        state = of("BitwiseXor", state, _mixed(of, word))
        state = of("Add", of("Mul", _rotated(of, state, 13), _word(of, 5)), _word(of, 0xE6546B64))
    state = of("BitwiseXor", state, _word(of, 4 * words))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 0)):
        state = of("BitwiseXor", state, _shifted(of, state, shift, "RIGHT"))
        state = of("Mul", state, _word(of, factor)) if factor else state
    return of.finish(state if of.attr("positive", 1) else of.bits(state, "uint32", "int32"))


def _mixed(of: Rewriting, word: str) -> Value:
    return of("Mul", _rotated(of, of("Mul", word, _word(of, 0xCC9E2D51)), 15), _word(of, 0x1B873593))


def _rotated(of: Rewriting, value: str, bits: int) -> Value:
    return of("BitwiseOr", _shifted(of, value, bits, "LEFT"), _shifted(of, value, 32 - bits, "RIGHT"))


def _shifted(of: Rewriting, value: str, bits: int, direction: str) -> Value:
    return of("BitShift", value, _word(of, bits), direction=direction)


def _word(of: Rewriting, value: int) -> Value:
    return of.constant(np.array(value, np.uint32))


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
    return of.scalar(end) if of.has(end) else of.constant(np.array(of.attr("pad_id", 0), of.dtype(0)))


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
    """Sequences of tokens, one behind the other.

    Args:
        of: Where it is written.
        bounds: The place of the input that says where sequences begin and end.
        tokens: How many tokens there are.

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
        return of("Where", of("Unsqueeze", inside, of.ints(2, 3)), found, of.constant(np.zeros(1, np.float32)))

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
        unused = of.constant(np.array(of.attr("pad_id", 0), of.dtype(0)))
        update = of("Where", of("Unsqueeze", packed.captured(9, capacity), of.ints(2)), new, unused)
    return of.finish(found, of("Gather", table, packed.last(carried), axis=0), last_segments, update)


_QUERY, _KEY, _VALUE, _BOUNDS, _DECAY, _BETA, _STATE, _LOG, _BIAS = range(9)

_EPSILON = 1e-6
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
        return of.reshape(of.cast(of.input(index), "float32", of.dtype(index)), (-1, *shape))

    def _normal(self, value: str) -> Value:
        of = self.of
        squares = of("ReduceSumSquare", value, of.ints(2), keepdims=1)
        return of("Div", value, of("Sqrt", of("Add", squares, of.constant(np.array(_EPSILON, np.float32)))))

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
        rate = (
            of("Exp", of.reshape(of.input(_LOG), (self.values, 1)))
            if of.has(_LOG)
            else of.constant(np.ones(1, np.float32))
        )
        if kind in ("softplus", "qwen"):
            return of("Mul", of("Neg", rate), of("Softplus", value))
        if kind not in ("sigmoid", "kda"):
            of.refuse(f"its gate_activation {kind!r} is not known")
        bound = of.constant(np.array(of.attr("gate_lower_bound", -5.0), np.float32))
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
