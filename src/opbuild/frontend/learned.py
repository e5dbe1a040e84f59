"""Operators of ``ai.onnx.ml`` on numbers, as ONNX's own operators, which have kernels.

What they compute is what their schemas say; where these are silent (what becomes of two classes, which votes count) it
is what ONNX Runtime computes, as the exporters rely on it. Text stays: the host computes what reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import sqrt
from typing import Any

import numpy as np

from opbuild.frontend.rewriting import RewriteScope, Rewriting, writes
from opbuild.frontend.rewritten import LEARNED
from opbuild.graph.breaks import HOST_VALUE
from opbuild.graph.graph_builder import Value
from opbuild.graph.indices import DOMAIN
from opbuild.graph.passes.infer import is_text
from opbuild.graph.tables import as_texts, label_table
from opbuild.graph.types import IN_RANGE, Array, Node
from opbuild.text.plural import counted

FLOAT, WIDE = "float32", "float64"
"""The type of scores; and that of distances, which would lose digits as differences of squares in float32."""

NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO, PROBIT = "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"

NAMES = (NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO, PROBIT)
"""The transforms, at the numbers that TreeEnsemble gives them."""

_ZERO = 1e-7
"""The greatest magnitude of a score that SOFTMAX_ZERO takes for 0; the text does not say, this is what runtimes do."""

_WINITZKI, _PI = 0.147, 3.14159
"""The constants of the inverse error function by logarithms, as runtimes have them, with which they compute PROBIT."""

_Number = Callable[[float], str]


def post_transformed(of: Rewriting, name: str, scores: str, dtype: str = "float32") -> str:
    """Return scores, a row of them for each row, after a post transform."""
    if name == NONE:
        return scores
    if name == LOGISTIC:
        return of("Sigmoid", scores)
    if name == SOFTMAX and dtype == "float32":
        return of("Softmax", scores, axis=-1)

    def number(value: float) -> str:
        return of.constant(value, dtype)

    if name == SOFTMAX:
        return _softmax(of, scores)
    least = float(np.finfo(dtype).min)
    return _softmax_zero(of, scores, number, least) if name == SOFTMAX_ZERO else _probit(of, scores, number)


def _softmax(of: Rewriting, scores: str) -> Value:
    """Write a softmax by steps, for a type of which it has no kernel."""
    axis = of.ints(-1)
    powers = of("Exp", of("Sub", scores, of("ReduceMax", scores, axis, keepdims=1)))
    return of("Div", powers, of("ReduceSum", powers, axis, keepdims=1))


def _softmax_zero(of: Rewriting, scores: str, number: _Number, least: float) -> Value:
    """Write a softmax in which scores of 0 have no part, nor those that are not numbers; both stay as they are."""
    axis = of.ints(-1)
    numbers = of("Where", of("IsNaN", scores), number(least), scores)
    greatest = of("ReduceMax", numbers, axis, keepdims=1)
    counts = of("Greater", of("Abs", scores), number(_ZERO))
    powers = of("Exp", of("Sub", scores, greatest))
    total = of("ReduceSum", of("Where", counts, powers, number(0)), axis, keepdims=1)
    others = of("Mul", scores, of("Exp", of("Neg", greatest)))
    return of("Div", of("Where", counts, powers, others), total)


def _probit(of: Rewriting, scores: str, number: _Number) -> Value:
    """Write the quantile of the normal distribution, nearly."""
    x = of("Sub", of("Mul", scores, number(2)), number(1))
    log = of("Log", of("Mul", of("Sub", number(1), x), of("Add", number(1), x)))
    half = of("Add", of("Mul", log, number(0.5)), number(2 / (_PI * _WINITZKI)))
    under = of("Sub", of("Mul", half, half), of("Mul", log, number(1 / _WINITZKI)))
    size = of("Sqrt", of("Sub", of("Sqrt", under), half))
    return of("Mul", of("Where", of("Less", x, number(0)), number(-sqrt(2)), number(sqrt(2))), size)


class Learned(Rewriting):
    """The nodes that are written in place of an operator of ``ai.onnx.ml``."""

    def __init__(self, node: Node, scope: RewriteScope) -> None:
        super().__init__(node, scope)
        self._kinds: dict[str, str] = {}

    def write(
        self,
        op_type: str,
        inputs: Sequence[str | None],
        outputs: Sequence[str | None],
        attrs: Mapping[str, Any],
        domain: str = "",
    ) -> tuple[Value, ...]:
        """Write an operator; its outputs are of its first input's type unless they are cast."""
        found = super().write(op_type, inputs, outputs, attrs, domain)
        kind = self._kinds.get(inputs[0] or "") if inputs else None
        self._kinds.update({} if kind is None else dict.fromkeys(found, kind))
        return found

    def choice(self, name: str, default: str, known: Sequence[str]) -> str:
        """Return an attribute that is one of some words.

        Raises:
            UnsupportedOperatorError: If it is another one.
        """
        found = self.node.text(name, default)
        self.refuse_if(found not in known, f"its {name} is {found!r}, which is none of {', '.join(known)}")
        return found

    @property
    def transform(self) -> str:
        """The transform of scores."""
        return self.choice("post_transform", NONE, NAMES)

    def cast(self, value: str, dtype: str, given: str = "") -> Value:
        """Return a value in another element type."""
        found = super().cast(value, dtype, given)
        self._kinds[found] = dtype
        return found

    def as_float(self, value: str, dtype: str = "") -> str:
        """Return a value as float32."""
        kind = dtype or self._kinds.get(value) or self.dtype()
        return value if kind == FLOAT else self.cast(value, FLOAT)

    def wide(self, index: int) -> str:
        """Return an input as floats: integers as float32."""
        value, kind = self.input(index), self.dtype(index)
        return self._of_kind(value, kind) if kind == "float64" else self.as_float(value, kind)

    def wide_of(self, value: str) -> str:
        """Return a value that ``wide`` or ``as_float`` returned as float64."""
        return value if self._kinds.get(value, self.dtype()) == WIDE else self.cast(value, WIDE)

    def rows(self, value: str) -> str:
        """Return a value made of the first input as rows; a vector is one."""
        if len(self.shape(0, 1, 2)) == 2:
            return value
        return self._of_kind(self.reshape(value, (1, -1)), self._kinds.get(value, self.dtype()))

    def like(self, value: str, numbers: Any) -> Value:
        """Return constants of float32 in the element type of a value that ``wide`` or ``as_float`` returned."""
        return self.constant(np.asarray(numbers, FLOAT), self._kinds.get(value, FLOAT))

    def matrix(self, name: str, rows: int) -> Array:
        """Return an attribute of floats as a matrix.

        Raises:
            UnsupportedOperatorError: If it does not have whole rows.
        """
        values = np.array(self.attr(name, ()), FLOAT)
        if rows < 1 or not values.size or values.size % rows:
            self.refuse(f"its {name} are {values.size} numbers, which are not {rows} rows")
        return values.reshape(rows, -1)

    def labels(self) -> Array:
        """Return the labels of the classes, texts or integers; none, if there are none."""
        texts = self.attr("classlabels_strings", ())
        return as_texts(texts) if texts else np.array(self.attr("classlabels_ints", ()), np.int64)

    def _of_kind(self, value: str, kind: str) -> str:
        self._kinds[value] = kind
        return value


