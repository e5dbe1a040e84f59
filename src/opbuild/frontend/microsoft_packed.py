"""Operators of ``com.microsoft`` on sequences that lie one behind the other, as ONNX's operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.frontend.microsoft_hashes import before_all, hashes, until_reset
from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.graph.types import Node


class Packed:
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
        own = of("ReduceSum", of.cast(is_behind, "int64"), of.ints(1), keepdims=0)
        self.own = of("Min", own, of.ints(self.count - 1))
        self.places = of("Sub", steps, of("Gather", self.begins, self.own, axis=0))

    def rows(self, sequences: str, places: str, carried: int) -> str:
        """Return the rows of places in sequences, in a table of what was carried over and of all tokens.

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

    def filled(self, value: str) -> str:
        """Return tokens as ``(count, tokens, ...)``, each sequence filled up with zeros."""
        of = self.of
        steps = of("Add", of.reshape(self.begins, (self.count, 1)), of.steps(self.tokens))
        inside = of("Less", of.steps(self.tokens), of.reshape(self.lengths, (self.count, 1)))
        found = of("Gather", value, of("Min", steps, of.number(self.tokens - 1)), axis=0)
        return of("Where", of("Unsqueeze", inside, of.ints(2, 3)), found, of.constant(np.zeros(1, np.float32)))

    def taken(self, value: str) -> str:
        """Return the tokens of sequences that were filled up, one behind the other."""
        of = self.of
        rows = of("Add", of("Mul", self.own, of.number(self.tokens)), self.places)
        return of("Gather", value, rows, axis=0)

    def window(self, back: Sequence[int], carried: int) -> str:
        """Return the rows ``(tokens, len(back))`` of what lies so many places before each token."""
        of = self.of
        places = of("Sub", of.reshape(self.places, (self.tokens, 1)), of.ints(*back))
        return self.rows(of.reshape(self.own, (self.tokens, 1)), places, carried)

    def last(self, carried: int) -> str:
        """Return the rows ``(count, carried)`` of the last tokens of each sequence."""
        of = self.of
        places = of("Add", of.reshape(self.lengths, (self.count, 1)), of.ints(*range(-carried, 0)))
        return self.rows(of.reshape(of.steps(self.count), (self.count, 1)), places, carried)

    def captured(self, index: int, capacity: int) -> str:
        """Return which of the first tokens of each sequence are asked for, ``(count, capacity)``."""
        of = self.of
        wanted = of.cast(of.input(index), "int64", of.dtype(index))
        return of("Less", of.ints(*range(capacity)), of.reshape(of("Min", wanted, self.lengths), (self.count, 1)))

    def first(self, capacity: int, back: Sequence[int], carried: int) -> str:
        """Return the rows ``(count, capacity, len(back))`` of what lies before the first tokens of each sequence."""
        of = self.of
        last = of.reshape(of("Sub", self.lengths, of.ints(1)), (self.count, 1, 1))
        steps = of("Min", of.reshape(of.steps(capacity), (capacity, 1)), last)
        places = of("Sub", steps, of.ints(*back))
        return self.rows(of.reshape(of.steps(self.count), (self.count, 1, 1)), places, carried)


@writes("VarlenCausalConvWithState")
def _convolution(of: Rewriting) -> Sequence[Node]:
    """A depthwise convolution that reads no other sequence, and before its own what was carried over."""
    if of.has(6) or of.has(7):
        of.refuse("weights that change with the token (kernel_delta, previous_mask) are not served")
    (tokens, channels), taps, apart = of.shape(0, 2), of.shape(1, 3)[2], int(of.attr("dilation", 1))
    kind, carried, capacity = of.dtype(0), (taps - 1) * apart, int(of.attr("state_update_capacity", 0))
    packed = Packed(of, 2, tokens)
    table = of.input(0)
    if carried:
        turned = of.reshape(of("Transpose", of.input(4), perm=(0, 2, 1)), (packed.count * carried, channels))
        table = of("Concat", turned, table, axis=0)
    seen = of("Gather", table, packed.window([(taps - 1 - tap) * apart for tap in range(taps)], carried), axis=0)
    weights = of("Transpose", of.reshape(of.input(1), (channels, taps)), perm=(1, 0))
    seen, weights = (of.cast(each, "float32", kind) for each in (seen, weights))
    value = of("ReduceSum", of("Mul", seen, weights), of.ints(1), keepdims=0)
    if of.has(3):
        value = of("Add", value, of.cast(of.input(3), "float32", kind))
    if of.node.text("activation", "none") in ("silu", "swish"):
        value = of("Mul", value, of("Sigmoid", value))
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
    packed, filler, carried = Packed(of, 3, tokens), before_all(of, 6), most - 1
    capacity = int(of.attr("state_update_capacity", 0))

    def with_past(given: str, past: int, missing: str) -> str:
        """Return the table of what was carried over, or of what stands for that, and of what is given."""
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
