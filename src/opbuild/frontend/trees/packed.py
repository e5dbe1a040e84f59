"""Packed: an ensemble as the operands of kernels, and the operators that are written with them.

Kernels walk down trees, which are records, or strike out leaves by rules where trees have few of them. For the latter
leaves are numbered from the left, one bit each. A node strikes out those to its left for a row that is above its split;
of those that all nodes leave, the row's is the first. A tree of more leaves than bits is several pieces, each with some
adjacent leaves of its own. What is to the left of these is one bit for each branch that the path to the first of them
leaves aside, what is to the right one bit that nothing strikes out; the weights of these bits count nothing.

TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble are opbuild's own operator and others. What the text
leaves open is as ONNX Runtime has it, except where that answers with what is no class: see docs/design/trees.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opbuild.families.tree_ensemble.layout import BELOW, BITS, GROUP, LEAF
from opbuild.frontend.learned import LOGISTIC, NAMES, NONE, PROBIT, post_transformed
from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.frontend.rewritten import LEARNED
from opbuild.frontend.trees.ensemble import Attributes, Ensemble, Splits, read_by_leaves, read_by_nodes, splits_of
from opbuild.graph.graph_builder import Value
from opbuild.graph.indices import DOMAIN
from opbuild.graph.types import Array, Node
from opbuild.platform.records import dataclass, replace
from opbuild.text.plural import counted


@dataclass(frozen=True, eq=False)
class Order:
    """The order of nodes in their trees. Several may lead to one node, in one tree or in several.

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


def order_of(attrs: Attributes, trees: Splits) -> Order:
    """Return the order of the nodes of trees.

    Raises:
        InvalidModelError: If nodes lead back to themselves.
    """
    waiting = _waiting(trees)
    levels = _levels(trees, waiting.copy())
    nodes = np.concatenate([np.zeros(0, np.int64), *levels])
    reached = np.flatnonzero(waiting >= 0)
    if len(nodes) < len(reached):
        where, node = "'nodes_truenodeids' and 'nodes_falsenodeids'", np.setdiff1d(reached, nodes)[0]
        attrs.fail(f"attributes {where} lead from node {node} of those that are no leaves back to itself")
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
    """Return the number of nodes that lead to each that a root reaches, -1 of others."""
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


MOST_LEAVES = 2**31 - 1 - LEAF["float32"]
"""Leaves that keys of 32 bits tell apart."""


def keys_of(values: Array) -> Array:
    """Return integers that sort as numbers do; NaN is below all."""
    dtype = values.dtype.name
    kind: Any = np.int32 if dtype == "float32" else np.int64
    bits: Array = np.ascontiguousarray(values).view(kind)
    size = bits & np.iinfo(kind).max
    return np.where(np.isnan(values), kind(BELOW[dtype]), np.where(bits < 0, -size, size))


def columns_of(trees: Splits, nodes: Array, sides: bool) -> Array:
    """Return the columns of keys that nodes compare."""
    features = trees.features[nodes]
    return np.asarray(2 * features + trees.nan_left[nodes] if sides else features)


def table(keys: Array, columns: Array, others: Array) -> Array:
    """Return records or rules: the key, and two numbers of 32 bits."""
    if keys.dtype == np.int32:
        return np.stack([keys, columns.astype(np.int32), others.astype(np.int32)], 1)
    both = (others.astype(np.int64) << 32) | columns.astype(np.int64)
    return np.stack([keys, both], 1)


