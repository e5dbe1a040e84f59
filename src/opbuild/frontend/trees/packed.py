"""Packed: an ensemble as the operands of kernels, and the weights of its leaves."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from opbuild.errors import UnsupportedOperatorError
from opbuild.families.tree_ensemble.layout import BITS
from opbuild.frontend.trees.ensemble import Attributes, Ensemble
from opbuild.frontend.trees.order import CycleError, order_of
from opbuild.frontend.trees.paths import MOST_LEAVES, paths_of
from opbuild.frontend.trees.pieces import Pieces, pieces_of
from opbuild.frontend.trees.splits import splits_of
from opbuild.graph.types import Array
from opbuild.platform.records import dataclass


@dataclass(frozen=True, eq=False)
class Packed:
    """The operands of an ensemble.

    Attributes:
        constants: Records, trees, depths and weights; then rules, pieces and their weights if trees have few leaves.
        sides: Whether a feature has two columns.
        width: The weights of a leaf.
        groups: The targets of trees.
    """

    constants: tuple[Array, ...]
    sides: bool
    width: int
    groups: int


def pack(attrs: Attributes, ensemble: Ensemble, targets: int, dtype: str, aggregate: str) -> Packed:
    """Return the operands of an ensemble.

    Args:
        attrs: What the ensemble was read from.
        ensemble: The ensemble.
        targets: How many targets there are.
        dtype: Element type of rows and of weights, ``float32`` or ``float64``.
        aggregate: ``sum``, ``min`` or ``max``.

    Raises:
        InvalidModelError: If nodes lead back to themselves.
        UnsupportedOperatorError: If no kernel could tell all leaves apart, or the weights from what stands for none.
    """
    if dtype == "float32" and ensemble.leaves > MOST_LEAVES:
        raise _unsupported(attrs, f"it has more than {MOST_LEAVES} leaves", "give it rows of float64")
    if aggregate != "sum" and not np.isfinite(ensemble.weights.astype(dtype)).all():
        raise _unsupported(attrs, "weights of which one is chosen must be finite", "give it finite weights")
    trees = splits_of(ensemble, dtype)
    try:
        order = order_of(trees)
    except CycleError as error:
        where = "attributes 'nodes_truenodeids' and 'nodes_falsenodeids'"
        attrs.fail(f"{where} lead from node {error.node} of those that are no leaves back to itself")
    sides = bool(trees.nan_left[order.nodes].any())
    owners = _leaf_targets(ensemble, trees.roots, order.nodes, order.owners, (trees.left, trees.right), targets)
    paths, pieces = paths_of(trees, order, sides), pieces_of(trees, order, sides)
    width, groups = (targets, 1) if owners is None else (1, targets)
    weights = _weights(ensemble, width, dtype, aggregate)
    if owners is not None:
        paths.trees[:, 2] = owners
    constants = (paths.records, paths.trees, paths.depths, weights[:-1] if len(weights) > 1 else weights)
    return Packed((*constants, *_of_pieces(pieces, weights, owners)), sides, width, groups)


def _unsupported(attrs: Attributes, problem: str, hint: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(f"{attrs.node.op_type} node {attrs.node.name!r}: {problem}", hint)


def _of_pieces(pieces: Pieces | None, weights: Array, owners: Array | None) -> tuple[Array, ...]:
    if pieces is None:
        return ()
    table = pieces.pieces.copy()
    table[:, 2] = 0 if owners is None else owners[table[:, 2]]
    return pieces.rules, table, np.ascontiguousarray(weights[pieces.leaves].reshape(-1, BITS, weights.shape[1]))


def _leaf_targets(
    ensemble: Ensemble, roots: Array, nodes: Array, owners: Array, sides: tuple[Array, Array], targets: int
) -> Array | None:
    """Return the target of each tree, None if the leaves of a tree have several, or trees share leaves."""
    if targets == 1:
        return np.zeros(len(roots), np.int32)
    trees = np.concatenate([np.arange(len(roots)), owners, owners])
    places = np.concatenate([roots, sides[0][nodes], sides[1][nodes]])
    if len(np.unique(places)) < len(places):
        return None
    tree_of = np.full(ensemble.leaves, -1)
    tree_of[~places[places < 0]] = trees[places < 0]
    trees = tree_of[ensemble.voters]
    found = np.full(len(roots), -1, np.int32)
    counts = trees >= 0
    found[trees[counts]] = ensemble.targets[counts]
    is_one = (found[trees[counts]] == ensemble.targets[counts]).all()
    return np.maximum(found, 0) if is_one else None


def _weights(ensemble: Ensemble, width: int, dtype: str, aggregate: str) -> Array:
    """Return the weights of leaves, and behind them those of what is no leaf; what has no weight has a neutral one."""
    limits = np.finfo(dtype)
    neutral = {"sum": 0.0, "min": limits.max, "max": limits.min}[aggregate]
    found = np.full((ensemble.leaves + 1, width), neutral, dtype)
    combined: Mapping[str, np.ufunc] = {"sum": np.add, "min": np.minimum, "max": np.maximum}
    columns = ensemble.targets if width > 1 else 0 * ensemble.targets
    combined[aggregate].at(found, (ensemble.voters, columns), ensemble.weights.astype(dtype))
    return found