def classified(of: Learned, place: str, labels: Array, scores: str) -> Sequence[Node]:
    """Give the scores of classes, and the labels that lie at places."""
    of.refuse_if(len(labels) == 0, "it has no labels")
    label, of_scores = (*of.node.outputs, "", "")[:2]
    if of_scores:
        of("Identity", scores, output=of_scores)
    if label and labels.dtype == np.int64 and np.array_equal(labels, np.arange(len(labels))):
        of("Identity", place, output=label)
    elif label and is_text(labels):
        of("ClassNames", place, output=label, domain=DOMAIN, names=tuple(labels.tolist()))
    elif label:
        of("Gather", of.constant(labels), place, output=label, axis=0)
    return of.nodes


def transformed(of: Learned, scores: str, count: int) -> str:
    """Return scores in ``count`` columns after the node's post_transform; of one alone only PROBIT changes it."""
    is_changed = count > 1 or of.transform == PROBIT
    return post_transformed(of, of.transform, scores) if is_changed else scores


def of_two(of: Learned, score: str) -> Value:
    """Return the scores of two classes after the node's post_transform, given the second one's."""
    if of.transform == LOGISTIC:
        return of("Sigmoid", of("Concat", of("Neg", score), score, axis=1))
    score = transformed(of, score, 1)
    return of("Concat", of("Sub", of.like(score, 1), score), score, axis=1)


KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")

Column = tuple[Array, Array]

NEARLY = 1e-7
"""How near to 0 and 1 the probability comes that one of two classes is right."""


def support_regressor(of: Learned) -> Sequence[Node]:
    """Write a sum over support vectors; of one class, whether a row belongs to it.

    A post_transform has no effect, as with ONNX Runtime: one sum alone is no score among others.
    """
    x, count = of.rows(of.wide(0)), int(of.attr("n_supports", 0))
    kernels = _kernels(of, x, of.matrix("support_vectors", count)) if count else of.wide_of(x)
    weights = of.matrix("coefficients", 1)
    value: str = of("MatMul", kernels, of.constant(weights.T.astype(WIDE)))
    value = of.cast(of("Add", value, of.constant(np.array(of.attr("rho", (0.0,))[:1], WIDE))), FLOAT)
    if of.attr("one_class", 0):
        sign = [of.constant(each, FLOAT) for each in (1.0, -1.0)]
        value = of("Where", of("Greater", value, of.like(value, 0)), *sign)
    return of.finish(value)


def support_classifier(of: Learned) -> Sequence[Node]:
    """Write the votes of all pairs of classes, and scores: of pairs, or probabilities of classes.

    Without support vectors it is a linear classifier with one offset.
    """
    x, labels = of.rows(of.as_float(of.input(0))), of.labels()
    counts = [int(each) for each in of.attr("vectors_per_class", ())]
    if not sum(counts):
        return _linear(of, x, labels)
    if len(counts) != len(labels) or len(labels) < 2:
        of.refuse(f"it has {len(labels)} labels, and support vectors of {len(counts)} classes")
    pairs = list(combinations(range(len(labels)), 2))
    kernels = _kernels(of, x, of.matrix("support_vectors", sum(counts)))
    offsets = np.array(of.attr("rho", ()), WIDE)
    of.refuse_if(len(offsets) < len(pairs), f"it has {len(offsets)} numbers in rho, not {len(pairs)}")
    columns = _pair_weights(of.matrix("coefficients", len(labels) - 1), counts, pairs)
    wide = of("Add", _weighted(of, kernels, columns, sum(counts)), of.constant(offsets[: len(pairs)]))
    scores = of.cast(wide, FLOAT)
    place = _most_votes(of, wide, len(labels), pairs)
    if of.attr("prob_a", ()):
        results = transformed(of, _probabilities(of, scores, len(labels), pairs), len(labels))
    elif len(labels) > 2:
        results = transformed(of, scores, len(pairs))
    else:
        of_pair = of.transform == "NONE"  # the scores of two classes, given the one that tells them apart
        results = of("Concat", of("Neg", scores), scores, axis=1) if of_pair else of_two(of, scores)
    return classified(of, place, labels, results)


def _linear(of: Learned, x: str, labels: Array) -> Sequence[Node]:
    weights = of.matrix("coefficients", len(labels))
    scores = of("MatMul", x, of.constant(weights.T.astype(FLOAT)))
    scores = of("Add", scores, of.constant(np.array(of.attr("rho", (0.0,))[:1], FLOAT)))
    place = of("ArgMax", scores, axis=1, keepdims=0)
    if len(labels) == 2:  # the second class wins if any score is great enough
        least = 0.5 if (weights >= 0).all() else np.nextafter(np.float32(0), np.float32(1))
        most = of("ReduceMax", scores, of.ints(1), keepdims=0)
        one = of.constant(1, "int64")
        place = of("Where", of("GreaterOrEqual", most, of.like(scores, least)), one, place)
    return classified(of, place, labels, transformed(of, scores, len(labels)))