def paths_of(trees: Splits, order: Order, sides: bool) -> tuple[Array, Array, Array]:
    """Return the operands of a kernel that walks down trees: records, the table of trees, and their depths.

    Of each tree there is its first record, and behind it those of the sides of its nodes, in pairs.
    """
    count, inner = len(trees.roots), len(order.nodes)
    pairs = np.zeros(len(trees.features) + 1, np.int64)
    pairs[order.nodes] = 2 * np.arange(inner) + order.owners + 1
    roots = np.arange(count) + 2 * np.searchsorted(order.owners, np.arange(count))
    first = pairs[order.nodes]
    places = np.concatenate([roots, first, first + 1])
    targets = np.concatenate([trees.roots, trees.left[order.nodes], trees.right[order.nodes]])
    is_leaf = targets < 0
    node = np.where(is_leaf, 0, targets)
    dtype = trees.splits.dtype.name
    keys = np.where(is_leaf, LEAF[dtype] + ~targets, _elements_at(keys_of(trees.splits), node))
    columns = np.where(is_leaf, 0, _elements_at(columns_of(trees, np.arange(len(trees.features)), sides), node))
    records = table(keys.astype(np.int32 if dtype == "float32" else np.int64), columns,
                    np.where(is_leaf, places, pairs[node]))  # fmt: skip
    found = np.empty_like(records)
    found[places] = records
    return found, *_trees(roots, order.depths)


def _elements_at(values: Array, places: Array) -> Array:
    return values[places] if len(values) else np.zeros(len(places), values.dtype)


def _trees(roots: Array, depths: Array) -> tuple[Array, Array]:
    """Return the table of trees without their targets, which are 0, and the depths of groups of them."""
    walked = np.argsort(-depths, kind="stable")
    place = np.empty_like(walked)
    place[walked] = np.arange(len(walked))
    groups = depths[walked][::GROUP]  # the deepest is the first
    columns = [roots, depths, np.zeros_like(roots), place, roots[walked]]
    return np.stack(columns, 1).astype(np.int32), groups.astype(np.int32)


MOST_STRUCK = 128
"""Leaves that a tree may have, in the mean, for this to pay: 1.0 of the time of walking there."""


@dataclass(frozen=True, eq=False)
class LeafPieces:
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


def pieces_of(trees: Splits, order: Order, sides: bool) -> LeafPieces | None:
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
    return LeafPieces(rules, np.array(pieces, np.int32), np.stack(leaves))


def _counts(trees: Splits, order: Order) -> Array | None:
    """Return the leaves of each node, as often as it reaches them; None if trees have too many.

    The nodes of a tree are by level, and those before may be reached from others too.
    """
    counts = np.ones(len(trees.features) + 1, np.int64)  # a leaf, which has the last place
    if len(order.nodes) > MOST_STRUCK * len(trees.roots):
        return None
    for node in order.nodes[::-1].tolist() if order.is_plain else _bottom_up_order(trees, order):
        counts[node] = counts[max(trees.left[node], -1)] + counts[max(trees.right[node], -1)]
        if counts[node] > MOST_STRUCK * len(trees.roots):
            return None
    total = counts[np.maximum(trees.roots, -1)].sum()
    return counts if total <= MOST_STRUCK * len(trees.roots) else None


def _bottom_up_order(trees: Splits, order: Order) -> list[int]:
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
    inner, leaves = np.concatenate(nodes), np.concatenate(ends)
    inner = inner[np.argsort(inner[:, 1], kind="stable")]  # by tree
    leaves = leaves[np.lexsort([leaves[:, 2], leaves[:, 1]])]  # by tree, and there from the left
    count = np.arange(len(trees.roots) + 1)
    node_at, leaf_at = np.searchsorted(inner[:, 1], count), np.searchsorted(leaves[:, 1], count)
    found = []
    for t in range(len(trees.roots)):
        node, _, low, middle, high = inner[node_at[t] : node_at[t + 1]].T
        leaf, _, _, turns = leaves[leaf_at[t] : leaf_at[t + 1]].T
        found.append(_Tree(node, low, middle, high, ~leaf, turns))
    return found


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


@dataclass(frozen=True, eq=False)
class PackedEnsemble:
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


