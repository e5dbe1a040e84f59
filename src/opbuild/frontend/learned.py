"""Operators of ``ai.onnx.ml`` on numbers, as ONNX's own operators, which have kernels.

What they compute is what their schemas say; where these are silent (what becomes of two classes, which votes count) it
is what ONNX Runtime computes, as the exporters rely on it. Text stays: the host computes what reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from opbuild.frontend.learned_vectors import support_classifier, support_regressor
from opbuild.frontend.learned_writing import FLOAT, Learned, classified, of_two, transformed
from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.frontend.rewritten import LEARNED
from opbuild.graph.breaks import HOST_VALUE
from opbuild.graph.label_tables import label_table
from opbuild.graph.passes.infer import is_text
from opbuild.graph.types import IN_RANGE, Array, Node
from opbuild.text.plural import counted

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
    """Divide rows by their norm, or their greatest element; what would be divided by 0 stays."""
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
    if not values:
        of.refuse(f"it has no imputed_value_{kind}s, which its input of {dtype} needs")
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
    """Say by which key each number is found: a table has its value, and first what stands for those without a key."""
    x = of.input(0)
    keys, values = label_table(of.node, of.dtype())
    if keys.dtype == object or len(keys) > MOST_KEYS or keys.dtype != np.dtype(of.dtype()):
        return of.itself()
    order = np.array([_is_last(keys, index) * (index + 1) for index in range(len(keys))], np.int64)
    is_key = of.cast(of("Equal", of("Unsqueeze", x, of.ints(-1)), of.constant(keys)), "int64")
    place = of("ReduceSum", of("Mul", is_key, of.constant(order)), of.ints(-1), keepdims=0)
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        of_nan = of.constant(np.array(1 + int(np.flatnonzero(np.isnan(keys))[-1]), np.int64))
        place = of("Where", of("IsNaN", x), of_nan, place)
    return of.finish(of("Gather", of.constant(values), place, axis=0))


def _is_last(keys: Array, index: int) -> bool:
    return not (keys[index + 1 :] == keys[index]).any()


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
    """Take elements of the last dimension; what is taken of a vector is a row."""
    x, places = of.input(0), of.reshape(of.input(1), (-1,))
    if of.is_vector(0):
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
    scores = of("Add", scores, of.constant(np.array(intercepts, FLOAT)))
    if count > max(len(labels), 1):
        of.refuse(f"it scores {count} classes and has {len(labels)} labels")
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
