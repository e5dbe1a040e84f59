"""Ensemble: decision trees as their attributes say, whichever operator they are of; attributes are read and checked.

Nodes of every mode become nodes of one, ``x <= split``, in the element type of the rows. That is exact: a row of
float32 is at most a split of float64 if it is at most the greatest float32 that is; it is below a split if it is at
most the number before it. What equals a number, or is a member of a set, is found by a binary search among the numbers
before and the members themselves. A chain of nodes that compare one feature with one number each, and go to one place
where they are equal, is such a set: exporters write categories so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Any, NoReturn

import numpy as np

from opbuild.errors import InvalidModelError, UnsupportedOperatorError
from opbuild.graph.types import Array, Node
from opbuild.platform.records import dataclass
from opbuild.text.plural import counted

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
"""Comparisons, by the numbers that TreeEnsemble gives them."""


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Decision trees.

    Where a node or a root is named, a number from 0 on is one of the nodes, ``~leaf`` is a leaf.

    Attributes:
        features: The feature that each node compares.
        modes: How.
        splits: With what, in float64.
        tracks_true: Whether NaN goes where the comparison is true.
        true: Where rows go for which it is.
        false: Where others go.
        members: The set with which a node of mode ``MEMBER`` compares, by node.
        roots: Where each tree begins.
        leaves: How many leaves there are.
        voters: The leaf of each weight.
        targets: The target of each weight.
        weights: The weights, in float64.
        leaf_trees: The tree of each leaf where leaves are nodes of trees, else 0.
    """

    features: Array
    modes: Array
    splits: Array
    tracks_true: Array
    true: Array
    false: Array
    members: Mapping[int, Array]
    roots: Array
    leaves: int
    voters: Array
    targets: Array
    weights: Array
    leaf_trees: Array


