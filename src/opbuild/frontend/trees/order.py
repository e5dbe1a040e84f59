"""Order: the nodes that trees reach, level by level, each after all that lead to it."""

from __future__ import annotations

import numpy as np

from opbuild.frontend.trees.splits import Splits
from opbuild.graph.types import Array
from opbuild.platform.records import dataclass


class CycleError(Exception):
    """Nodes lead back to themselves.

    Attributes:
        node: One of them.
    """

    def __init__(self, node: int) -> None:
        super().__init__(f"node {node} leads back to itself")
        self.node = node


@dataclass(frozen=True, eq=False)
class Order:
    """Where nodes are in their trees. Several may lead to one node, in one tree or in several.

    Attributes:
        nodes: The nodes, those of the first tree first; each in the first tree that reaches it, and there by level.
        owners: The tree of each.
        depths: The comparisons that a row passes in each tree, at most.
        is_plain: Whether one node alone, or one root, leads to each.
    """

    nodes: Array
    owners: Array
    depths: Array
    is_plain: bool


def order_of(trees: Splits) -> Order:
    """Return the order of the nodes of trees.

    Raises:
        CycleError: If nodes lead back to themselves.
    """
    waiting = _waiting(trees)
    levels = _levels(trees, waiting.copy())
    nodes = np.concatenate([np.zeros(0, np.int64), *levels])
    reached = np.flatnonzero(waiting >= 0)
    if len(nodes) < len(reached):
        raise CycleError(int(np.setdiff1d(reached, nodes)[0]))
    owners = _owners(trees, levels)
    inner = trees.roots >= 0
    depths = np.zeros(len(trees.roots), np.int64)
    depths[inner] = _heights(trees, levels)[trees.roots[inner]]
    by_owner = np.argsort(owners[nodes], kind="stable")
    led = waiting[nodes].sum() + inner.sum()
    return Order(nodes[by_owner], owners[nodes][by_owner], depths, bool(led == len(nodes)))


def _nodes(*places: Array) -> Array:
    joined = np.concatenate(places)
    return joined[joined >= 0]


def _waiting(trees: Splits) -> Array:
    """Return how many nodes lead to each that a root reaches, -1 of others."""
    count = len(trees.features)
    reached = np.zeros(count, bool)
    new = np.unique(_nodes(trees.roots))
    while len(new):
        reached[new] = True
        after = _nodes(trees.left[new], trees.right[new])
        new = np.unique(after[~reached[after]])
    leading = np.bincount(_nodes(trees.left[reached], trees.right[reached]), minlength=count)
    return np.where(reached, leading, -1)


def _levels(trees: Splits, waiting: Array) -> list[Array]:
    levels = []
    level = np.flatnonzero(waiting == 0)
    while len(level):
        levels.append(level)
        after = _nodes(trees.left[level], trees.right[level])
        np.subtract.at(waiting, after, 1)
        after = np.unique(after)
        level = after[waiting[after] == 0]
    return levels


def _owners(trees: Splits, levels: list[Array]) -> Array:
    owners = np.full(len(trees.features), len(trees.roots))
    inner = np.flatnonzero(trees.roots >= 0)
    np.minimum.at(owners, trees.roots[inner], inner)
    for level in levels:
        for side in (trees.left[level], trees.right[level]):
            inside = side >= 0
            np.minimum.at(owners, side[inside], owners[level[inside]])
    return owners


def _heights(trees: Splits, levels: list[Array]) -> Array:
    heights = np.zeros(len(trees.features) + 1, np.int64)  # a leaf's is in the last place
    for level in reversed(levels):
        left, right = (heights[np.maximum(side[level], -1)] for side in (trees.left, trees.right))
        heights[level] = 1 + np.maximum(left, right)
    return heights
