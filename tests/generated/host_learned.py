"""Makers of cases for the operators of ``ai.onnx.ml``."""

from __future__ import annotations

from typing import Any

import numpy as np

from generated.host_cases import Case, Draw, makes

ML = "ai.onnx.ml"
RESULTS = (None, "SOFTMAX", "LOGISTIC")
NUMBERS = ("float32", "float64", "int64", "int32")


def _floats(d: Draw, count: int) -> list[float]:
    return [float(each) for each in d.array((count,))]


def _case(op_type: str, inputs: list[Any], attrs: dict[str, Any], outputs: int = 1) -> Case:
    return Case(op_type, inputs, attrs, outputs, domain=ML)


@makes("Binarizer", "Normalizer")
def _rows(d: Draw, op_type: str) -> Case:
    attrs = {"threshold": d.one_of(None, 0.5)} if op_type == "Binarizer" else {"norm": d.one_of("MAX", "L1", "L2")}
    x = d.array(d.shape(2, 4), d.one_of("float32", "float64", "int64", "int32"))
    return _case(op_type, [x], attrs)


@makes("ArrayFeatureExtractor")
def _features(d: Draw, op_type: str) -> Case:
    shape = d.shape(d.integer(1, 3), 4)
    return _case(op_type, [d.array(shape), d.below((1, d.integer(1, 3)), shape[-1])], {})


@makes("Scaler")
def _scaled(d: Draw, op_type: str) -> Case:
    n, c = d.shape(2, 4)
    count = d.one_of(1, c)
    return _case(
        op_type, [d.array((n, c), d.one_of(*NUMBERS))], {"offset": _floats(d, count), "scale": _floats(d, count)}
    )


@makes("Imputer")
def _imputed(d: Draw, op_type: str) -> Case:
    n, c = d.shape(2, 4)
    count = d.one_of(1, c)
    if d.flag():
        attrs = {"imputed_value_int64s": d.integers(count, -3, 3), "replaced_value_int64": 2}
        return _case(op_type, [d.below((n, c), 4)], attrs)
    x = np.where(d.array((n, c), "bool"), np.float32(np.nan), d.array((n, c)))
    x = x.astype(np.float32)
    return _case(op_type, [x], {"imputed_value_floats": _floats(d, count), "replaced_value_float": float("nan")})


@makes("OneHotEncoder")
def _categories(d: Draw, op_type: str) -> Case:
    x = d.below(d.shape(d.integer(1, 2), 3), 4, d.one_of("int64", "float32", "int32", "float64"))
    return _case(op_type, [x], {"cats_int64s": [0, 2, 3, 1], "zeros": d.one_of(None, 1)})


@makes("FeatureVectorizer")
def _joined(d: Draw, op_type: str) -> Case:
    n, widths = d.integer(1, 3), d.integers(2, 1, 3)
    kind = d.one_of(*NUMBERS)
    return _case(op_type, [d.array((n, width), kind) for width in widths], {"inputdimensions": widths})


@makes("LinearRegressor")
def _linear(d: Draw, op_type: str) -> Case:
    n, c, targets = d.shape(3, 4)
    attrs = {"coefficients": _floats(d, c * targets), "intercepts": d.maybe(_floats(d, targets)), "targets": targets}
    return _case(op_type, [d.array((n, c))], attrs)


@makes("LinearClassifier")
def _classified(d: Draw, op_type: str) -> Case:
    n, c = d.shape(2, 4)
    classes = d.integer(3, 4)
    attrs = {
        "coefficients": _floats(d, c * classes), "intercepts": _floats(d, classes), "multi_class": d.one_of(None, 1),
        "classlabels_ints": list(range(10, 10 + classes)), "post_transform": d.one_of(*RESULTS),
    }  # fmt: skip
    return _case(op_type, [d.array((n, c))], attrs, 2)


@makes("SVMRegressor")
def _support(d: Draw, op_type: str) -> Case:
    n, c, count = d.shape(3, 4)
    attrs = {
        "kernel_type": d.one_of("LINEAR", "POLY", "RBF", "SIGMOID"), "kernel_params": [0.5, 1.0, 2.0],
        "support_vectors": _floats(d, c * count), "coefficients": _floats(d, count), "n_supports": count,
        "rho": _floats(d, 1), "one_class": d.one_of(None, 1),
    }  # fmt: skip
    return _case(op_type, [d.array((n, c))], attrs)


@makes("LabelEncoder")
def _labels(d: Draw, op_type: str) -> Case:
    x = d.below(d.shape(d.integer(0, 3), 3), 5, "int64")
    values = {"values_floats": [1.5, -2.0, 3.0], "default_float": d.one_of(None, 7.0)}
    return _case(op_type, [x], {"keys_int64s": [3, 1, 2], **values})


@makes("CategoryMapper")
def _categories_named(d: Draw, op_type: str) -> Case:
    names, numbers = ["a", "b", ""], [3, -1, 7]
    attrs = {"cats_strings": names, "cats_int64s": numbers, "default_int64": d.one_of(None, 5)}
    places = d.below(d.shape(d.integer(1, 2), 3), 4)
    if d.flag():
        return _case(op_type, [np.array([3, -1, 7, 9])[places]], {**attrs, "default_string": d.one_of(None, "none")})
    return _case(op_type, [np.array([*names, "other"], object)[places]], attrs)


@makes("SVMClassifier")
def _support_classes(d: Draw, op_type: str) -> Case:
    """Three classes with one or two support vectors each, told apart in pairs."""
    n, c, counts = d.integer(1, 3), d.integer(1, 3), d.integers(3, 1, 2)
    total = sum(counts)
    attrs = {
        "kernel_type": d.one_of("LINEAR", "POLY", "RBF", "SIGMOID"), "kernel_params": [0.5, 1.0, 2.0],
        "support_vectors": _floats(d, c * total), "coefficients": _floats(d, 2 * total), "vectors_per_class": counts,
        "rho": _floats(d, 3), "classlabels_ints": [10, 20, 30], "post_transform": None,
    }  # fmt: skip
    return _case(op_type, [d.array((n, c))], attrs, 2)
