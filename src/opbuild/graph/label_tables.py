"""The dictionary of a LabelEncoder as keys and as a table of values, and the facts known of maps."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.errors import InvalidModelError
from opbuild.graph.types import Array, Node
from opbuild.text.plural import counted

MAPPED = "mapped_type"
"""The attribute of a node that reads a map of the network's: the element type of the map's values."""

_KINDS = {"strings": "object", "int64s": "int64", "floats": "float32"}
_DEFAULTS: dict[str, tuple[str, Any]] = {
    "object": ("default_string", "_Unused"), "int64": ("default_int64", -1), "float32": ("default_float", -0.0)
}  # fmt: skip
"""By the type of the values, the attribute that has what stands for those without a key, and what it is by default."""


def label_table(node: Node, dtype: str) -> tuple[Array, Array]:
    """Return the keys, and a table: the value for those without a key, then the value of each key.

    The node is a LabelEncoder of any operator set; its input's element type is ``object`` for text.

    Raises:
        InvalidModelError: If it lacks keys or values, or has more of one than of the other.
    """
    attrs = node.attrs
    if "classes_strings" in attrs:  # operator set 1: names count from 0 on
        names = as_texts(attrs["classes_strings"])
        numbers = np.arange(len(names))
        keys, values = (names, numbers) if dtype == "object" else (numbers, names)
    else:
        keys, values = _column(node, "keys"), _column(node, "values")
    if len(keys) != len(values):
        raise InvalidModelError(
            f"LabelEncoder node {node.name!r} has {counted(len(keys), 'key')} and {counted(len(values), 'value')}",
            "export the model again",
        )
    return keys, np.concatenate([_default(node, values.dtype), values])


def as_texts(values: Any) -> Array:
    """Return texts, which models may hold as bytes, as an array."""
    found = np.empty(len(values), object)
    found[:] = [each.decode() if isinstance(each, bytes) else str(each) for each in values]
    return found


def _column(node: Node, side: str) -> Array:
    if f"{side}_tensor" in node.attrs:
        return np.asarray(node.attrs[f"{side}_tensor"]).reshape(-1)
    for name, dtype in _KINDS.items():
        values = node.attrs.get(f"{side}_{name}", ())
        if len(values):
            return as_texts(values) if dtype == "object" else np.array(values, dtype)
    raise InvalidModelError(f"LabelEncoder node {node.name!r} has no {side}", "export the model again")


def _default(node: Node, dtype: np.dtype[Any]) -> Array:
    if "default_tensor" in node.attrs:
        return np.asarray(node.attrs["default_tensor"]).reshape(-1)[:1].astype(dtype)
    kind = "float32" if dtype.kind == "f" else "int64" if dtype.kind in "iu" else "object"
    name, standard = _DEFAULTS[kind]
    value = node.attrs.get(name, standard)
    return as_texts([value]) if kind == "object" else np.array([value], dtype)
