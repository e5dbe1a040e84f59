"""Makers of cases for the operators of ``ai.onnx.ml``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from onnx import numpy_helper

from generated.host_cases import Case, Draw, makes

ML = "ai.onnx.ml"
RESULTS = (None, "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
NAMES = ("a", "b", "", "Ü", "e f")
NUMBERS = ("float32", "float64", "int64", "int32")


def _floats(d: Draw, count: int) -> list[float]:
    return [float(each) for each in d.array((count,))]


def _mostly(d: Draw, value: Any) -> Any:
    """Return a value without which ONNX Runtime does not run an operator, or seldom nothing."""
    return d.one_of(*[value] * 7, None)


def _case(op_type: str, inputs: list[Any], attrs: dict[str, Any], outputs: int = 1, ml: int = 0) -> Case:
    return Case(op_type, inputs, attrs, outputs, domain=ML, domain_opset=ml)


def _rows(d: Draw, *types: str, most: int = 4) -> Any:
    """Return rows of numbers, or one row as a vector."""
    return d.array(d.shape(d.one_of(2, 2, 2, 1), most), d.one_of(*(types or NUMBERS)))


def _labels(d: Draw, count: int, ints: str = "classlabels_ints") -> dict[str, Any]:
    if d.flag():
        return {"classlabels_strings": list(NAMES[:count])}
    return {ints: list(range(count)) if d.flag() else [7 - 3 * each for each in range(count)]}


@makes("Binarizer")
def _binary(d: Draw, op_type: str) -> Case:
    return _case(op_type, [_rows(d)], {"threshold": d.one_of(None, 0.0, 0.5, -0.5, 2.0)})


@makes("Normalizer")
def _normal(d: Draw, op_type: str) -> Case:
    x = _rows(d)
    return _case(op_type, [x * (d.array(x.shape[:1], "bool")[..., None] if x.ndim > 1 else 1)],
                 {"norm": d.one_of(None, "MAX", "L1", "L2")})  # fmt: skip


@makes("ArrayFeatureExtractor")
def _features(d: Draw, op_type: str) -> Case:
    shape = d.shape(d.integer(1, 3), 4)
    kind = d.one_of(*NUMBERS, "object")
    x = np.array(NAMES, object)[d.below(shape, len(NAMES))] if kind == "object" else d.array(shape, kind)
    return _case(op_type, [x, d.below(d.one_of((1, d.integer(1, 3)), (2,)), shape[-1])], {})


@makes("Scaler")
def _scaled(d: Draw, op_type: str) -> Case:
    x = _rows(d)
    count = d.one_of(1, x.shape[-1])
    return _case(op_type, [x], {"offset": _mostly(d, _floats(d, count)), "scale": _mostly(d, _floats(d, count))})


@makes("Imputer")
def _imputed(d: Draw, op_type: str) -> Case:
    x = _rows(d)
    count = d.one_of(1, x.shape[-1])
    if x.dtype.kind == "i":
        return _case(op_type, [x], {"imputed_value_int64s": d.integers(count, -3, 3), "replaced_value_int64": 2})
    replaced = d.one_of(float("nan"), 1.0, 0.0)
    x = np.where(d.array(x.shape, "bool"), x.dtype.type(replaced), x)
    return _case(op_type, [x], {"imputed_value_floats": _floats(d, count), "replaced_value_float": replaced})


@makes("OneHotEncoder")
def _categories(d: Draw, op_type: str) -> Case:
    shape, zeros = d.shape(d.integer(1, 2), 3), d.one_of(None, 1, 0)
    if d.flag():
        return _case(op_type, [np.array(NAMES, object)[d.below(shape, len(NAMES))]],
                     {"cats_strings": list(NAMES[: d.integer(3, 5)]), "zeros": zeros})  # fmt: skip
    x = d.below(shape, 4, d.one_of("int64", "float32", "int32", "float64"))
    x = (x + 0.5).astype(x.dtype) if x.dtype.kind == "f" and d.flag() else x
    return _case(op_type, [x], {"cats_int64s": d.one_of([0, 2, 3, 1], [2, 2, 1], [1]), "zeros": zeros})


@makes("FeatureVectorizer")
def _joined(d: Draw, op_type: str) -> Case:
    n, count = d.integer(1, 3), d.integer(1, 3)
    kind, widths = d.one_of(*NUMBERS), d.integers(count, 1, 3)
    given = [d.array((width,) if n == 1 and d.flag() else (n, width), kind) for width in widths]
    return _case(op_type, given, {"inputdimensions": _mostly(d, [each + d.integer(-1, 1) for each in widths])})


@makes("LinearRegressor")
def _linear(d: Draw, op_type: str) -> Case:
    x, targets = _rows(d), d.integer(1, 3)
    attrs = {
        "coefficients": _floats(d, x.shape[-1] * targets), "intercepts": d.maybe(_floats(d, targets)),
        "targets": d.maybe(targets) if targets == 1 else targets, "post_transform": d.one_of(*RESULTS),
    }  # fmt: skip
    return _case(op_type, [x], attrs)


@makes("LinearClassifier")
def _classified(d: Draw, op_type: str) -> Case:
    x, classes = _rows(d), d.integer(1, 4)
    labels = _labels(d, 2 if classes == 1 else classes)
    transform = d.one_of(*RESULTS[: -1 if classes == 1 else None])  # PROBIT leaves the second score unset
    attrs = {
        "coefficients": _floats(d, x.shape[-1] * classes), "intercepts": _floats(d, classes),
        "multi_class": d.one_of(None, 0, 1), "post_transform": transform, **labels,
    }  # fmt: skip
    return _case(op_type, [x], attrs, 2)


def _kernel(d: Draw) -> dict[str, Any]:
    kind = d.one_of(None, "LINEAR", "POLY", "RBF", "SIGMOID")
    params = [d.one_of(0.5, 0.1), d.one_of(0.0, 1.0, -0.5), d.one_of(2.0, 3.0, 1.0, 2.5)]
    return {"kernel_type": kind, "kernel_params": _mostly(d, params)}


@makes("SVMRegressor")
def _support(d: Draw, op_type: str) -> Case:
    x, count = _rows(d), d.integer(0, 4)
    width = x.shape[-1]
    attrs = {
        "support_vectors": _floats(d, width * count), "coefficients": _floats(d, count or width),
        "n_supports": count or d.maybe(0), "rho": _mostly(d, _floats(d, 1)), "one_class": d.one_of(None, 0, 1),
        "post_transform": d.one_of(*RESULTS), **_kernel(d),
    }  # fmt: skip
    return _case(op_type, [x], attrs)


@makes("SVMClassifier")
def _support_classes(d: Draw, op_type: str) -> Case:
    """Classes with one to three support vectors each, told apart in pairs; or without any, by a score of each."""
    x, classes = _rows(d), d.integer(2, 5)
    width, pairs = x.shape[-1], classes * (classes - 1) // 2
    labels, transform = _labels(d, classes), d.one_of(*RESULTS)
    if d.one_of(*"svsss") == "v":
        weights = np.array(_floats(d, width * classes))
        attrs = {"coefficients": (np.abs(weights) if d.flag() else weights).tolist(), "rho": _floats(d, 1)}
        return _case(op_type, [x], {**attrs, **labels, **_kernel(d), "post_transform": transform}, 2)
    counts = d.integers(classes, 1, 3)
    total, has_probabilities = sum(counts), d.flag()
    if classes == 2 and not has_probabilities and transform == "PROBIT":
        transform = None  # one score, of which it is not said what becomes of it
    attrs = {
        "support_vectors": _floats(d, width * total), "coefficients": _floats(d, (classes - 1) * total),
        "vectors_per_class": counts, "rho": _floats(d, pairs), "post_transform": transform, **labels, **_kernel(d),
    }  # fmt: skip
    if has_probabilities:
        attrs |= {"prob_a": [-abs(each) for each in _floats(d, pairs)], "prob_b": _floats(d, pairs)}
    return _case(op_type, [x], attrs, 2)


_COLUMNS: dict[str, Any] = {
    "strings": np.array(NAMES[:4], object), "int64s": np.array([3, 1, -2, 10]),
    "floats": np.array([1.5, -2, 3, np.nan], np.float32),
}  # fmt: skip
_DEFAULTS: dict[str, dict[str, Any]] = {
    "strings": {"default_string": "none"}, "int64s": {"default_int64": 5}, "floats": {"default_float": 7.0}
}  # fmt: skip


@makes("LabelEncoder")
def _encoded(d: Draw, op_type: str) -> Case:
    """Every type to every type, by lists or by tensors; in the first operator set the names of numbers from 0 on."""
    if d.one_of(*"nnno") == "o":
        places = d.below(d.shape(d.integer(1, 3), 3), len(NAMES) + 1)
        x = places if d.flag() else np.array([*NAMES, "other"], object)[places]
        attrs = {"classes_strings": list(NAMES), "default_string": d.one_of(None, "none")}
        return _case(op_type, [x], attrs | {"default_int64": d.one_of(None, 5)}, ml=1)
    source, target = d.one_of(*_COLUMNS), d.one_of(*_COLUMNS)
    keys, values = _COLUMNS[source], _COLUMNS[target]
    x = np.concatenate([keys, keys[:1], keys[:1] * 2 if source != "strings" else np.array(["other"], object)])
    x = x[d.below(d.shape(d.integer(0, 3), 3), len(x))]
    x = np.asarray(x, keys.dtype)
    if d.flag():
        default = d.one_of({}, _DEFAULTS[target])
        return _case(op_type, [x], {f"keys_{source}": keys.tolist(), f"values_{target}": values.tolist(), **default})
    kinds = {"strings": ("object",), "int64s": ("int64", "int32", "int16"), "floats": ("float32", "float64")}
    one, other = np.dtype(d.one_of(*kinds[source])), np.dtype(d.one_of(*kinds[target]))
    attrs = {"keys_tensor": numpy_helper.from_array(keys.astype(one)),
             "values_tensor": numpy_helper.from_array(values.astype(other)),
             "default_tensor": numpy_helper.from_array(values[1:2].astype(other))}  # fmt: skip
    return _case(op_type, [x.astype(one)], attrs)


@makes("CategoryMapper")
def _categories_named(d: Draw, op_type: str) -> Case:
    names, numbers = ["a", "b", ""], [3, -1, 7]
    attrs = {"cats_strings": names, "cats_int64s": numbers, "default_int64": d.one_of(None, 5)}
    places = d.below(d.shape(d.integer(1, 2), 3), 4)
    if d.flag():
        return _case(op_type, [np.array([3, -1, 7, 9])[places]], {**attrs, "default_string": d.one_of(None, "none")})
    return _case(op_type, [np.array([*names, "other"], object)[places]], attrs)


# -- maps --------------------------------------------------------------------------------------------------------------


@makes("ZipMap")
def _zipped(d: Draw, op_type: str) -> Case:
    x = _rows(d, "float32")
    return _case(op_type, [x], _labels(d, x.shape[-1], "classlabels_int64s"))


def _mapped(d: Draw, keys: Any, kind: str) -> dict[Any, Any]:
    numbers = d.array((len(keys),), "float32" if kind == "object" else kind)
    return {key: str(value) if kind == "object" else value for key, value in zip(keys, numbers, strict=True)}


@makes("DictVectorizer")
def _vectorized(d: Draw, op_type: str) -> Case:
    is_text = d.flag()
    keys = NAMES[: d.integer(1, 5)] if is_text else [3, -1, 7, 0][: d.integer(1, 4)]
    kind = d.one_of("int64", "float32", "float64") if is_text else d.one_of("object", "float32", "float64")
    words = {"string_vocabulary": ["b", "Ü", "a", "x"]} if is_text else {"int64_vocabulary": [7, 2, 3]}
    return _case(op_type, [_mapped(d, keys, kind)], words)


@makes("CastMap")
def _cast_map(d: Draw, op_type: str) -> Case:
    keys = [5, 0, 2, 3][: d.integer(1, 4)]
    attrs = {"cast_to": d.one_of(None, "TO_FLOAT", "TO_INT64", "TO_STRING"),
             "map_form": d.one_of(None, "DENSE", "SPARSE"), "max_map": d.one_of(None, 4, 8)}  # fmt: skip
    return _case(op_type, [_mapped(d, keys, d.one_of("object", "float32"))], attrs)


# -- what ONNX Runtime does not run ------------------------------------------------------------------------------------

RUN_AS: dict[str, dict[str, str]] = {
    "Binarizer": {"float64": "float32", "int64": "float32", "int32": "float32"},
    "Imputer": {"float64": "float32", "int32": "int64"},
    "LinearRegressor": {"float64": "float32", "int64": "float32", "int32": "float32"},
    "SVMRegressor": {"float64": "float32", "int64": "float32", "int32": "float32"},
    "OneHotEncoder": {"int32": "int64"},
}
"""Types of the first input for which ONNX Runtime lacks an operator, and one of which it gives the same numbers."""


def as_run(case: Case) -> Case:
    """Return a case with the types that ONNX Runtime runs; the numbers of its results are to be the same."""
    kinds = RUN_AS.get(case.op_type, {}) if case.domain == ML else {}
    first = case.inputs[0] if case.inputs else None
    if not isinstance(first, np.ndarray) or first.dtype.name not in kinds:
        return case
    return replace(case, inputs=[first.astype(kinds[first.dtype.name]), *case.inputs[1:]])


def as_asked(case: Case, results: list[Any]) -> list[Any]:
    """Return the results of ``as_run`` in the types that they have for the case itself."""
    if case.op_type in ("Binarizer", "Imputer"):
        return [each.astype(case.inputs[0].dtype) for each in results]
    return results


def by_text(case: Case) -> list[Any] | None:
    """Return the values of a map by the text, None of anything else: ONNX Runtime takes few types of them."""
    given = case.inputs[0] if case.inputs else None
    if not isinstance(given, dict):
        return None
    if case.op_type == "DictVectorizer":
        words = case.attrs.get("string_vocabulary") or case.attrs["int64_vocabulary"]
        is_text = isinstance(next(iter(given.values())), str)
        kind = object if is_text else np.asarray(next(iter(given.values()))).dtype
        return [np.array([[given.get(word, "" if is_text else 0) for word in words]], kind)]
    to = case.attrs.get("cast_to") or "TO_FLOAT"
    become: Any = {"TO_FLOAT": np.float32, "TO_INT64": lambda x: int(float(x)), "TO_STRING": _as_text}[to]
    kind = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}[to]
    if case.attrs.get("map_form") != "SPARSE":
        return [np.array([[become(given[key]) for key in sorted(given)]], kind)]
    places, none = range(case.attrs.get("max_map") or 1), "0.f" if kind is object else 0
    return [np.array([[become(given[key]) if key in given else none for key in places]], kind)]


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:f}"
