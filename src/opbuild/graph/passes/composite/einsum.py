"""Einsum as products of two operands at a time: each is a MatMul over the shared letters, or a broadcast Mul."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from math import prod

from opbuild.graph.graph_builder import Value
from opbuild.graph.passes.composite import REWRITES
from opbuild.graph.passes.rewriter import KeptError, PassBuilder
from opbuild.graph.shape_rules_reduction import einsum_labels
from opbuild.platform.records import NamedTuple

MOST_PRODUCTS = 2**22
"""Products at most that are all stored before they are summed up, of types for which MatMul has no kernel."""


class _Term(NamedTuple):
    """A value and the label of each of its dimensions; no label stands twice."""

    name: str
    labels: tuple[str, ...]


class _Einsum:
    """One Einsum while it is rewritten."""

    def __init__(self, of: PassBuilder) -> None:
        self.of, self.node = of, of.node
        self.extents: dict[str, int] = {}

    def run(self) -> None:
        """Append the computation of the node."""
        terms, result = einsum_labels(
            self.node.text("equation", ""), [len(self.of.types[name].shape) for name in self.node.inputs]
        )
        for name, labels in zip(self.node.inputs, terms, strict=True):
            for label, extent in zip(labels, self.of.types[name].shape, strict=True):
                self.extents[label] = max(extent, self.extents.get(label, 1))
        for name, labels in zip(self.node.inputs, terms, strict=True):
            is_diagonal = len(set(labels)) < len(labels)
            if not self.of.types[name].size or (is_diagonal and self._is_broadcast(name, labels)):
                raise KeptError
        left = [self._distinct(name, labels) for name, labels in zip(self.node.inputs, terms, strict=True)]
        left = [self._summed(term, {*result, *_labels(left[:i] + left[i + 1 :])}) for i, term in enumerate(left)]
        while len(left) > 1:
            one, two = self._cheapest(left, result)
            others = [term for number, term in enumerate(left) if number not in (one, two)]
            left = [*others, self._product(left[one], left[two], {*result, *_labels(others)})]
        self._finish(self._summed(left[0], set(result)), result)

    def _is_broadcast(self, name: str, labels: Sequence[str]) -> bool:
        shape = self.of.types[name].shape
        return any(extent != self.extents[label] for label, extent in zip(labels, shape, strict=True))

    def _distinct(self, name: str, labels: tuple[str, ...]) -> _Term:
        """Return a term without the dimensions that only broadcast, and with diagonals for repeated labels."""
        shape = self.of.types[name].shape
        kept = [axis for axis, label in enumerate(labels) if shape[axis] == self.extents[label]]
        if len(kept) < len(labels):
            name = self.of.reshape(name, [shape[axis] for axis in kept])
            labels = tuple(labels[axis] for axis in kept)
        while len(set(labels)) < len(labels):
            twice = next(label for label in labels if labels.count(label) > 1)
            first = labels.index(twice)
            second = labels.index(twice, first + 1)
            rest = [axis for axis in range(len(labels)) if axis not in (first, second)]
            extent = self.extents[twice]
            front = self.of.transpose(name, (first, second, *rest))
            flat = self.of.reshape(front, (extent * extent, *front.shape[2:]))
            name = self.of.slice(flat, 0, 0, extent * extent, extent + 1)
            labels = (twice, *(labels[axis] for axis in rest))
        return _Term(name, labels)

    def _summed(self, term: _Term, needed: Collection[str]) -> _Term:
        """Return a term summed up over the labels that nothing else needs."""
        axes = [axis for axis, label in enumerate(term.labels) if label not in needed]
        if not axes:
            return term
        name = self.of("ReduceSum", term.name, self.of.integers(axes), keepdims=0)
        return _Term(name, tuple(label for label in term.labels if label in needed))

    def _cheapest(self, terms: Sequence[_Term], result: Sequence[str]) -> tuple[int, int]:
        """Return the pair whose product has the fewest elements."""

        def size(pair: tuple[int, int]) -> int:
            others = [term for number, term in enumerate(terms) if number not in pair]
            both = {*terms[pair[0]].labels, *terms[pair[1]].labels}
            return self._size(both & {*result, *_labels(others)})

        return min(combinations(range(len(terms)), 2), key=size)

    def _size(self, labels: Iterable[str]) -> int:
        return prod(self.extents[label] for label in labels)

    def _product(self, one: _Term, two: _Term, needed: Collection[str]) -> _Term:
        both = [label for label in one.labels if label in two.labels]
        batch, summed = [x for x in both if x in needed], [x for x in both if x not in needed]
        rows = [label for label in one.labels if label not in both]
        columns = [label for label in two.labels if label not in both]
        has_kernel = self.of.types[one.name].dtype == "float32"
        is_small = not has_kernel and self._size({*one.labels, *two.labels}) <= MOST_PRODUCTS
        if not summed or is_small or not (rows or columns):
            left = self._shaped(one, [batch, rows, *([label] for label in columns), summed], columns)
            right = self._shaped(two, [batch, *([label] for label in rows), columns, summed], rows)
            whole = _Term(self.of("Mul", left, right), (*batch, *rows, *columns, *summed))
            return self._summed(whole, needed)
        left = self._matrix(one, batch, rows, summed)
        right = self._matrix(two, batch, summed, columns)
        labels = (*batch, *rows, *columns)
        found = self.of("MatMul", left, right)
        return _Term(self.of.reshape(found, [self.extents[label] for label in labels]), labels)

    def _shaped(self, term: _Term, groups: Sequence[Sequence[str]], absent: Collection[str]) -> Value:
        """Return a term with its dimensions in the order of the groups, with extents of 1 for absent labels."""
        labels = [label for group in groups for label in group]
        name = self._ordered(term, [label for label in labels if label not in absent])
        return self.of.reshape(name, [1 if label in absent else self.extents[label] for label in labels])

    def _matrix(self, term: _Term, batch: Sequence[str], rows: Sequence[str], columns: Sequence[str]) -> Value:
        name = self._ordered(term, [*batch, *rows, *columns])
        shape = ([self._size(batch)] if batch else []) + [self._size(rows), self._size(columns)]
        return self.of.reshape(name, shape)

    def _ordered(self, term: _Term, labels: Sequence[str]) -> str:
        if list(term.labels) == list(labels):
            return term.name
        return self.of.transpose(term.name, [term.labels.index(label) for label in labels])

    def _finish(self, term: _Term, result: Sequence[str]) -> None:
        """Assign the output: the term with its dimensions in the right order, those that all inputs lack added."""
        known = [label for label in result if label in term.labels]
        name, shape = self._ordered(term, known), [self.extents[label] for label in result]
        self.of.reshape(name, shape, self.node.outputs[0])


def _labels(terms: Sequence[_Term]) -> set[str]:
    return {label for term in terms for label in term.labels}


REWRITES.register("Einsum")(lambda of: _Einsum(of).run())
