"""TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble, written as opbuild's own operator and others.

What the text leaves open is as ONNX Runtime has it, except where that answers with what is no class: see
docs/design/trees.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.frontend.learned import LOGISTIC, NAMES, NONE, PROBIT, post_transformed
from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.frontend.rewritten import LEARNED
from opbuild.frontend.trees.ensemble import Attributes, Ensemble, read_by_leaves, read_by_nodes
from opbuild.frontend.trees.packed import pack
from opbuild.graph.graph_builder import Value
from opbuild.graph.indices import DOMAIN
from opbuild.graph.types import Array, Node
from opbuild.platform.records import replace
from opbuild.text.plural import counted

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
    if not known and not _always_voted(ensemble, classes):
        least, zero = (of.constant(number, scores.dtype) for number in (-np.inf, 0))
        found = of("Where", of("Greater", scores.presence(ensemble, classes), zero), found, least)
    return of("ArgMax", found, axis=1, keepdims=0)


def _always_voted(ensemble: Ensemble, classes: int) -> bool:
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
