"""Probabilities of classes from those of pairs of classes, by the iteration of Wu, Lin and Weng (2004)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.graph.types import Array, Node

SWEEPS = 100
"""Sweeps at most."""

TOLERANCE = 0.005
"""How far the condition of the minimum may be off, by the number of classes."""


@implements("PairwiseCoupling", domain="opbuild")
def _couple(node: Node, inputs: Any) -> Sequence[Array]:
    """Solve for each row by itself; a row that is near enough to the minimum stays."""
    pairs, classes = inputs[0], int(node.attrs["classes"])
    system = _system(pairs, classes)
    found = np.full((len(pairs), classes), 1 / classes, pairs.dtype)
    left = np.arange(len(pairs))
    for _ in range(SWEEPS):
        q, p = system[left], found[left]
        slopes = (q * p[:, None, :]).sum(2, dtype=p.dtype)
        mean = (p * slopes).sum(1, dtype=p.dtype)
        far = ~(np.abs(slopes - mean[:, None]).max(1) < p.dtype.type(TOLERANCE / classes))
        left = left[far]
        if not len(left):
            break
        found[left] = _swept(q[far], p[far], slopes[far], mean[far])
    return (found,)


def _system(pairs: Array, classes: int) -> Array:
    """Return the matrices whose quadratic forms are least for the probabilities wanted."""
    wins = np.zeros((len(pairs), classes, classes), pairs.dtype)
    first, second = np.triu_indices(classes, 1)
    wins[:, first, second], wins[:, second, first] = pairs, 1 - pairs
    system = -wins.swapaxes(1, 2) * wins
    each = np.arange(classes)
    system[:, each, each] = np.square(wins).sum(1)
    return system


def _swept(q: Array, p: Array, slopes: Array, mean: Array) -> Array:
    """Return what one sweep makes of the probabilities: each is changed in turn, and all are divided by their sum."""
    for index in range(p.shape[1]):
        own = q[:, index, index]
        change = (mean - slopes[:, index]) / own
        p[:, index] += change
        scale = 1 + change
        mean = (mean + change * (change * own + 2 * slopes[:, index])) / scale / scale
        slopes = (slopes + change[:, None] * q[:, index]) / scale[:, None]
        p /= scale[:, None]
    return p
