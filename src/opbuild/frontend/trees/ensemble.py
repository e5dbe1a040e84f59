"""Ensemble: decision trees as their attributes say, whichever operator they are of; what reads attributes, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from opbuild.errors import InvalidModelError
from opbuild.graph.types import Array, Node
from opbuild.platform.records import dataclass, replace
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

    def with_weights(self, weights: Array) -> Ensemble:
        """Return the same trees with other weights."""
        return replace(self, weights=weights)

    def with_targets(self, targets: Array) -> Ensemble:
        """Return the same trees with other targets."""
        return replace(self, targets=targets)


class Attributes:
    """The attributes of a node, as arrays of the lengths that they must have."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def fail(self, problem: str) -> NoReturn:
        """Raise an error that names the node."""
        raise InvalidModelError(f"{self.node.op_type} node {self.node.name!r}: {problem}", "export the model again")

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

    def flags(self, name: str, like: tuple[str, int]) -> Array:
        """Return truth values, all false if they are not there."""
        if not self.has(name):
            return np.zeros(like[1], bool)
        found = self.integers(name)
        self.same_length({like[0]: like[1], name: len(found)})
        return np.asarray(found != 0)

    def same_length(self, lengths: Mapping[str, int]) -> None:
        """Check that attributes have as many values as the first of them."""
        (first, count), *others = lengths.items()
        for name, length in others:
            if length != count:
                self.fail(f"attribute {name!r} has {counted(length, 'value')}, and {first!r} {count}")

    def within(self, name: str, values: Array, count: int, what: str) -> None:
        """Check that indices are within what they count."""
        wrong = np.flatnonzero((values < 0) | (values >= count))
        if wrong.size:
            self.fail(f"attribute {name!r} names {what} {values[wrong[0]]} at {wrong[0]}, and there are {count}")

    def _array(self, name: str, dtype: Any) -> Array:
        value: Sequence[Any] | Array | None = self.node.attrs.get(name)
        if value is None:
            self.fail(f"attribute {name!r} is missing")
        return np.asarray(value).reshape(-1).astype(dtype)