def _kernels(of: Learned, x: str, vectors: Array) -> str:
    """Return the nearness of each row to each support vector, by the node's kernel, in float64."""
    kind = of.choice("kernel_type", "LINEAR", KERNELS)
    gamma, offset = (*map(float, of.attr("kernel_params", ())), 0.0, 0.0)[:2]
    wide, turned = of.wide_of(x), vectors.T.astype(WIDE)
    if kind == "LINEAR":
        return of("MatMul", wide, of.constant(turned))
    if kind == "RBF":
        return _radial(of, wide, turned, gamma)
    value = of("Add", of("MatMul", wide, of.constant(gamma * turned)), of.constant(offset, WIDE))
    if kind == "SIGMOID":
        return of.cast(of("Tanh", of.cast(value, FLOAT)), WIDE)
    return of("Pow", value, of.constant(_degree(of), WIDE))


def _degree(of: Learned) -> float:
    return float((*of.attr("kernel_params", ()), 0.0, 0.0, 0.0)[2])


def _radial(of: Learned, x: str, turned: Array, gamma: float) -> str:
    """Return ``exp(-gamma * distance ** 2)``."""
    twice = of("MatMul", x, of.constant(2 * gamma * turned))
    both = of("Sub", twice, of.constant(gamma * np.square(turned).sum(0)))
    squares = of("Mul", of("ReduceSumSquare", x, of.ints(1), keepdims=1), of.constant(gamma, WIDE))
    return of.cast(of("Exp", of.cast(of("Sub", both, squares), FLOAT)), WIDE)


def _pair_weights(coefficients: Array, counts: Sequence[int], pairs: Sequence[tuple[int, int]]) -> list[Column]:
    """Return the places of the support vectors that count for each pair's score, and their weights."""
    ends = np.cumsum(counts)
    of_class = [np.arange(end - count, end) for end, count in zip(ends, counts, strict=True)]
    columns = []
    for first, second in pairs:
        weights = [coefficients[second - 1, of_class[first]], coefficients[first, of_class[second]]]
        columns.append((np.concatenate([of_class[first], of_class[second]]), np.concatenate(weights).astype(WIDE)))
    return columns


def _weighted(of: Learned, kernels: str, columns: Sequence[Column], count: int) -> Value:
    """Return the score of each pair; a kernel that is not a number spoils only those that it counts for."""
    if of.choice("kernel_type", "LINEAR", KERNELS) != "POLY" or _degree(of).is_integer():
        weights = np.zeros((count, len(columns)), WIDE)
        for place, (own, values) in enumerate(columns):
            weights[own, place] = values
        return of("MatMul", kernels, of.constant(weights))
    scores = []
    for own, values in columns:
        part = of("Gather", kernels, of.constant(own), axis=1)
        scores.append(of("MatMul", part, of.constant(values[:, None])))
    return of("Concat", *scores, axis=1)


def _most_votes(of: Learned, scores: str, classes: int, pairs: Sequence[tuple[int, int]]) -> str:
    """Return the class that most pairs vote for, the first of several."""
    wins = of("Greater", scores, of.constant(0, WIDE))
    if len(pairs) == 1:  # the first class wins with a positive score
        return of.cast(of.reshape(of("Not", wins), (-1,)), "int64")
    change, all_lost = np.zeros((len(pairs), classes), FLOAT), np.zeros(classes, FLOAT)
    for row, (first, second) in enumerate(pairs):
        change[row, first], change[row, second] = 1, -1
        all_lost[second] += 1
    votes = of("Add", of("MatMul", of.cast(wins, FLOAT), of.constant(change)), of.constant(all_lost))
    return of("ArgMax", votes, axis=1, keepdims=0)


def _probabilities(of: Learned, scores: str, classes: int, pairs: Sequence[tuple[int, int]]) -> Value:
    """Return the probabilities of classes that agree best with those of pairs."""
    slopes, offsets = (np.array(of.attr(name, ()), FLOAT)[: len(pairs)] for name in ("prob_a", "prob_b"))
    if not len(slopes) == len(offsets) == len(pairs):
        of.refuse(f"it has {len(slopes)} numbers in prob_a and {len(offsets)} in prob_b, not {len(pairs)}")
    logits = of("Add", of("Mul", scores, of.constant(-slopes)), of.constant(-offsets))
    bounds = (of.constant(each, FLOAT) for each in (NEARLY, 1 - NEARLY))
    first = of("Clip", of("Sigmoid", logits), *bounds)
    return of.own("PairwiseCoupling", first, classes=classes)


