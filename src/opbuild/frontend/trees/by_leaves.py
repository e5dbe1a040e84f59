"""Trees of TreeEnsemble, whose leaves have attributes of their own."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from opbuild.frontend.trees.ensemble import MEMBER, Attributes, Ensemble
from opbuild.graph.types import Array
from opbuild.text.plural import counted


def read(attrs: Attributes, targets: int) -> Ensemble:
    """Return the trees.

    Raises:
        InvalidModelError: If they are not trees; the message names the attribute.
    """
    names = ("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs", "nodes_falseleafs",
             "nodes_modes")  # fmt: skip
    features, true, false, true_leafs, false_leafs, modes = (attrs.integers(name) for name in names)
    splits = attrs.numbers("nodes_splits")
    lengths = dict(zip(names, map(len, (features, true, false, true_leafs, false_leafs, modes)), strict=True))
    attrs.same_length({**lengths, "nodes_splits": len(splits)})
    attrs.within("nodes_modes", modes, MEMBER + 1, "mode")
    tracks = attrs.flags("nodes_missing_value_tracks_true", ("nodes_featureids", len(features)))
    votes, weights, roots = (
        attrs.integers("leaf_targetids"),
        attrs.numbers("leaf_weights"),
        attrs.integers("tree_roots"),
    )
    attrs.same_length({"leaf_targetids": len(votes), "leaf_weights": len(weights)})
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
