"""Random decision trees: of every mode, with ties, NaN, infinities and shared branches, and what the text says of them.

The oracle takes one row down one tree at a time, as the text has it. It knows nothing of how kernels see trees.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

ML = "ai.onnx.ml"
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
GRID = (-math.inf, -2.0, -1.0, -0.5, -1e-45, -0.0, 0.0, 1e-45, 0.1, 0.5, 1.0, 3.0, 1e300, math.inf)
"""Numbers that splits and rows have alike, so that many are equal: also those that float32 rounds."""

_DEFAULTS: dict[str, dict[str, Any]] = {
    "TreeEnsemble": {"aggregate_function": 1, "post_transform": 0, "n_targets": 1},
    "TreeEnsembleClassifier": {"post_transform": "NONE"},
    "TreeEnsembleRegressor": {"aggregate_function": "SUM", "post_transform": "NONE"},
}
"""What goes without saying."""

Array = npt.NDArray[Any]


@dataclass(eq=False)
class Leaf:
    """A leaf: its votes, of a target and a weight each."""

    votes: list[tuple[int, float]]


@dataclass(eq=False)
class Branch:
    """A node that is no leaf."""

    feature: int
    mode: str
    split: float
    tracks: bool
    true: Leaf | Branch
    false: Leaf | Branch
    members: list[float] = field(default_factory=list)


Tree = Leaf | Branch


@dataclass
class Case:
    """A model of one operator, and what is known of it.

    Attributes:
        op_type: The operator.
        trees: Its trees.
        attrs: Its attributes.
        x: Rows.
        targets: How many targets or classes there are.
        doubles: Whether numbers are float64.
        base: What is added.
        transform: The post transform.
        aggregate: What is made of the weights of a target.
    """

    op_type: str
    trees: list[Tree]
    attrs: dict[str, Any]
    x: Array
    targets: int
    doubles: bool
    base: list[float]
    transform: str
    aggregate: str

    def model(self, rows: int | None = None) -> onnx.ModelProto:
        """Return the model, of an open number of rows if none is given."""
        shape = [len(self.x) if rows is None else rows, self.x.shape[1]]
        kind = helper.np_dtype_to_tensor_dtype(self.x.dtype)
        outputs = ["label", "y"] if self.op_type == "TreeEnsembleClassifier" else ["y"]
        node = helper.make_node(self.op_type, ["x"], outputs, "trees", domain=ML, **self.attrs)
        made = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph([node], "trees", [helper.make_tensor_value_info("x", kind, shape)], made)
        version = 5 if self.op_type == "TreeEnsemble" else 3
        sets = [helper.make_opsetid("", 21), helper.make_opsetid(ML, version)]
        return helper.make_model(graph, opset_imports=sets, ir_version=10)

    def written(self) -> dict[str, Any]:
        """Return the attributes for the other fields."""
        write = _by_leaves if self.op_type == "TreeEnsemble" else _by_nodes
        return write(self)

    @property
    def is_shared(self) -> bool:
        """Whether several nodes lead to one."""
        counts = [len(_numbered(tree)) for tree in self.trees]
        branches = [isinstance(node, Branch) for tree in self.trees for node in _numbered(tree)]
        return 2 * sum(branches) + len(self.trees) != sum(counts)

    @property
    def has_doubled_votes(self) -> bool:
        """Whether a leaf votes twice for one target."""
        leaves = [node for tree in self.trees for node in _numbered(tree) if isinstance(node, Leaf)]
        return any(len({target for target, _ in leaf.votes}) < len(leaf.votes) for leaf in leaves)


def random_case(seed: int) -> Case:
    """Return a case."""
    return _Draw(random.Random(seed)).case()


class _Draw:
    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.op_type = draw.choice(("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"))
        self.features = draw.randint(1, 5)
        self.targets = draw.choice((1, 1, 2, 2, 3, 5))
        self.kind = draw.choice(("float32", "float32", "float64", "int64", "int32"))
        if self.op_type == "TreeEnsemble" and self.kind.startswith("int"):
            self.kind = "float32"
        self.doubles = self.kind == "float64" if self.op_type == "TreeEnsemble" else draw.random() < 0.3
        known = 7 if self.op_type == "TreeEnsemble" else 6
        self.modes = draw.choice((MODES[:1], MODES[:4], MODES[:known]))
        self.tracks = draw.random() < 0.5
        self.form = draw.choice(("tree", "leaf", "any", "one"))
        self.shares = draw.random() < 0.3
        self.positive = draw.random() < 0.5
        self.named = draw.random() < 0.3

    def case(self) -> Case:
        """Return a case."""
        draw = self.draw
        trees = [self._tree(number, draw.choice((0, 1, 3, 6, 9))) for number in range(draw.choice((1, 2, 7, 40)))]
        rows = draw.choice((0, 1, 2, 3, 17, 40))
        base = [self._number() for _ in range(draw.choice((0, self.targets)))]
        base = [] if self.op_type == "TreeEnsemble" else base
        transform = draw.choice(TRANSFORMS) if draw.random() < 0.5 else "NONE"
        aggregate = "SUM" if self.op_type == "TreeEnsembleClassifier" else draw.choice(AGGREGATES)
        case = Case(self.op_type, trees, {}, self._rows(rows), self.targets, self.doubles, base, transform, aggregate)
        case.attrs = self._drawn(case.written())
        return case

    def _drawn(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return attributes, some in another form, with some that say nothing and without some that go without saying.

        Classes may have names. How often a node is hit changes nothing.
        """
        draw, labels = self.draw, attrs.get("classlabels_int64s")
        if labels and self.named:
            del attrs["classlabels_int64s"]
            attrs["classlabels_strings"] = [f"class {label}" for label in labels]
        if draw.random() < 0.3:
            rates = [round(draw.random(), 2) for _ in attrs["nodes_featureids"]]
            if self.op_type == "TreeEnsemble":
                kind = np.float64 if self.doubles else np.float32
                attrs["nodes_hitrates"] = numpy_helper.from_array(np.array(rates, kind))
            else:
                attrs |= _values("nodes_hitrates", rates, self.doubles)
        for name, value in _DEFAULTS.get(self.op_type, {}).items():
            if name in attrs and attrs[name] == value and draw.random() < 0.5:
                del attrs[name]
        tracks = attrs.get("nodes_missing_value_tracks_true")
        if tracks is not None and not any(tracks) and draw.random() < 0.5:
            del attrs["nodes_missing_value_tracks_true"]
        return attrs

    def number(self) -> float:
        """Return a split."""
        value = self.draw.choice(GRID)
        return (
            value
            if self.doubles
            else float(np.float32(min(max(value, -3e38), 3e38) if math.isfinite(value) else value))
        )

    def _number(self) -> float:
        value = round(self.draw.uniform(0.01 if self.positive else -1, 1), 2)
        return value if self.doubles else float(np.float32(value))

    def _tree(self, number: int, depth: int) -> Tree:
        shared: list[Tree] = []

        def grow(left: int) -> Tree:
            if self.shares and shared and self.draw.random() < 0.1:
                return self.draw.choice(shared)
            made = self._leaf(number) if left == 0 or self.draw.random() < 0.15 else self._branch(grow, left)
            shared.append(made)
            return made

        return grow(depth)

    def _branch(self, grow: Any, left: int) -> Branch:
        draw, mode = self.draw, self.draw.choice(self.modes)
        members = [self.number() for _ in range(draw.randint(0, 4))] if mode == MODES[6] else []
        tracks = self.tracks and draw.random() < 0.5
        true, false = grow(left - 1), grow(left - 1)
        if mode == MODES[4] and self.shares and draw.random() < 0.5:  # a chain, as exporters write categories
            feature = draw.randrange(self.features)
            for _ in range(3):
                false = Branch(feature, mode, self.number(), tracks, true, false)
            return Branch(feature, mode, self.number(), tracks, true, false)
        return Branch(draw.randrange(self.features), mode, self.number(), tracks, true, false, members)

    def _leaf(self, tree: int) -> Leaf:
        draw, count = self.draw, self.targets
        one = {"tree": tree % count, "one": count - 1 if count < 3 else 0}.get(self.form)
        if one is not None or self.op_type == "TreeEnsemble":
            return Leaf([(draw.randrange(count) if one is None else one, self._number())])
        votes = (
            range(count)
            if self.form == "leaf"
            else [draw.randrange(count) for _ in range(draw.randint(int(not tree), 3))]
        )
        return Leaf([(target, self._number()) for target in votes])

    def _rows(self, count: int) -> Array:
        draw = self.draw
        if self.kind.startswith("int"):
            return np.array([[draw.randint(-3, 3) for _ in range(self.features)] for _ in range(count)],
                            self.kind).reshape(count, self.features)  # fmt: skip
        kind: Any = np.dtype(self.kind).type
        with np.errstate(over="ignore"):
            near = [kind(value) for value in GRID]
        near += [np.nextafter(value, kind(1)) for value in near] + [kind(math.nan)] * 3
        rows = [[draw.choice(near) for _ in range(self.features)] for _ in range(count)]
        return np.array(rows, self.kind).reshape(count, self.features)


