"""Trees of TreeEnsembleClassifier and TreeEnsembleRegressor, whose leaves are nodes, each of a tree and a number."""

from __future__ import annotations

import numpy as np

from opbuild.frontend.trees.ensemble import EQ, GT, GTE, LEQ, LT, NEQ, Attributes, Ensemble
from opbuild.graph.types import Array

_LEAF = -1
_MODES = {
    "BRANCH_LEQ": LEQ, "BRANCH_LT": LT, "BRANCH_GTE": GTE, "BRANCH_GT": GT, "BRANCH_EQ": EQ, "BRANCH_NEQ": NEQ,
    "LEAF": _LEAF,
}  # fmt: skip


class _Places:
    """Where nodes stand in the attributes, by their tree and number."""

    def __init__(self, attrs: Attributes, trees: Array, numbers: Array) -> None:
        self._attrs = attrs
        self._trees, self._numbers = np.unique(trees), np.unique(numbers)
        keys = self._keys(trees, numbers)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        twice = np.flatnonzero(self._sorted[1:] == self._sorted[:-1])
        if twice.size:
            at = self._order[twice[0] + 1]
            attrs.fail(f"attribute 'nodes_nodeids' has node {numbers[at]} of tree {trees[at]} twice")

    def of(self, names: tuple[str, str], trees: Array, numbers: Array) -> Array:
        """Return the places of nodes that attributes name, of those of trees and of nodes."""
        keys = self._keys(trees, numbers)
        at = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        wrong = np.flatnonzero((keys < 0) | (self._sorted[at] != keys))
        if wrong.size:
            number, tree = numbers[wrong[0]], trees[wrong[0]]
            self._attrs.fail(f"attribute {names[1]!r} names node {number} of tree {tree}, which there is not")
        return np.asarray(self._order[at])

    def _keys(self, trees: Array, numbers: Array) -> Array:
        tree, is_tree = _rank(self._trees, trees)
        number, is_number = _rank(self._numbers, numbers)
        return np.where(is_tree & is_number, tree * len(self._numbers) + number, -1)


def _rank(known: Array, values: Array) -> tuple[Array, Array]:
    at = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return at, known[at] == values


def read(attrs: Attributes, voting: str, targets: int) -> Ensemble:
    """Return the trees.

    Args:
        attrs: The node's attributes.
        voting: What the names of its attributes of weights begin with: ``class`` or ``target``.
        targets: How many classes or targets there are.

    Raises:
        InvalidModelError: If they are not trees; the message names the attribute.
    """
    names = ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids")
    trees, numbers, features, true, false = (attrs.integers(name) for name in names)
    modes, values = _modes(attrs), attrs.numbers("nodes_values")
    if not len(trees):
        attrs.fail("attribute 'nodes_treeids' is empty: there is no tree")
    lengths = dict(zip(names, map(len, (trees, numbers, features, true, false)), strict=True))
    attrs.same_length({**lengths, "nodes_modes": len(modes), "nodes_values": len(values)})
    tracks = attrs.flags("nodes_missing_value_tracks_true", ("nodes_treeids", len(trees)))
    places, is_node = _Places(attrs, trees, numbers), modes != _LEAF
    index = np.where(is_node, np.cumsum(is_node) - 1, ~(np.cumsum(~is_node) - 1))  # a node's number, ~ a leaf's
    inner = np.flatnonzero(is_node)
    _, first = np.unique(trees, return_index=True)
    voters, votes, weights = _votes(attrs, voting, targets, places)
    counts = index[voters] < 0  # weights of nodes that are no leaves mean nothing
    return Ensemble(
        features[inner], modes[inner], values[inner], tracks[inner],
        index[places.of(("nodes_treeids", "nodes_truenodeids"), trees[inner], true[inner])],
        index[places.of(("nodes_treeids", "nodes_falsenodeids"), trees[inner], false[inner])],
        {}, index[np.sort(first)], int((~is_node).sum()), ~index[voters[counts]], votes[counts], weights[counts],
        np.unique(trees, return_inverse=True)[1][~is_node],
    )  # fmt: skip


def _modes(attrs: Attributes) -> Array:
    if not attrs.has("nodes_modes"):
        attrs.fail("attribute 'nodes_modes' is missing")
    names = attrs.strings("nodes_modes")
    for name in sorted(set(names) - _MODES.keys()):
        attrs.fail(f"attribute 'nodes_modes' has {name!r}, which is none of {', '.join(_MODES)}")
    return np.array([_MODES[name] for name in names], np.int64)


def _votes(attrs: Attributes, voting: str, targets: int, places: _Places) -> tuple[Array, Array, Array]:
    """Return the node, the target and the value of each weight."""
    names = (f"{voting}_treeids", f"{voting}_nodeids", f"{voting}_ids")
    trees, numbers, votes = (attrs.integers(name) for name in names)
    weights = attrs.numbers(f"{voting}_weights")
    lengths = dict(zip(names, map(len, (trees, numbers, votes)), strict=True))
    attrs.same_length({**lengths, f"{voting}_weights": len(weights)})
    attrs.within(names[2], votes, targets, "target" if voting == "target" else "class")
    return places.of((names[0], names[1]), trees, numbers), votes, weights
