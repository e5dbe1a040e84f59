"""Operators of ``com.microsoft`` in numpy, each step of which depends on the one before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.graph.types import Array, Node

MICROSOFT = "com.microsoft"


@implements("Inverse", domain=MICROSOFT)
def _inverse(node: Node, inputs: Any) -> Sequence[Array]:
    """The inverse of each matrix; one that has none becomes infinite."""
    (x,) = inputs
    wide = x if x.dtype in (np.float32, np.float64) else x.astype(np.float32)
    try:
        return (np.linalg.inv(wide).astype(x.dtype),)
    except np.linalg.LinAlgError:  # one of them
        found = [_inverse_or_infinity(each) for each in wide.reshape(-1, *x.shape[-2:])]
        return (np.reshape(found, x.shape).astype(x.dtype),)


def _inverse_or_infinity(matrix: Array) -> Array:
    try:
        return np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return np.full_like(matrix, np.inf)


@implements("DynamicTimeWarping", domain=MICROSOFT)
def _warping(node: Node, inputs: Any) -> Sequence[Array]:
    """The path through a matrix of costs that costs least: its rows, and its columns."""
    costs = inputs[0].reshape(inputs[0].shape[-2:])
    rows, columns = costs.shape
    total = np.full((rows + 1, columns + 1), np.inf, np.float32)
    total[0, 0] = 0
    steps = np.zeros((rows + 1, columns + 1), np.int8)
    for column in range(1, columns + 1):
        for row in range(1, rows + 1):
            before = (total[row - 1, column - 1], total[row - 1, column], total[row, column - 1])
            # Of equal ones the step along the row is taken.
            step = 0 if before[0] < min(before[1:]) else 1 if before[1] < min(before[0], before[2]) else 2
            total[row, column] = before[step] + costs[row - 1, column - 1]
            steps[row, column] = step
    path, (row, column) = [], costs.shape
    while row and column:
        path.append((row - 1, column - 1))
        step = steps[row, column]
        row, column = row - (step < 2), column - (step != 1)
    return (np.array(path[::-1], np.int32).reshape(-1, 2).T.copy(),)


@implements("BifurcationDetector", domain=MICROSOFT)
def _bifurcation(node: Node, inputs: Any) -> Sequence[Array]:
    """Tokens with those that were predicted up to the first that is not as the source has it, and where they go on."""
    source, tokens, place, predicted = (*inputs, None)[:4]
    if predicted is not None:
        rest = source[int(place.reshape(-1)[0]) :]
        if len(predicted) != len(rest) + 1:
            raise ValueError(f"{len(predicted)} tokens were predicted, not {len(rest) + 1}")
        wrong = np.flatnonzero(predicted[:-1] != rest)
        tokens = np.concatenate([tokens, predicted[: (wrong[0] if wrong.size else len(rest)) + 1]])
    least, most = (int(node.attrs.get(f"{name}_ngram_size", default)) for name, default in (("min", 1), ("max", 3)))
    found = _suffix_match(source, tokens, range(least, min(most, len(tokens)) + 1))
    return (tokens, np.full(place.shape, found, np.int64))


def _suffix_match(source: Array, tokens: Array, sizes: range) -> int:
    """Return the place behind the only run of the source that is the end of tokens; -1 if there is none alone."""
    found = -1
    for size in sizes:
        if size > len(source):
            break
        runs = np.lib.stride_tricks.sliding_window_view(source, size)
        places = np.flatnonzero((runs == tokens[len(tokens) - size :]).all(-1))
        if not places.size:
            break
        found = int(places[0]) + size
        if found >= len(source):
            break
        if places.size > 1:
            found = -1
    return found