def _numbered(tree: Tree) -> list[Tree]:
    """Return the nodes of a tree, each once, its root first."""
    found: dict[int, Tree] = {}
    stack = [tree]
    while stack:
        node = stack.pop()
        if id(node) not in found:
            found[id(node)] = node
            stack += [node.false, node.true] if isinstance(node, Branch) else []
    return list(found.values())


def _values(name: str, values: Sequence[float], doubles: bool) -> dict[str, Any]:
    if doubles:
        return {f"{name}_as_tensor": numpy_helper.from_array(np.array(values, np.float64))} if values else {}
    return {name: [float(value) for value in values]} if values else {}


def _by_nodes(of: Case) -> dict[str, Any]:
    kind = "class" if of.op_type == "TreeEnsembleClassifier" else "target"
    columns: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "featureids", "modes", "truenodeids",
                                                           "falsenodeids", "missing_value_tracks_true")}  # fmt: skip
    values, votes, weights = [], {name: list[int]() for name in ("treeids", "nodeids", "ids")}, []
    for tree, root in enumerate(of.trees):
        nodes = _numbered(root)
        places = {id(node): place for place, node in enumerate(nodes)}
        for place, node in enumerate(nodes):
            is_leaf = isinstance(node, Leaf)
            row = (tree, place, 0, "LEAF", 0, 0, 0) if isinstance(node, Leaf) else (
                tree, place, node.feature, node.mode, places[id(node.true)], places[id(node.false)], int(node.tracks)
            )  # fmt: skip
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
            values.append(0.0 if isinstance(node, Leaf) else node.split)
            for target, weight in node.votes if is_leaf and isinstance(node, Leaf) else ():
                for name, value in zip(votes, (tree, place, target), strict=True):
                    votes[name].append(value)
                weights.append(weight)
    attrs: dict[str, Any] = {f"nodes_{name}": column for name, column in columns.items()}
    attrs |= {f"{kind}_{name}": column for name, column in votes.items()}
    attrs |= _values("nodes_values", values, of.doubles) | _values("base_values", of.base, of.doubles)
    attrs |= _values(f"{kind}_weights", weights, of.doubles) or {f"{kind}_weights": []}
    attrs["post_transform"] = of.transform
    if kind == "class":
        return attrs | {"classlabels_int64s": [10 * label + 7 for label in range(of.targets)]}
    return attrs | {"n_targets": of.targets, "aggregate_function": of.aggregate}


