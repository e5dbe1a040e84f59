"""TreeEnsemble in numpy: rows go down trees, and the leaves that they reach are put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.ml import ML
from opbuild.backend.host.movement import implements
from opbuild.graph.types import Array, Node

_COMPARISONS: tuple[Callable[[Any, Any], Any], ...] = (
    np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal,
)  # fmt: skip
_MEMBER = 6
_AVERAGE, _SUM, _MIN, _MAX = range(4)


class _Trees:
    """The attributes of a node, as arrays."""

    def __init__(self, attrs: Any) -> None:
        self.modes, self.splits = attrs["nodes_modes"], attrs["nodes_splits"]
        self.features = attrs["nodes_featureids"]
        self.next = {True: attrs["nodes_truenodeids"], False: attrs["nodes_falsenodeids"]}
        self.leaf = {True: attrs["nodes_trueleafs"], False: attrs["nodes_falseleafs"]}
        self.missing = attrs.get("nodes_missing_value_tracks_true") or [0] * len(self.modes)
        self.members = self._sets(attrs.get("membership_values"))

    def _sets(self, values: Any) -> dict[int, set[float]]:
        """Return the set that each node of that kind looks in; NaN ends a set."""
        sets: list[set[float]] = [set()]
        for value in [] if values is None else values.reshape(-1):
            if np.isnan(value):
                sets.append(set())
            else:
                sets[-1].add(float(value))
        return dict(zip((n for n, mode in enumerate(self.modes) if mode == _MEMBER), sets, strict=False))

    def leaf_of(self, root: int, row: Array) -> int:
        """Return the leaf that a row reaches from a node."""
        node = root
        while True:
            branch = self._branch(node, row[int(self.features[node])])
            if self.leaf[branch][node]:
                return int(self.next[branch][node])
            node = int(self.next[branch][node])

    def _branch(self, node: int, value: Any) -> bool:
        if np.isnan(value):
            return bool(self.missing[node])
        mode = int(self.modes[node])
        if mode == _MEMBER:
            return float(value) in self.members.get(node, ())
        return bool(_COMPARISONS[mode](value, self.splits[node]))


@implements("TreeEnsemble", domain=ML)
def _ensemble(node: Node, inputs: Any) -> Sequence[Array]:
    """Put the leaves of each target together; a target without any is 0."""
    attrs, x = node.attrs, inputs[0]
    trees, weights, targets = _Trees(attrs), attrs["leaf_weights"], attrs["leaf_targetids"]
    roots = [int(each) for each in attrs["tree_roots"]]
    how = int(attrs.get("aggregate_function", _SUM))
    if int(attrs.get("post_transform", 0)):
        raise ValueError("a post_transform is not supported")
    found = np.zeros((len(x), int(attrs.get("n_targets", 1))), x.dtype)
    for result, row in zip(found, x, strict=True):
        reached: dict[int, list[Any]] = {}
        for root in roots:
            leaf = trees.leaf_of(root, row)
            reached.setdefault(int(targets[leaf]), []).append(weights[leaf])
        for target, values in reached.items():
            result[target] = {_MIN: np.min, _MAX: np.max}.get(how, np.sum)(values)
    return ((found / x.dtype.type(len(roots)) if how == _AVERAGE else found).astype(x.dtype),)
