"""Splits: nodes of every mode as nodes of one, ``x <= split``, in the element type of the rows.

That is exact: a row of float32 is at most a split of float64 if it is at most the greatest float32 that is; it is below
a split if it is at most the number before it. What equals a number, or is a member of a set, is found by a binary
search among the numbers before and the members themselves. A chain of nodes that compare one feature with one number
each, and go to one place where they are equal, is such a set: exporters write categories so.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from opbuild.frontend.trees.ensemble import EQ, GT, GTE, LT, NEQ, Ensemble
from opbuild.graph.types import Array
from opbuild.platform.records import dataclass


@dataclass(frozen=True, eq=False)
class Splits:
    """Nodes that send rows to the left where ``x <= split``; where is said as in ``Ensemble``.

    Attributes:
        features: The feature that each compares.
        splits: With what, in the element type of the rows; NaN: nothing is at most that.
        left: Where rows go that are at most that.
        right: Where others go.
        nan_left: Whether NaN goes to the left.
        roots: Where each tree begins.
        leaves: How many leaves there are.
    """

    features: Array
    splits: Array
    left: Array
    right: Array
    nan_left: Array
    roots: Array
    leaves: int


def splits_of(ensemble: Ensemble, dtype: str) -> Splits:
    """Return the nodes of an ensemble for rows of an element type."""
    modes = ensemble.modes
    is_below, turned = np.isin(modes, (LT, GTE)), np.isin(modes, (GTE, GT))
    splits = np.where(is_below, below(ensemble.splits, dtype), at_most(ensemble.splits, dtype)).astype(dtype)
    left = np.where(turned, ensemble.false, ensemble.true)
    right = np.where(turned, ensemble.true, ensemble.false)
    found = Splits(
        ensemble.features, splits, left, right, ensemble.tracks_true ^ turned, ensemble.roots, ensemble.leaves
    )
    sets = _sets(ensemble)
    return _Searches(ensemble, found, dtype).written(sets) if sets else found


def at_most(values: Array, dtype: str) -> Array:
    """Return the greatest numbers of a type that are at most some of float64; NaN stays."""
    found = _rounded(values, dtype)
    return np.where(found > values, np.nextafter(found, found.dtype.type(-np.inf)), found)


def below(values: Array, dtype: str) -> Array:
    """Return the greatest numbers of a type that are less than some of float64; NaN where there is none."""
    found = _rounded(values, dtype)
    found = np.where(found >= values, np.nextafter(found, found.dtype.type(-np.inf)), found)
    return np.where(values == -np.inf, found.dtype.type(np.nan), found)


def _rounded(values: Array, dtype: str) -> Array:
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def _sets(ensemble: Ensemble) -> dict[int, Array]:
    """Return by node the numbers that it looks for; nodes that a chain goes on with are in the set of its first."""
    modes, splits = ensemble.modes, ensemble.splits
    sets = dict(ensemble.members)
    sets |= {int(node): splits[node : node + 1] for node in np.flatnonzero(modes == NEQ)}
    following = _chains(ensemble)
    within = set(following.values())
    for node in np.flatnonzero(modes == EQ).tolist():
        if node not in within:
            chain = [node]
            while chain[-1] in following:
                chain.append(following[chain[-1]])
            sets[node] = splits[chain]
    return sets


def _chains(ensemble: Ensemble) -> Mapping[int, int]:
    """Return the node with which a chain goes on after each of its nodes but the last."""
    node = np.flatnonzero((ensemble.modes == EQ) & (ensemble.false >= 0))
    other = ensemble.false[node]
    places = np.concatenate([ensemble.true, ensemble.false, ensemble.roots])
    readers = np.bincount(places[places >= 0], minlength=len(ensemble.modes))
    alike = (ensemble.modes[other] == EQ) & (readers[other] == 1) & (node != other)
    for each in (ensemble.features, ensemble.true, ensemble.tracks_true):
        alike &= each[node] == each[other]
    return dict(zip(node[alike].tolist(), other[alike].tolist(), strict=True))


class _Searches:
    """Writes binary searches in the place of nodes that look for numbers."""

    def __init__(self, ensemble: Ensemble, made: Splits, dtype: str) -> None:
        self._ensemble, self._made, self._dtype = ensemble, made, dtype
        self._columns: list[list[float | int]] = [[], [], [], [], []]  # features, splits, left, right, nan_left
        self._count = len(made.features)

    def written(self, sets: Mapping[int, Array]) -> Splits:
        """Return the nodes with those that look in sets written as searches."""
        made, ensemble = self._made, self._ensemble
        fields = [array.copy() for array in (made.features, made.splits, made.left, made.right, made.nan_left)]
        for node, values in sets.items():
            ends = (ensemble.true[node], ensemble.false[_last(ensemble, node, len(values))])
            inside, outside = ends[::-1] if ensemble.modes[node] == NEQ else ends
            to_true = bool(ensemble.tracks_true[node])
            nan_inside = to_true != (ensemble.modes[node] == NEQ)
            own = self._search(int(made.features[node]), self._bounds(values), (int(outside), int(inside)), nan_inside)
            for field, value in zip(fields, own, strict=True):
                field[node] = value
        features, splits, left, right, nan_left = (
            np.concatenate([field, np.array(column, field.dtype)])
            for field, column in zip(fields, self._columns, strict=True)
        )
        return Splits(features, splits, left, right, nan_left, made.roots, made.leaves)

    def _bounds(self, values: Array) -> Array:
        """Return the numbers that a search compares with: for each number the one before, and itself."""
        exact = np.unique(values[_rounded(values, self._dtype) == values]) + 0.0
        return np.stack([below(exact, self._dtype), at_most(exact, self._dtype)], 1).reshape(-1)

    def _search(self, feature: int, bounds: Array, ends: tuple[int, int], nan_inside: bool) -> tuple[float | int, ...]:
        """Return the first node of a search; ``ends`` are where it leads between bounds, outside and inside."""
        if not len(bounds):  # it looks for what no row has
            return (feature, np.nan, ends[1], ends[0], nan_inside)

        def part(low: int, high: int) -> int:
            if low == high:
                return ends[low % 2]
            for column, value in zip(self._columns, node(low, high), strict=True):
                column.append(value)
            return self._count - 1

        def node(low: int, high: int) -> tuple[float | int, ...]:
            middle = (low + high) // 2
            left, right = part(low, middle), part(middle + 1, high)
            self._count += 1
            return (feature, bounds[middle], left, right, (1 if nan_inside else 0) <= middle)

        found = node(0, len(bounds))
        self._count -= 1  # it has the place of the node that it replaces
        return found


def _last(ensemble: Ensemble, node: int, count: int) -> int:
    """Return the last node of a chain of so many."""
    if ensemble.modes[node] == EQ:
        for _ in range(count - 1):
            node = int(ensemble.false[node])
    return node