def _by_leaves(of: Case) -> dict[str, Any]:
    kind = np.float64 if of.doubles else np.float32
    nodes, leaves, roots = list[Branch](), list[Leaf](), []
    for tree in of.trees:  # one of one leaf is a node that leads to it either way
        root = tree if isinstance(tree, Branch) else Branch(0, MODES[0], 0.0, tracks=False, true=tree, false=tree)
        roots.append(len(nodes))
        for node in _numbered(root):
            nodes += [node] if isinstance(node, Branch) else []
            leaves += [node] if isinstance(node, Leaf) else []
    places = {id(node): place for each in (nodes, leaves) for place, node in enumerate(each)}
    tensor = numpy_helper.from_array
    attrs: dict[str, Any] = {
        "nodes_featureids": [node.feature for node in nodes], "tree_roots": roots, "n_targets": of.targets,
        "nodes_modes": tensor(np.array([MODES.index(node.mode) for node in nodes], np.uint8)),
        "nodes_splits": tensor(np.array([node.split for node in nodes], kind)),
        "leaf_targetids": [leaf.votes[0][0] for leaf in leaves],
        "leaf_weights": tensor(np.array([leaf.votes[0][1] for leaf in leaves], kind)),
        "aggregate_function": AGGREGATES.index(of.aggregate), "post_transform": TRANSFORMS.index(of.transform),
    }  # fmt: skip
    for name, side in (("true", "true"), ("false", "false")):
        ends = [getattr(node, side) for node in nodes]
        attrs[f"nodes_{name}nodeids"] = [places[id(end)] for end in ends]
        attrs[f"nodes_{name}leafs"] = [int(isinstance(end, Leaf)) for end in ends]
    if any(node.tracks for node in nodes):
        attrs["nodes_missing_value_tracks_true"] = [int(node.tracks) for node in nodes]
    sets = [[*node.members, math.nan] for node in nodes if node.mode == MODES[6]]
    if sets:
        attrs["membership_values"] = tensor(np.array([value for each in sets for value in each], kind))
    return attrs


