"""Pieces: trees with few leaves as rules that strike out leaves.

Leaves are numbered from the left, one bit each. A node strikes out those to its left for a row that is above its split;
of those that all nodes leave, the row's is the first. A tree of more leaves than bits is several pieces, each with some
adjacent leaves of its own. What is to the left of these is one bit for each branch that the path to the first of them
leaves aside, what is to the right one bit that nothing strikes out; the weights of these bits count nothing.
"""

from __future__ import annotations

import numpy as np

from opbuild.families.tree_ensemble.layout import BITS
from opbuild.frontend.trees.order import Order
from opbuild.frontend.trees.paths import columns_of, keys_of, table
from opbuild.frontend.trees.splits import Splits
from opbuild.graph.types import Array
from opbuild.platform.records import dataclass

MOST_LEAVES = 128
"""Leaves that a tree may have, in the mean, for this to pay: 1.0 of the time of walking there."""


@dataclass(frozen=True, eq=False)
class Pieces:
    """The operands of a kernel that strikes out leaves.

    Attributes:
        rules: The rules.
        pieces: Of each piece its first rule, the one behind its last, and its tree.
        leaves: The leaf that each bit of each piece stands for, -1 if it stands for none.
    """

    rules: Array
    pieces: Array
    leaves: Array


@dataclass(frozen=True, eq=False)
class _Tree:
    """A tree: its nodes, and of each where its leaves begin, where those to its right do, and where they end."""

    nodes: Array
    low: Array
    middle: Array
    high: Array
    leaves: Array
    turns: Array


def pieces_of(trees: Splits, order: Order, sides: bool) -> Pieces | None:
    """Return the pieces of trees, None if trees have so many leaves that walking down them is faster."""
    counts = _counts(trees, order)
    found = None if counts is None else _spread(trees, counts)
    if found is None:
        return None
    nodes, masks, pieces, leaves, begin = [], [], [], [], 0
    for number, tree in enumerate(found):
        for low, high in _ranges(tree):
            if high < 0:
                return None
            own, mask, bits = _piece(tree, low, high)
            nodes.append(own)
            masks.append(mask)
            leaves.append(bits)
            pieces.append((begin, begin := begin + len(own), number))
    if not begin:  # a kernel needs a rule
        return None
    every = np.concatenate(nodes)
    rules = table(keys_of(trees.splits)[every], columns_of(trees, every, sides),
                  np.concatenate(masks).astype(np.uint32).view(np.int32))  # fmt: skip
    return Pieces(rules, np.array(pieces, np.int32), np.stack(leaves))


def _counts(trees: Splits, order: Order) -> Array | None:
    """Return the leaves of each node, as often as it reaches them; None if trees have too many.

    The nodes of a tree are by level, and those before may be reached from others too.
    """
    counts = np.ones(len(trees.features) + 1, np.int64)  # a leaf, which has the last place
    if len(order.nodes) > MOST_LEAVES * len(trees.roots):
        return None
    for node in order.nodes[::-1].tolist() if order.is_plain else _upwards(trees, order):
        counts[node] = counts[max(trees.left[node], -1)] + counts[max(trees.right[node], -1)]
        if counts[node] > MOST_LEAVES * len(trees.roots):
            return None
    total = counts[np.maximum(trees.roots, -1)].sum()
    return counts if total <= MOST_LEAVES * len(trees.roots) else None


def _upwards(trees: Splits, order: Order) -> list[int]:
    """Return nodes in an order in which those that one leads to stand before it."""
    done: dict[int, None] = {}
    stack = [int(node) for node in order.nodes]
    while stack:
        node = stack[-1]
        missing = [int(side) for side in (trees.left[node], trees.right[node]) if side >= 0 and int(side) not in done]
        if missing and node not in done:
            stack += missing
        else:
            done[stack.pop()] = None
    return list(done)


def _spread(trees: Splits, counts: Array) -> list[_Tree]:
    """Return the trees, in which a node stands as often as it is reached."""
    level = np.stack([trees.roots, np.arange(len(trees.roots)), 0 * trees.roots, 0 * trees.roots], 1)
    nodes, ends = [], []
    while len(level):
        inner = level[:, 0] >= 0
        ends.append(level[~inner])
        level = level[inner]
        node, tree, low, turns = level.T
        left, right = trees.left[node], trees.right[node]
        middle = low + counts[np.maximum(left, -1)]
        nodes.append(np.stack([node, tree, low, middle, middle + counts[np.maximum(right, -1)]], 1))
        level = np.concatenate([np.stack([left, tree, low, turns], 1), np.stack([right, tree, middle, turns + 1], 1)])
    inner, leaves = (_by(np.concatenate(parts), keys) for parts, keys in ((nodes, (1,)), (ends, (1, 2))))
    count = np.arange(len(trees.roots) + 1)
    node_at, leaf_at = np.searchsorted(inner[:, 1], count), np.searchsorted(leaves[:, 1], count)
    found = []
    for t in range(len(trees.roots)):
        node, _, low, middle, high = inner[node_at[t] : node_at[t + 1]].T
        leaf, _, _, turns = leaves[leaf_at[t] : leaf_at[t + 1]].T
        found.append(_Tree(node, low, middle, high, ~leaf, turns))
    return found


def _by(rows: Array, keys: tuple[int, ...]) -> Array:
    """Return rows sorted by columns, the first one first."""
    return rows[np.lexsort([rows[:, key] for key in reversed(keys)])]


def _ranges(tree: _Tree) -> list[tuple[int, int]]:
    """Return the leaves of each piece of a tree; an end of -1 says that bits do not suffice."""
    count, low, found = len(tree.leaves), 0, []
    while low < count:
        room = BITS - int(tree.turns[low])
        high = count if count - low <= room else low + room - 1
        if high <= low:
            return [(low, -1)]
        found.append((low, high))
        low = high
    return found


def _piece(tree: _Tree, low: int, high: int) -> tuple[Array, Array, Array]:
    """Return the nodes of a piece, their masks, and its leaves."""
    own = (tree.low < high) & (tree.high > low)
    first, middle = tree.low[own], tree.middle[own]
    aside = np.sort(middle[(middle <= low) & (tree.high[own] > low)])  # where the bits to the left end
    starts = np.concatenate([[0] if len(aside) else [], aside, np.arange(low + (len(aside) > 0), high + 1)])
    begin, end = (np.searchsorted(starts, np.minimum(each, high)) for each in (first, middle))
    one = np.uint64(1)
    struck = (one << end.astype(np.uint64)) - (one << begin.astype(np.uint64))
    leaves = np.full(BITS, -1, np.int64)
    leaves[len(aside) : len(aside) + high - low] = tree.leaves[low:high]
    return tree.nodes[own], ~struck & np.uint64(0xFFFFFFFF), leaves
