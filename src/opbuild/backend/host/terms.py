"""TfIdfVectorizer: how often runs of words stand in a row, in numpy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.graph.types import Array, Node


@implements("TfIdfVectorizer")
def _vectorize(node: Node, inputs: Any) -> Sequence[Array]:
    x, attrs = inputs[0], node.attrs
    places = {run: index for index, run in enumerate(_runs(attrs))}
    columns = [int(column) for column in attrs["ngram_indexes"]]
    weights = attrs.get("weights") or [1.0] * len(columns)
    mode = node.text("mode", "TF")
    rows = x.reshape(-1, x.shape[-1]) if x.ndim else x.reshape(1, 1)
    found = np.zeros((len(rows), max(columns) + 1), np.float32)
    for row, words in zip(found, rows.tolist(), strict=True):
        for run, count in _counts(words, attrs).items():
            if run in places:
                place = places[run]
                row[columns[place]] = {"TF": count, "IDF": weights[place], "TFIDF": count * weights[place]}[mode]
    return (found if x.ndim > 1 else found.reshape(-1),)


def _runs(attrs: Any) -> list[tuple[Any, ...]]:
    """Return the runs of the pool in order: those of one word, then of two, and so on."""
    words = attrs.get("pool_int64s") or [
        each.decode() if isinstance(each, bytes) else each for each in attrs["pool_strings"]
    ]
    begins = [int(each) for each in attrs["ngram_counts"]]
    runs = []
    for length, (begin, end) in enumerate(zip(begins, [*begins[1:], len(words)], strict=True), 1):
        runs += [tuple(words[place : place + length]) for place in range(begin, end, length)]
    return runs


def _counts(words: list[Any], attrs: Any) -> Counter[tuple[Any, ...]]:
    """Count the runs of a row, also those that leave out words between two: as many between any two of them."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for length in range(int(attrs["min_gram_length"]), int(attrs["max_gram_length"]) + 1):
        skips = range(1 if length == 1 else int(attrs["max_skip_count"]) + 1)
        for step in (skip + 1 for skip in skips):
            reach = step * (length - 1)
            counts.update(tuple(words[b : b + reach + 1 : step]) for b in range(len(words) - reach))
    return counts