# -- what the text says ------------------------------------------------------------------------------------------------


def reached(tree: Tree, row: Array) -> Leaf:
    """Return the leaf that a row reaches."""
    while isinstance(tree, Branch):
        value = float(np.float32(row[tree.feature])) if row.dtype.kind == "i" else float(row[tree.feature])
        tree = tree.true if _is_true(tree, value) else tree.false
    return tree


def _is_true(node: Branch, value: float) -> bool:
    if math.isnan(value):
        return node.tracks
    split = node.split
    answers = (value <= split, value < split, value >= split, value > split, value == split, value != split,
               value in node.members)  # fmt: skip
    return answers[MODES.index(node.mode)]


def scores(case: Case) -> tuple[Array, Array]:
    """Return the scores before the post transform, in float64, and whether there was any weight for them."""
    found, voted = np.zeros((len(case.x), case.targets)), np.zeros((len(case.x), case.targets), bool)
    for number, row in enumerate(case.x):
        weights: dict[int, list[float]] = {}
        for tree in case.trees:
            for target, weight in reached(tree, row).votes:
                weights.setdefault(target, []).append(weight)
        for target, each in weights.items():
            combined = {"MIN": min, "MAX": max}.get(case.aggregate, sum)
            found[number, target] = combined(each) / (len(case.trees) if case.aggregate == "AVERAGE" else 1)
            voted[number, target] = True
    if case.base:
        found += np.array(case.base)
        voted[:] = True
    return found, voted


def transformed(values: Array, name: str) -> Array:
    """Return scores after a post transform."""
    with np.errstate(all="ignore"):
        if name == "LOGISTIC":
            return np.asarray(1 / (1 + np.exp(-values)))
        if name == "PROBIT":
            x = 2 * values - 1
            log = np.log((1 - x) * (1 + x))
            half = 2 / (3.14159 * 0.147) + log / 2
            return np.asarray(math.sqrt(2) * np.sign(x) * np.sqrt(np.sqrt(half * half - log / 0.147) - half))
        if name.startswith("SOFTMAX"):
            greatest = values.max(-1, keepdims=True, initial=-np.inf)
            counts = (np.abs(values) > 1e-7) | (name == "SOFTMAX")
            powers = np.where(counts, np.exp(values - greatest), 0)
            return np.asarray(np.where(counts, powers, values * np.exp(-greatest)) / powers.sum(-1, keepdims=True))
    return values


def expected(case: Case) -> tuple[Array, Array | None]:
    """Return the scores and, of a classifier, the labels."""
    found, voted = scores(case)
    if case.op_type != "TreeEnsembleClassifier":
        return transformed(found, case.transform), None
    labels = np.array(case.attrs.get("classlabels_int64s") or case.attrs["classlabels_strings"])
    weights = [vote for tree in case.trees for node in _numbered(tree) if isinstance(node, Leaf) for vote in node.votes]
    targets = {target for target, _ in weights}
    if case.targets == 2 and len(targets) == 1 and not case.base:
        return _of_two(found, labels, targets == {1}, all(weight >= 0 for _, weight in weights), case.transform)
    masked = found if case.targets < 3 else np.where(voted, found, -np.inf)
    return transformed(found, case.transform), labels[masked.argmax(1)]


def _of_two(found: Array, labels: Array, is_second: bool, is_share: bool, transform: str) -> tuple[Array, Array]:
    """Return scores and labels of two classes of which one has weights: as ONNX Runtime has it, the text is silent."""
    score = found[:, int(is_second)]
    chosen = labels[(score > (0.5 if is_share else 0.0)).astype(int)]
    if is_second:
        return transformed(found, transform), chosen
    if transform == "LOGISTIC":
        return transformed(np.stack([-score, score], 1), transform), chosen
    if is_share or transform == "PROBIT":
        both = np.stack([1 - score, score], 1)
        return (transformed(both, transform) if transform == "PROBIT" else both), chosen
    return np.stack([-np.abs(score), np.abs(score)], 1), chosen