def pack(attrs: Attributes, ensemble: Ensemble, targets: int, dtype: str, aggregate: str) -> PackedEnsemble:
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
        attrs.refuse(f"it has more than {MOST_LEAVES} leaves", "give it rows of float64")
    if aggregate != "sum" and not np.isfinite(ensemble.weights.astype(dtype)).all():
        attrs.refuse("weights of which one is chosen must be finite", "give it finite weights")
    trees = splits_of(ensemble, dtype)
    order = order_of(attrs, trees)
    sides = bool(trees.nan_left[order.nodes].any())
    owners = _leaf_targets(ensemble, trees, order, targets)
    (records, table, depths), pieces = paths_of(trees, order, sides), pieces_of(trees, order, sides)
    width, groups = (targets, 1) if owners is None else (1, targets)
    weights = _weights(ensemble, width, dtype, aggregate)
    if owners is not None:
        table[:, 2] = owners
    constants = (records, table, depths, weights[:-1] if len(weights) > 1 else weights)
    return PackedEnsemble((*constants, *_of_pieces(pieces, weights, owners)), sides, width, groups)


def _of_pieces(pieces: LeafPieces | None, weights: Array, owners: Array | None) -> tuple[Array, ...]:
    if pieces is None:
        return ()
    table = pieces.pieces.copy()
    table[:, 2] = 0 if owners is None else owners[table[:, 2]]
    return pieces.rules, table, np.ascontiguousarray(weights[pieces.leaves].reshape(-1, BITS, weights.shape[1]))


def _leaf_targets(ensemble: Ensemble, made: Splits, order: Order, targets: int) -> Array | None:
    """Return the target of each tree, None if the leaves of a tree have several, or trees share leaves."""
    roots = made.roots
    if targets == 1:
        return np.zeros(len(roots), np.int32)
    trees = np.concatenate([np.arange(len(roots)), order.owners, order.owners])
    places = np.concatenate([roots, made.left[order.nodes], made.right[order.nodes]])
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
    """Return the weights of leaves, and behind them those of other nodes; one that has no weight has a neutral one."""
    limits = np.finfo(dtype)
    neutral = {"sum": 0.0, "min": limits.max, "max": limits.min}[aggregate]
    found = np.full((ensemble.leaves + 1, width), neutral, dtype)
    combined: Mapping[str, np.ufunc] = {"sum": np.add, "min": np.minimum, "max": np.maximum}
    columns = ensemble.targets if width > 1 else 0 * ensemble.targets
    combined[aggregate].at(found, (ensemble.voters, columns), ensemble.weights.astype(dtype))
    return found


_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_ROWS = ("float32", "float64", "float16", "int32", "int64")


class _Scores:
    """The scores of rows, as they are written.

    Attributes:
        attrs: The attributes of the node.
        dtype: The element type of rows and scores, as they are computed.
        rows: The rows, of that type.
    """

    def __init__(self, of: Rewriting) -> None:
        self.of, self.attrs = of, Attributes(of.node)
        kind, shape = of.dtype(), of.shape(0)
        if kind not in _ROWS or len(shape) not in (1, 2):
            self.attrs.fail(f"its input is {kind} of rank {len(shape)}, and must be rows of numbers")
        self.features = shape[-1]
        self.dtype = "float64" if kind == "float64" else "float32"
        rows = of.input(0) if len(shape) == 2 else of.reshape(of.input(0), (1, shape[0]))
        self.rows = rows if kind == self.dtype else of("Cast", rows, to=self.dtype)

    def of_targets(self, ensemble: Ensemble, targets: int, aggregate: str, base: Array) -> Value:
        """Write the scores of rows, one for each target; ``base`` is added."""
        self.attrs.within("nodes_featureids", ensemble.features, int(self.features), "feature")
        combined = {"MIN": "min", "MAX": "max"}.get(aggregate, "sum")
        packed = pack(self.attrs, ensemble, targets, self.dtype, combined)
        added = base if aggregate != "AVERAGE" else np.zeros(targets)
        shaped = added.reshape(packed.groups, packed.width)
        constants = [*map(self.of.constant, packed.constants)]
        operands = (self.rows, self._constant(shaped), *constants)
        found = self.of.own("TreeEnsemble", *operands, aggregate=combined, sides=int(packed.sides))
        if aggregate == "AVERAGE":
            found = self.of("Div", found, self._constant(np.array(len(ensemble.roots))))
            found = self.of("Add", found, self._constant(base)) if base.any() else found
        return found

    def presence(self, ensemble: Ensemble, targets: int) -> Value:
        """Write how many weights of each target rows reach."""
        counted = replace(ensemble, weights=np.ones_like(ensemble.weights))
        return self.of_targets(counted, targets, "SUM", np.zeros(targets))

    def _constant(self, value: Array) -> Value:
        return self.of.constant(value, self.dtype)