class Attributes:
    """The attributes of a node, as arrays of the lengths that they must have."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def fail(self, problem: str) -> NoReturn:
        """Raise an error that names the node."""
        raise InvalidModelError(f"{self.node.op_type} node {self.node.name!r}: {problem}", "export the model again")

    def refuse(self, problem: str, hint: str) -> NoReturn:
        """Raise an error that names the node, for trees that no kernel serves."""
        raise UnsupportedOperatorError(f"{self.node.op_type} node {self.node.name!r}: {problem}", hint)

    def has(self, name: str) -> bool:
        """Return whether an attribute is there and holds something."""
        value = self.node.attrs.get(name)
        return value is not None and np.size(value) > 0

    def strings(self, name: str) -> list[str]:
        """Return a list of texts, empty if it is not there."""
        values = self.node.attrs.get(name) or ()
        return [each.decode(errors="replace") if isinstance(each, bytes) else str(each) for each in values]

    def integers(self, name: str) -> Array:
        """Return integers, which must be there."""
        return self._array(name, np.int64)

    def numbers(self, name: str) -> Array:
        """Return numbers in float64: a list of float32, or a tensor under the name with ``_as_tensor``."""
        tensor = f"{name}_as_tensor"
        if self.has(tensor):
            if self.has(name):
                self.fail(f"attributes {name!r} and {tensor!r} are both there")
            return self._array(tensor, np.float64)
        found = self._array(name, np.float64)
        return found if isinstance(self.node.attrs[name], np.ndarray) else found.astype(np.float32).astype(np.float64)

    def optional(self, name: str) -> Array | None:
        """Return numbers as ``numbers`` does, None if there are none."""
        return self.numbers(name) if self.has(name) or self.has(f"{name}_as_tensor") else None

    def flags(self, name: str, like: str, values: Array) -> Array:
        """Return truth values, as many as another attribute has, all false if they are not there."""
        found = self.integers(name) if self.has(name) else np.zeros(len(values))
        self.same_length((like, name), values, found)
        return np.asarray(found != 0)

    def same_length(self, names: Sequence[str], *values: Sized) -> None:
        """Check that attributes have as many values as the first of them."""
        for name, each in zip(names, values, strict=True):
            if len(each) != len(values[0]):
                self.fail(f"attribute {name!r} has {counted(len(each), 'value')}, and {names[0]!r} {len(values[0])}")

    def within(self, name: str, values: Array, count: int, what: str) -> None:
        """Check that indices are within their range."""
        wrong = np.flatnonzero((values < 0) | (values >= count))
        if wrong.size:
            self.fail(f"attribute {name!r} names {what} {values[wrong[0]]} at {wrong[0]}, and there are {count}")

    def _array(self, name: str, dtype: Any) -> Array:
        value: Sequence[Any] | Array | None = self.node.attrs.get(name)
        if value is None:
            self.fail(f"attribute {name!r} is missing")
        return np.asarray(value).reshape(-1).astype(dtype)


_LEAF = -1
_MODES = {
    "BRANCH_LEQ": LEQ, "BRANCH_LT": LT, "BRANCH_GTE": GTE, "BRANCH_GT": GT, "BRANCH_EQ": EQ, "BRANCH_NEQ": NEQ,
    "LEAF": _LEAF,
}  # fmt: skip


class _Places:
    """The places of nodes in the attributes, by their tree and number."""

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


def read_by_nodes(attrs: Attributes, voting: str, targets: int) -> Ensemble:
    """Return the trees; attributes of weights begin with ``voting``: ``class`` or ``target``.

    Raises:
        InvalidModelError: If they are not trees; the message names the attribute.
    """
    names = ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids")
    trees, numbers, features, true, false = (attrs.integers(name) for name in names)
    modes, values = _modes(attrs), attrs.numbers("nodes_values")
    if not len(trees):
        attrs.fail("attribute 'nodes_treeids' is empty: there is no tree")
    attrs.same_length((*names, "nodes_modes", "nodes_values"), trees, numbers, features, true, false, modes, values)
    tracks = attrs.flags("nodes_missing_value_tracks_true", "nodes_treeids", trees)
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
    attrs.same_length((*names, f"{voting}_weights"), trees, numbers, votes, weights)
    attrs.within(names[2], votes, targets, "target" if voting == "target" else "class")
    return places.of((names[0], names[1]), trees, numbers), votes, weights


def read_by_leaves(attrs: Attributes, targets: int) -> Ensemble:
    """Return the trees.

    Raises:
        InvalidModelError: If they are not trees; the message names the attribute.
    """
    names = ("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs", "nodes_falseleafs",
             "nodes_modes")  # fmt: skip
    features, true, false, true_leafs, false_leafs, modes = (attrs.integers(name) for name in names)
    splits = attrs.numbers("nodes_splits")
    attrs.same_length((*names, "nodes_splits"), features, true, false, true_leafs, false_leafs, modes, splits)
    attrs.within("nodes_modes", modes, MEMBER + 1, "mode")
    tracks = attrs.flags("nodes_missing_value_tracks_true", "nodes_featureids", features)
    votes, weights = attrs.integers("leaf_targetids"), attrs.numbers("leaf_weights")
    roots = attrs.integers("tree_roots")
    attrs.same_length(("leaf_targetids", "leaf_weights"), votes, weights)
    attrs.within("leaf_targetids", votes, targets, "target")
    attrs.within("tree_roots", roots, len(features), "node")
    if not len(roots):
        attrs.fail("attribute 'tree_roots' is empty: there is no tree")
    counts = (len(features), len(votes))
    return Ensemble(
        features, modes, splits, tracks, _child(attrs, "nodes_truenodeids", true, true_leafs, counts),
        _child(attrs, "nodes_falsenodeids", false, false_leafs, counts), _members(attrs, modes), roots, len(votes),
        np.arange(len(votes)), votes, weights, np.zeros_like(votes),
    )  # fmt: skip


def _child(attrs: Attributes, name: str, places: Array, is_leaf: Array, counts: tuple[int, int]) -> Array:
    leaf = is_leaf != 0
    attrs.within(name, np.where(leaf, 0, places), counts[0], "node")
    attrs.within(name, np.where(leaf, places, 0), max(counts[1], 1), "leaf")
    return np.where(leaf, ~places, places)


def _members(attrs: Attributes, modes: Array) -> Mapping[int, Array]:
    """Return the set of each node that looks in one; NaN ends a set."""
    nodes = np.flatnonzero(modes == MEMBER)
    if not len(nodes):
        return {}
    values = attrs.numbers("membership_values")
    ends = np.flatnonzero(np.isnan(values))
    sets = [part[~np.isnan(part)] for part in np.split(values, ends)]
    if len(sets) == len(nodes) + 1 and not len(sets[-1]):
        sets.pop()
    if len(sets) != len(nodes):
        attrs.fail(
            f"attribute 'membership_values' has {len(sets)} sets, "
            f"and 'nodes_modes' {counted(len(nodes), 'node')} of members"
        )
    return dict(zip(nodes.tolist(), sets, strict=True))


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
