"""Operators of ``ai.onnx.ml`` in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.backend.host.strings import text_array
from opbuild.graph.types import Array, Node

ML = "ai.onnx.ml"


@implements("ArrayFeatureExtractor", domain=ML)
def _extract(node: Node, inputs: Any) -> Sequence[Array]:
    """Take elements of the last dimension; what is taken of a vector is a row."""
    x, places = inputs
    return (np.take(x if x.ndim > 1 else x.reshape(1, -1), places.reshape(-1), -1),)


@implements("Binarizer", domain=ML)
def _binarize(node: Node, inputs: Any) -> Sequence[Array]:
    x = inputs[0]
    return ((x > x.dtype.type(node.attrs.get("threshold", 0.0))).astype(x.dtype),)


_NAN = object()
"""What stands for every NaN among the keys of a dictionary, where none equals another."""


@implements("LabelEncoder", domain=ML)
def _encode(node: Node, inputs: Any) -> Sequence[Array]:
    x, attrs = inputs[0], node.attrs
    keys = next(attrs[name] for name in ("keys_tensor", "keys_strings", "keys_int64s", "keys_floats") if name in attrs)
    values, other, dtype = _values(attrs)
    known = dict(zip(map(_key, np.asarray(keys, _kept(keys)).flat), values, strict=True))
    found = [known.get(_key(each), other) for each in x.flat]
    if dtype == np.dtype(object):
        return (text_array(found, x.shape),)
    return (np.array(found, dtype).reshape(x.shape),)


def _kept(keys: Any) -> Any:
    """Return the type of keys in which they are compared: a float attribute holds float32."""
    if isinstance(keys, np.ndarray):
        return keys.dtype
    return object if isinstance(keys[0], (str, bytes)) else np.float32 if isinstance(keys[0], float) else np.int64


def _values(attrs: Any) -> tuple[list[Any], Any, np.dtype[Any]]:
    """Return the values, what stands for those without a key, and the element type."""
    if "values_tensor" in attrs:
        values = attrs["values_tensor"]
        standard: Any = "_Unused" if values.dtype == object else -1 if values.dtype.kind in "iu" else -0.0
        other = attrs["default_tensor"].reshape(-1)[0] if "default_tensor" in attrs else standard
        return list(values.reshape(-1)), other, values.dtype
    if "values_strings" in attrs:
        return [*map(_text, attrs["values_strings"])], _text(attrs.get("default_string", "_Unused")), np.dtype(object)
    if "values_int64s" in attrs:
        return list(attrs["values_int64s"]), attrs.get("default_int64", -1), np.dtype(np.int64)
    return list(attrs["values_floats"]), attrs.get("default_float", -0.0), np.dtype(np.float32)


def _key(value: Any) -> Any:
    value = _text(value) if isinstance(value, bytes) else value
    return _NAN if not isinstance(value, str) and np.isnan(value) else value


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@implements("CategoryMapper", domain=ML)
def _map(node: Node, inputs: Any) -> Sequence[Array]:
    """Turn names to numbers, or numbers to names."""
    x, attrs = inputs[0], node.attrs
    names, numbers = [*map(_text, attrs["cats_strings"])], [int(each) for each in attrs["cats_int64s"]]
    if x.dtype == object:
        known = dict(zip(names, numbers, strict=True))
        other = int(attrs.get("default_int64", -1))
        return (np.array([known.get(each, other) for each in x.flat], np.int64).reshape(x.shape),)
    named, unknown = dict(zip(numbers, names, strict=True)), _text(attrs.get("default_string", "_Unused"))
    return (text_array([named.get(int(each), unknown) for each in x.flat], x.shape),)


# -- rows of features, whose results are float32 -----------------------------------------------------------------------


@implements("Normalizer", domain=ML)
def _normalize(node: Node, inputs: Any) -> Sequence[Array]:
    """Divide rows by their norm, or their greatest element; what would be divided by 0 stays."""
    x = inputs[0].astype(np.float32)
    norms: dict[str, Any] = {
        "MAX": lambda x: x.max(-1, keepdims=True, initial=-np.inf),
        "L1": lambda x: np.abs(x).sum(-1, keepdims=True),
        "L2": lambda x: np.sqrt(np.square(x).sum(-1, keepdims=True)),
    }
    norm = norms[node.text("norm", "MAX")](x)
    return (np.where(norm != 0, x / norm, x).astype(np.float32),)


@implements("Scaler", domain=ML)
def _scale(node: Node, inputs: Any) -> Sequence[Array]:
    offset, scale = (np.array(node.attrs[name], np.float32) for name in ("offset", "scale"))
    return (((inputs[0].astype(np.float32) - offset) * scale).astype(np.float32),)


@implements("FeatureVectorizer", domain=ML)
def _join(node: Node, inputs: Any) -> Sequence[Array]:
    """Join inputs to rows; each is cut or filled with zeros to the width that is stated for it."""
    rows = []
    for x, width in zip(inputs, node.attrs.get("inputdimensions") or [x.shape[-1] for x in inputs], strict=True):
        cut = (x.reshape(1, -1) if x.ndim == 1 else x).astype(np.float32)[:, : int(width)]
        rows.append(np.pad(cut, ((0, 0), (0, int(width) - cut.shape[1]))))
    return (np.concatenate(rows, 1),)


@implements("LinearRegressor", domain=ML)
def _regress(node: Node, inputs: Any) -> Sequence[Array]:
    if node.text("post_transform", "NONE") != "NONE":
        raise ValueError(f"post_transform {node.text('post_transform', '')} is not supported")
    weights = np.array(node.attrs["coefficients"], np.float32).reshape(int(node.attrs.get("targets", 1)), -1)
    found = inputs[0].astype(np.float32) @ weights.T
    return ((found + np.array(node.attrs.get("intercepts") or 0, np.float32)).astype(np.float32),)