@writes("TreeEnsemble", domain=LEARNED)
def _ensemble(of: Rewriting) -> Sequence[Node]:
    scores = _Scores(of)
    attrs = scores.attrs
    how, transform = int(of.attr("aggregate_function", 1)), int(of.attr("post_transform", 0))
    for name, value, names in (("aggregate_function", how, _AGGREGATES), ("post_transform", transform, NAMES)):
        if not 0 <= value < len(names):
            attrs.fail(f"attribute {name!r} is {value}, which is none of 0 to {len(names) - 1}")
    targets = _targets(of, attrs)
    ensemble = read_by_leaves(attrs, targets)
    found: str = scores.of_targets(ensemble, targets, _AGGREGATES[how], np.zeros(targets))
    found = post_transformed(of, NAMES[transform], found, scores.dtype)
    return of.finish(found if of.dtype() == scores.dtype else of("Cast", found, to=of.dtype()))


def _targets(of: Rewriting, attrs: Attributes) -> int:
    targets = int(of.attr("n_targets", 1))
    if targets < 1:
        attrs.fail(f"attribute 'n_targets' is {targets}")
    return targets


def _named(of: Rewriting, attrs: Attributes, name: str, names: Sequence[str], default: str) -> str:
    value = of.node.text(name, default)
    if value not in names:
        attrs.fail(f"attribute {name!r} is {value!r}, which is none of {', '.join(names)}")
    return value


def _in_float32(of: Rewriting, scores: str, dtype: str) -> str:
    return scores if dtype == "float32" else of("Cast", scores, to="float32")


@writes("TreeEnsembleRegressor", domain=LEARNED)
def _regressor(of: Rewriting) -> Sequence[Node]:
    scores = _Scores(of)
    attrs, targets = scores.attrs, _targets(of, scores.attrs)
    how = _named(of, attrs, "aggregate_function", _AGGREGATES, "SUM")
    transform = _named(of, attrs, "post_transform", NAMES, NONE)
    ensemble, base = read_by_nodes(attrs, "target", targets), _base(attrs, (0, targets))
    found = scores.of_targets(ensemble, targets, how, np.zeros(targets) if base is None else base)
    return of.finish(post_transformed(of, transform, _in_float32(of, found, scores.dtype)))


def _base(attrs: Attributes, allowed: Sequence[int]) -> Array | None:
    found = attrs.optional("base_values")
    if found is not None and len(found) not in allowed:
        wanted = " or ".join(map(str, sorted(set(allowed))))
        attrs.fail(f"attribute 'base_values' has {counted(len(found), 'value')}, not {wanted}")
    return found


# -- classes -----------------------------------------------------------------------------------------------------------


@writes("TreeEnsembleClassifier", domain=LEARNED)
def _classifier(of: Rewriting) -> Sequence[Node]:
    scores = _Scores(of)
    attrs = scores.attrs
    transform = _named(of, attrs, "post_transform", NAMES, NONE)
    labels = _labels(of, attrs)
    classes = len(labels)
    ensemble = read_by_nodes(attrs, "class", classes)
    base = _base(attrs, (0, 1, 2) if classes <= 2 else (0, classes))
    voted = np.unique(ensemble.targets)
    if classes == 2 and len(voted) == 1 and (base is None or len(base) == 1):
        place, found = _of_two(scores, ensemble, int(voted[0]), base, transform)
    else:
        added = np.zeros(classes)
        if base is not None:
            added[: len(base)] = base
        found = scores.of_targets(ensemble, classes, "SUM", added)
        place = _greatest(scores, ensemble, found, classes, known=base is not None or classes < 3)
        found = post_transformed(of, transform, _in_float32(of, found, scores.dtype))
    return of.finish(_label(of, labels, place), found)


