"""Probabilities of classes from those of pairs of classes, by the iteration of Wu, Lin and Weng (2004).

It is computed in float64 by the same operations for one row, with Python's numbers, as for many, with columns: what
becomes of a row does not depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
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
        found = _of_columns(_system(list(pairs.T.astype(np.float64)), classes), len(pairs))
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
    """Return the probabilities of one row; what is not a number is near enough."""
    found, bound = [1 / len(system)] * len(system), TOLERANCE / len(system)
    for _ in range(SWEEPS):
        slopes, mean = _slopes(system, found)
        if not any(abs(slope - mean) >= bound for slope in slopes):
            break
        _sweep(system, found, slopes, mean)
    return found


def _of_columns(system: list[list[Column]], rows: int) -> Array:
    """Return the probabilities of many rows; those that are near enough are left out of further sweeps."""
    classes, left = len(system), np.arange(rows)
    found, bound = [np.full(rows, 1 / classes)] * classes, TOLERANCE / classes
    results = np.empty((rows, classes))
    for _ in range(SWEEPS):
        slopes, mean = _slopes(system, found)
        far = np.logical_or.reduce([np.abs(slope - mean) >= bound for slope in slopes])
        if not far.all():
            results[left[~far]] = np.stack(found, 1)[~far]
            left, mean = left[far], mean[far]
            found, slopes = [each[far] for each in found], [each[far] for each in slopes]
            system = [[each[far] for each in row] for row in system]
        if not len(left):
            return results
        _sweep(system, found, slopes, mean)
    results[left] = np.stack(found, 1)
    return results


def _slopes(system: list[list[Column]], found: list[Column]) -> tuple[list[Column], Column]:
    """Return half the slope along each probability, and the mean of them."""
    slopes = [sum(a * b for a, b in zip(row, found, strict=True)) for row in system]
    return slopes, sum(a * b for a, b in zip(found, slopes, strict=True))


def _sweep(system: list[list[Column]], found: list[Column], slopes: list[Column], mean: Column) -> None:
    """Change one probability after the other to where the slope along it is the mean, and divide all by their sum."""
    for index, row in enumerate(system):
        change = (mean - slopes[index]) / row[index]
        found[index] = found[index] + change
        scale = 1 / (1 + change)
        mean = (mean + change * (change * row[index] + 2 * slopes[index])) * scale * scale
        slopes[:] = [(slope + change * own) * scale for slope, own in zip(slopes, row, strict=True)]
        found[:] = [each * scale for each in found]
