"""Operators of ``ai.onnx.ml`` that read or make text, in numpy; ``frontend.learned`` has those on numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.backend.host.strings import text_array
from opbuild.graph.tables import as_texts, label_table
from opbuild.graph.types import Array, Node

ML = "ai.onnx.ml"


_NAN = object()
"""What stands for every NaN among the keys of a dictionary, where none equals another."""


@implements("LabelEncoder", domain=ML)
def _encode(node: Node, inputs: Any) -> Sequence[Array]:
    x = inputs[0]
    keys, table = label_table(node, x.dtype.name)
    if object not in (x.dtype, keys.dtype):
        return (table[_places(x, keys)].reshape(x.shape),)
    known = {key: place for place, key in enumerate(map(_key, keys), 1)}
    return (table[[known.get(_key(each), 0) for each in x.flat]].reshape(x.shape),)


def _places(x: Array, keys: Array) -> Array:
    """Return the place behind the last key that each number equals, 0 if there is none."""
    order = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys, x, "right", sorter=order) - 1
    found = keys[order][place]
    is_known = (place >= 0) & ((found == x) | (np.isnan(found) & np.isnan(x)))
    return np.where(is_known, order[place] + 1, 0)


def _key(value: Any) -> Any:
    return _NAN if not isinstance(value, str) and np.isnan(value) else value


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@implements("OneHotEncoder", domain=ML)
def _one_hot(node: Node, inputs: Any) -> Sequence[Array]:
    """Tell of each element which category it is; of equal categories the last counts."""
    x, attrs = inputs[0], node.attrs
    if x.dtype == object:
        categories = as_texts(attrs.get("cats_strings", ()))
        place_of = {each: place for place, each in enumerate(categories)}
        places = np.array([place_of.get(each, -1) for each in x.flat], np.int64).reshape(x.shape)
        found = places[..., None] == np.arange(len(categories))
    else:
        categories = np.array(attrs.get("cats_int64s", ()), np.int64)
        found = x.astype(np.int64)[..., None] == categories
        if len(np.unique(categories)) < len(categories):
            found &= [each not in categories[place + 1 :] for place, each in enumerate(categories)]
    if not attrs.get("zeros", 1) and not (known := found.any(-1)).all():
        raise ValueError(f"{x[~known].tolist()[0]!r} is none of its categories")
    return (found.astype(np.float32),)


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
