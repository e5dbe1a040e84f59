"""Attention by heads, as products and a softmax: what the attention operators of all domains are written with."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from opbuild.frontend.rewriting import Rewriting
from opbuild.graph.graph_builder import Value
from opbuild.platform.records import dataclass, field


@dataclass
class Heads:
    """Queries, keys and values apart, each ``(batch, heads, length, size)``.

    Attributes:
        of: Where it is written.
        query, key, value: Names of the values.
        batch, count: Batches and heads of the queries.
        length, total: Queries, and keys.
        size, value_size: Elements of a head of queries and keys, and of values.
        added: What is added to the scores, of shapes that broadcast to ``(batch, heads, length, total)``.
        past: Keys of earlier calls among all.
        shown: Which keys a query sees, of such a shape; empty: all.
        there: How many keys each batch has, of such a shape; what lies behind is not looked at. Empty: all.
        since: The first key of each batch that is looked at, of such a shape, if not all that are there. Empty: all.
        groups: Heads of keys and values, each of which as many heads of queries share; then what is added, and what is
            shown, is of shapes that broadcast to ``(batch, groups, heads / groups, length, total)``, without the
            fourth axis if there is one query: heads are rows of one product then.
        sink: A score of each head that takes part in the softmax, and has no value; empty: none.
        precision: The element type of the softmax; empty: that of the scores.
        zeros: Which hidden rows are 0, as Softmax has it; empty: none.
        stages: What became of the scores once it was written: products, scores before and after hiding, and weights.
    """

    of: Rewriting
    query: str
    key: str
    value: str
    batch: int
    count: int
    length: int
    total: int
    size: int
    value_size: int
    added: list[str] = field(default_factory=list)
    past: int = 0
    shown: str = ""
    there: str = ""
    since: str = ""
    groups: int = 0
    sink: str = ""
    precision: str = ""
    zeros: str = ""
    stages: list[Value] = field(default_factory=list)

    def attend(self, scale: float = 0.0, softcap: float = 0.0, hidden: float = -np.inf) -> Value:
        """Write the attention and return ``(batch, length, heads * value_size)``; see ``weigh``."""
        result = self.weigh(scale or 1 / sqrt(self.size), softcap, hidden)
        if not self._are_rows:
            result = self.of("Transpose", result, perm=(0, 3, 1, 2, 4) if self.groups else (0, 2, 1, 3))
        return self.of.reshape(result, (self.batch, self.length, self.count * self.value_size))

    def weigh(self, scale: float, softcap: float = 0.0, hidden: float = -np.inf) -> Value:
        """Write the attention and return it by heads, two axes in groups; ``hidden`` is the score of a hidden key."""
        of, groups = self.of, self.groups
        query, value, key = self.query, self.value, of("Transpose", self.key, perm=(0, 1, 3, 2))
        if groups:
            rows = (self.count // groups, *(() if self.length == 1 else (self.length,)))
            query = of.reshape(query, (self.batch, groups, *rows, self.size))
        if groups and self.length != 1:
            key, value = (of("Unsqueeze", each, of.ints(2)) for each in (key, value))
        if self.there:
            places = of.reshape(of.steps(self.total), (self.total, 1))
            is_there = of("Less", places, self.there)
            if self.since:
                is_there = of("And", is_there, of("GreaterOrEqual", places, self.since))
            value = of("Where", is_there, value, of.floats(0.0))
        scores = of("MatMul", query, key)
        if scale != 1:
            scores = of("Mul", scores, of.floats(scale))
        self.stages = [scores]
        if softcap:
            scores = of("Mul", of("Tanh", of("Mul", scores, of.floats(1 / softcap))), of.floats(softcap))
        self.stages.append(scores)
        for each in self.added:
            scores = of("Add", scores, each)
        if self.shown:
            scores = of("Where", self.shown, scores, of.floats(hidden))
        weights = self._shares(scores)
        self.stages += [scores, weights]
        return of("MatMul", weights, value)

    def _shares(self, scores: Value) -> Value:
        """Write the softmax of scores, of which a sink takes its share."""
        if not self.sink:
            own, dtype = self.of.dtype(), self.precision or self.of.dtype()
            softmax = self._softmax_of_doubles if dtype == "float64" else self._softmax
            return self.of.cast(softmax(self.of.cast(scores, dtype, own)), own, dtype)
        heads, rows = self._split_heads, self._rows
        sink = self.of.reshape(self.sink, (1, *heads, *(1,) * (len(rows) + 1)))
        sink = self.of("Expand", sink, self.of.ints(self.batch, *heads, *rows, 1))
        shares = self.of("Softmax", self.of("Concat", scores, sink, axis=-1), axis=-1)
        return self.of.slice(shares, 1 + len(heads) + len(rows), 0, self.total)

    def _softmax(self, scores: str) -> Value:
        zeros = {"zeros": self.zeros} if self.zeros else {}
        return self.of("Softmax", scores, axis=-1, **zeros)

    def _softmax_of_doubles(self, scores: str) -> Value:
        """Write a softmax of float64, for which there is no kernel, with operators that have some."""
        of, last = self.of, self.of.ints(-1)
        greatest = of("ReduceMax", scores, last, keepdims=1)
        if self.zeros:  # the powers of a row of -inf are 0 then, not NaN
            greatest = of("Max", greatest, of.constant(np.finfo(np.float64).min, "float64"))
        powers = of("Exp", of("Sub", scores, greatest))
        total = of("ReduceSum", powers, last, keepdims=1)
        if self.zeros:
            nothing, one = (of.constant(number, "float64") for number in (0, 1))
            total = of("Where", of("Equal", total, nothing), one, total)
        return of("Div", powers, total)

    @property
    def _are_rows(self) -> bool:
        """Whether heads that share keys are rows of one product."""
        return bool(self.groups) and self.length == 1

    @property
    def _split_heads(self) -> tuple[int, ...]:
        return (self.groups, self.count // self.groups) if self.groups else (self.count,)

    @property
    def _rows(self) -> tuple[int, ...]:
        return () if self._are_rows else (self.length,)

    def append_to(self, key: str, value: str, past: int) -> None:
        """Take keys and values of earlier calls before the new ones."""
        self.key = self.of("Concat", key, self.key, axis=2)
        self.value = self.of("Concat", value, self.value, axis=2)
        self.total, self.past = self.total + past, past

    def of_heads(self, value: str, shape: Sequence[int]) -> Value:
        """Write what is of a shape ``(batch, heads, length, total)``, extents of which may be 1, as scores have it."""
        if not self.groups:
            return self.of.value(value)
        batch, heads, length, total = shape
        split = (1, 1) if heads == 1 else self._split_heads
        return self.of.reshape(value, (batch, *split, *(() if self._are_rows else (length,)), total))

    def of_queries(self, value: str, rows: int | None = None) -> Value:
        """Write a number of each query, ``(batch or 1, length)``, as scores have it; ``rows``: how many there are."""
        heads = (1, 1) if self.groups and not self._are_rows else (1,)
        return self.of.reshape(value, (-1, *heads, self.length if rows is None else rows, 1))


def split_heads(of: Rewriting, value: str, batch: int, length: int, heads: int, size: int) -> Value:
    """Write ``(batch, length, heads * size)`` as ``(batch, heads, length, size)``."""
    return of("Transpose", of.reshape(value, (batch, length, heads, size)), perm=(0, 2, 1, 3))
