"""Operators on maps, which are dictionaries of Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any

import numpy as np

from opbuild.backend.host.ml import ML
from opbuild.backend.host.movement import implements
from opbuild.backend.host.strings import text_array
from opbuild.graph.tables import MAPPED, as_texts
from opbuild.graph.types import Array, Node


@implements("ZipMap", domain=ML)
def _zip(node: Node, inputs: Any) -> Sequence[Any]:
    """Make a dictionary of each row, from labels in order to the row's numbers."""
    x, attrs = inputs[0], node.attrs
    texts = tuple(attrs.get("classlabels_strings", ()))
    keys, order = _ordered(texts or tuple(map(int, attrs["classlabels_int64s"])))
    if x.ndim not in (1, 2) or x.shape[-1] != len(keys):
        raise ValueError(f"{len(keys)} labels name rows of {x.shape[-1] if x.ndim else 1} numbers")
    x = x.reshape(-1, len(keys))
    return (_dictionaries(keys, x if order is None else x[:, order]),)


@lru_cache(maxsize=64)
def _ordered(given: tuple[Any, ...]) -> tuple[list[Any], list[int] | None]:
    """Return labels in order, and where each stands among those given; None: there, too, they are in order."""
    labels: list[Any] = list(given) if isinstance(given[0], int) else as_texts(given).tolist()
    order = sorted(range(len(labels)), key=labels.__getitem__)
    keys = [labels[index] for index in order]
    return keys, None if keys == labels else order


def _dictionaries(keys: Sequence[Any], rows: Array) -> list[dict[Any, float]]:
    """Return the dictionary of each row; of two and three keys they are made in half the time when these are spelt."""
    if len(keys) == 2:
        a, b = keys
        return [{a: one, b: two} for one, two in zip(*rows.T.tolist(), strict=True)]
    if len(keys) == 3:
        a, b, c = keys
        return [{a: one, b: two, c: three} for one, two, three in zip(*rows.T.tolist(), strict=True)]
    return list(map(dict, map(zip, repeat(keys), rows.tolist())))


@implements("DictVectorizer", domain=ML)
def _vectorize(node: Node, inputs: Any) -> Sequence[Array]:
    """Give the values of the keys of a vocabulary; keys that a map lacks are 0, or an empty text."""
    given, attrs = _map(inputs[0]), node.attrs
    texts = attrs.get("string_vocabulary", ())
    keys: list[Any] = as_texts(texts).tolist() if len(texts) else [int(e) for e in attrs.get("int64_vocabulary", ())]
    dtype = attrs.get(MAPPED) or ("object" if any(isinstance(each, str) for each in given.values()) else "float32")
    if dtype == "object":
        return (text_array([str(given.get(key, "")) for key in keys], (1, len(keys))),)
    return (np.array([[given.get(key, 0) for key in keys]], dtype),)


def _integer(value: Any) -> int:
    return int(value) if isinstance(value, str) and value.strip().lstrip("+-").isdecimal() else int(float(value))


_FILLS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "TO_FLOAT": (np.float32, float),
    "TO_INT64": (np.int64, _integer),
    "TO_STRING": (object, lambda value: value if isinstance(value, str) else f"{np.float32(value):f}"),
}
"""By what values become: their element type, and how."""

NO_TEXT = "0.f"
"""What ONNX Runtime puts in the place of a text that a sparse map lacks."""


@implements("CastMap", domain=ML)
def _cast(node: Node, inputs: Any) -> Sequence[Array]:
    """Give the values of a map in the order of its keys; of a sparse one those of all keys up to a greatest one."""
    given = _map(inputs[0])
    dtype, convert = _FILLS[node.text("cast_to", "TO_FLOAT")]
    values = {int(key): convert(value) for key, value in given.items()}
    if node.text("map_form", "DENSE") == "DENSE":
        row = [values[key] for key in sorted(values)]
    else:
        if min(values, default=0) < 0:
            raise ValueError(f"the key {min(values)} is negative")
        row = [values.get(key, NO_TEXT if dtype is object else 0) for key in range(int(node.attrs.get("max_map", 1)))]
    return (text_array(row, (1, len(row))) if dtype is object else np.array([row], dtype),)


def _map(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"its input is a {type(value).__name__}, not a dictionary")
    return value