def _labels(of: Rewriting, attrs: Attributes) -> Array | list[str]:
    """Return the classes, numbers or names."""
    names = attrs.strings("classlabels_strings")
    if names and attrs.has("classlabels_int64s"):
        attrs.fail("attributes 'classlabels_strings' and 'classlabels_int64s' are both there")
    if names:
        return names
    if not attrs.has("classlabels_int64s"):
        attrs.fail("attributes 'classlabels_int64s' and 'classlabels_strings' are missing or empty")
    return attrs.integers("classlabels_int64s")


def _of_two(scores: _Scores, ensemble: Ensemble, voted: int, base: Array | None, transform: str) -> tuple[str, str]:
    """Return the places of classes, of two of which one alone has weights, and the scores of both.

    A sum of weights that are all positive is a probability, any other is positive or not.
    """
    of = scores.of
    one = replace(ensemble, targets=np.zeros_like(ensemble.targets))
    found: str = scores.of_targets(one, 1, "SUM", np.zeros(1) if base is None else base)
    is_share = bool((ensemble.weights >= 0).all())
    second = of("Greater", found, of.constant(0.5 if is_share else 0.0, scores.dtype))
    found = _in_float32(of, found, scores.dtype)
    if voted:
        zeros = of("Mul", found, of.constant(0, "float32"))
        both: str = post_transformed(of, transform, of("Concat", zeros, found, axis=1))
    elif transform == LOGISTIC:
        both = of("Sigmoid", of("Concat", of("Neg", found), found, axis=1))
    elif is_share or transform == PROBIT:
        both = of("Concat", of("Sub", of.constant(1, "float32"), found), found, axis=1)
        both = post_transformed(of, PROBIT, both) if transform == PROBIT else both
    else:
        size = of("Abs", found)
        both = of("Concat", of("Neg", size), size, axis=1)
    return of("Squeeze", of("Cast", second, to="int64"), of.ints(1)), both


def _greatest(scores: _Scores, ensemble: Ensemble, found: str, classes: int, *, known: bool) -> str:
    """Return the place of the greatest score of each row, among classes of which its leaves have weights."""
    of = scores.of
    if not known and not _has_every_class(ensemble, classes):
        least, zero = (of.constant(number, scores.dtype) for number in (-np.inf, 0))
        found = of("Where", of("Greater", scores.presence(ensemble, classes), zero), found, least)
    return of("ArgMax", found, axis=1, keepdims=0)


def _has_every_class(ensemble: Ensemble, classes: int) -> bool:
    """Return whether each row reaches a weight of each class: of each there is a tree whose leaves all have one."""
    pairs = np.unique(np.stack([ensemble.targets, ensemble.voters]), axis=1)
    trees = np.bincount(ensemble.leaf_trees)
    voted = np.unique(np.stack([pairs[0], ensemble.leaf_trees[pairs[1]]]), axis=1, return_counts=True)
    (target, tree), count = voted
    return len(np.unique(target[count == trees[tree]])) == classes


def _label(of: Rewriting, labels: Array | list[str], place: str) -> str:
    """Return the labels at places."""
    if isinstance(labels, list):
        output = of.node.outputs[0] or of.fresh("ClassNames")
        of.write("ClassNames", (place,), (output,), {"names": tuple(labels)}, DOMAIN)
        return output
    if (labels == np.arange(len(labels))).all():
        return place
    return of("Gather", of.constant(labels), place, axis=0)
