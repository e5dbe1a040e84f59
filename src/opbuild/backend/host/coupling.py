"""Probabilities of classes from those of pairs of classes, by the iteration of Wu, Lin and Weng (2004).

It is computed in float64 by the same operations for one row, with Python's numbers, as for many, with columns: what
becomes of a row does not depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from operator import mul
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.graph.types import Array, Node

SWEEPS = 100
"""Sweeps at most."""

TOLERANCE = 0.005
"""How far the condition of the minimum may be off, by the number of classes."""

FEW = 16
"""Rows up to which Python's numbers are faster than columns."""

Column = Any
"""A number of one row, or an array of those of many."""


@implements("PairwiseCoupling", domain="opbuild")
def _couple(node: Node, inputs: Any) -> Sequence[Array]:
    pairs, classes = inputs[0], int(node.attrs["classes"])
    if len(pairs) <= FEW:
        found = np.array([_of_row(_system(row, classes)) for row in pairs.tolist()])
    else:
        found = _of_columns(np.array(_system(list(pairs.T.astype(np.float64)), classes)))
    return (found.reshape(-1, classes).astype(pairs.dtype),)


def _system(pairs: Sequence[Column], classes: int) -> list[list[Column]]:
    """Return the matrix whose quadratic form is least for the probabilities wanted."""
    system: list[list[Column]] = [[0.0] * classes for _ in range(classes)]
    for (first, second), wins in zip(combinations(range(classes), 2), pairs, strict=True):
        loses = 1 - wins
        system[first][second] = system[second][first] = -wins * loses
        system[first][first] = system[first][first] + loses * loses
        system[second][second] = system[second][second] + wins * wins
    return system


def _of_row(system: list[list[float]]) -> list[float]:
    """Return the probabilities of one row; a value that is not a number is near enough."""
    found, bound = [1 / len(system)] * len(system), TOLERANCE / len(system)
    for _ in range(SWEEPS):
        slopes, mean = _slopes(system, found)
        if not any(abs(slope - mean) >= bound for slope in slopes):
            break
        _sweep(system, found, slopes, mean)
    return found


def _of_columns(system: Array) -> Array:
    """Return the probabilities of many rows; those that are near enough are left out of further sweeps."""
    classes, _, rows = system.shape
    found, bound, left = np.full((classes, rows), 1 / classes), TOLERANCE / classes, np.arange(rows)
    results = np.empty((classes, rows))
    for _ in range(SWEEPS):
        slopes = sum(system[:, index] * found[index] for index in range(classes))
        mean = sum(found[index] * slopes[index] for index in range(classes))
        far = (np.abs(slopes - mean) >= bound).any(0)
        if not far.all():
            results[:, left[~far]] = found[:, ~far]
            left, mean = left[far], mean[far]
            found, slopes, system = (each.compress(far, -1) for each in (found, slopes, system))
        if not len(left):
            return results.T
        for index, row in enumerate(system):
            change = (mean - slopes[index]) / row[index]
            found[index] += change
            scale = 1 / (1 + change)
            mean = (mean + change * (change * row[index] + 2 * slopes[index])) * scale * scale
            slopes = (slopes + change * row) * scale
            found *= scale
    results[:, left] = found
    return results.T


def _slopes(system: list[list[float]], found: list[float]) -> tuple[list[float], float]:
    """Return half the slope along each probability, and the mean of them."""
    slopes = [_dot(row, found) for row in system]
    return slopes, _dot(found, slopes)


def _dot(one: list[float], other: list[float]) -> float:
    """Return a sum of products, each added as it is: ``sum`` keeps the rounding errors, from Python 3.12 on."""
    total = 0.0
    for each in map(mul, one, other):
        total += each
    return total


def _sweep(system: list[list[float]], found: list[float], slopes: list[float], mean: float) -> None:
    """Change one probability after the other to where the slope along it is the mean, and divide all by their sum."""
    for index, row in enumerate(system):
        change = (mean - slopes[index]) / row[index]
        found[index] = found[index] + change
        scale = 1 / (1 + change)
        mean = (mean + change * (change * row[index] + 2 * slopes[index])) * scale * scale
        slopes[:] = [(slope + change * own) * scale for slope, own in zip(slopes, row, strict=True)]
        found[:] = [each * scale for each in found]