MOST_KEYS = 512
"""Keys of a dictionary with all of which each number is compared; the host looks for it among more."""

Rewrite = Callable[[Learned], Sequence[Node]]


def _scaler(of: Learned) -> Sequence[Node]:
    x = of.wide(0)
    for op_type, name in (("Sub", "offset"), ("Mul", "scale")):
        if of.attr(name, ()):
            x = of(op_type, x, of.like(x, of.attr(name, ())))
    return of.finish(of.as_float(x))


def _normalizer(of: Learned) -> Sequence[Node]:
    """Divide rows by their norm, or their greatest element; rows that would be divided by 0 stay."""
    x, axis = of.as_float(of.input(0)), of.ints(-1)
    norm = of.choice("norm", "MAX", ("MAX", "L1", "L2"))
    size = of({"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}[norm], x, axis, keepdims=1)
    one, zero = of.like(x, 1), of.like(x, 0)
    return of.finish(of("Div", x, of("Where", of("Equal", size, zero), one, size)))


def _binarizer(of: Learned) -> Sequence[Node]:
    x, threshold = of.input(0), float(of.attr("threshold", 0.0))
    if "int" in of.dtype():
        threshold = float(np.clip(np.floor(threshold), -(2.0**31), 2.0**31 - 1))
    above = of("Greater", x, of.constant(np.array(threshold, of.dtype())))
    return of.finish(of.cast(above, of.dtype()))


def _imputer(of: Learned) -> Sequence[Node]:
    x, dtype = of.input(0), np.dtype(of.dtype())
    kind = "float" if dtype.kind == "f" else "int64"
    values = of.attr(f"imputed_value_{kind}s", ())
    of.refuse_if(not values, f"it has no imputed_value_{kind}s, which its input of {dtype} needs")
    if len(values) != of.shape(0)[-1]:
        values = values[:1]
    missing = np.array(of.attr(f"replaced_value_{kind}", 0), np.float32 if kind == "float" else np.int64)
    is_missing = of("IsNaN", x) if np.isnan(missing) else of("Equal", x, of.constant(missing.astype(dtype)))
    return of.finish(of("Where", is_missing, of.constant(np.array(values).astype(dtype)), x))


def _one_hot(of: Learned) -> Sequence[Node]:
    """Compare each number with all categories; of equal ones the last counts.

    The host says which number is no category, where each must be one, unless they count from 0 on.
    """
    numbers = np.array(of.attr("cats_int64s", ()), np.int64)
    may_be_others, are_places = bool(of.attr("zeros", 1)), np.array_equal(numbers, np.arange(len(numbers)))
    if not len(numbers) or not (may_be_others or are_places):
        return of.itself()
    x = of.input(0) if of.dtype() == "int64" else of.cast(of.input(0), "int64")
    if not may_be_others:
        x = of.own(IN_RANGE, x, counts=(len(numbers),), negative=False)
    found = of.cast(of("Equal", of("Unsqueeze", x, of.ints(-1)), of.constant(numbers)), FLOAT)
    last = np.array([each not in numbers[index + 1 :] for index, each in enumerate(numbers)])
    return of.finish(found if last.all() else of("Mul", found, of.constant(last.astype(FLOAT))))


def _label_encoder(of: Learned) -> Sequence[Node]:
    """Find the key of each number: a table has its value, and first the value of those without a key."""
    x = of.input(0)
    keys, values = label_table(of.node, of.dtype())
    if keys.dtype == object or len(keys) > MOST_KEYS or keys.dtype != np.dtype(of.dtype()):
        return of.itself()
    are_last = [not (keys[index + 1 :] == key).any() for index, key in enumerate(keys)]
    order = np.array(are_last, np.int64) * np.arange(1, len(keys) + 1)
    is_key = of.cast(of("Equal", of("Unsqueeze", x, of.ints(-1)), of.constant(keys)), "int64")
    place = of.sum(of("Mul", is_key, of.constant(order)), [-1])
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        of_nan = of.constant(np.array(1 + int(np.flatnonzero(np.isnan(keys))[-1]), np.int64))
        place = of("Where", of("IsNaN", x), of_nan, place)
    return of.finish(of("Gather", of.constant(values), place, axis=0))


def _features(of: Learned) -> Sequence[Node]:
    """Join inputs to rows; each is cut or filled with zeros to the width that is stated for it."""
    widths = of.attr("inputdimensions", ()) or [of.shape(index)[-1] for index in range(len(of.node.inputs))]
    if len(widths) != len(of.node.inputs):
        of.refuse(f"it has {counted(len(of.node.inputs), 'input')}, and its inputdimensions are {len(widths)}")
    return of.finish(of("Concat", *(_to_width(of, index, int(width)) for index, width in enumerate(widths)), axis=1))


def _to_width(of: Learned, index: int, width: int) -> str:
    x, shape = of.as_float(of.input(index), of.dtype(index)), of.shape(index)
    if len(shape) != 2:
        x = of("Flatten", x, axis=min(len(shape), 1)) if len(shape) > 1 else of.reshape(x, (1, -1))
    given = int(np.prod(shape[1:])) if len(shape) > 1 else int(shape[0])
    if given > width:
        return of.slice(x, 1, 0, width)
    return x if given == width else of("Pad", x, of.ints(0, width - given), of.like(x, 0), of.ints(1))


def _extracted(of: Learned) -> Sequence[Node]:
    """Take elements of the last dimension; a part of a vector is a row."""
    x, places = of.input(0), of.reshape(of.input(1), (-1,))
    if len(of.shape(0)) == 1:
        x = of.reshape(x, (1, -1))
    return of.finish(of("Gather", x, places, axis=-1))


def _linear_regressor(of: Learned) -> Sequence[Node]:
    x, targets = of.rows(of.wide(0)), int(of.attr("targets", 1))
    value = of("MatMul", x, of.like(x, of.matrix("coefficients", targets).T))
    intercepts = of.attr("intercepts", ())
    if len(intercepts) == targets:
        value = of("Add", value, of.like(x, intercepts))
    return of.finish(transformed(of, of.as_float(value), targets))


def _linear_classifier(of: Learned) -> Sequence[Node]:
    """Score each class; one score alone decides between two, and is the second one's."""
    x, labels = of.rows(of.as_float(of.input(0))), of.labels()
    intercepts = of.attr("intercepts", ()) or (0.0,) * max(len(labels), 1)
    count = len(intercepts)
    scores = of("MatMul", x, of.constant(of.matrix("coefficients", count).T.astype(FLOAT)))
    scores = of("Add", scores, of.constant(intercepts, FLOAT))
    of.refuse_if(count > max(len(labels), 1), f"it scores {count} classes and has {len(labels)} labels")
    if count > 1:
        return classified(of, of("ArgMax", scores, axis=1, keepdims=0), labels, transformed(of, scores, count))
    is_second = of.cast(of("Greater", of.reshape(scores, (-1,)), of.like(scores, 0)), "int64")
    named = labels if len(labels) == 2 else np.array(["0", "1"], object) if is_text(labels) else np.arange(2)
    results = of_two(of, scores) if len(labels) == 2 else transformed(of, scores, 1)
    return classified(of, is_second, named, results)


ON_TEXT = frozenset(("ArrayFeatureExtractor",))
"""Those that are written with others whatever they read."""


def _of_numbers(write: Rewrite) -> Callable[[Rewriting], Sequence[Node]]:
    """Return the rewrite of an operator that reads numbers; the host is to take one that reads text."""

    def written(of: Rewriting) -> Sequence[Node]:
        types = [of.scope.type_of(name) for name in of.node.inputs if name]
        reads_text = any(each.dtype == HOST_VALUE.dtype for each in types)
        if reads_text and (of.node.op_type not in ON_TEXT or HOST_VALUE in types):
            return of.itself()
        return write(Learned(of.node, of.scope))

    return written


_WRITTEN: dict[str, Rewrite] = {
    "ArrayFeatureExtractor": _extracted,
    "Binarizer": _binarizer,
    "FeatureVectorizer": _features,
    "Imputer": _imputer,
    "LabelEncoder": _label_encoder,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot,
    "SVMClassifier": support_classifier,
    "SVMRegressor": support_regressor,
    "Scaler": _scaler,
}

for _op_type, _write in _WRITTEN.items():
    writes(_op_type, domain=LEARNED)(_of_numbers(_write))
