"""Nodes as JSON, exactly, of which reading runs nothing; and graphs' identity: a digest of all that decides results."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.graph.types import DTYPES, Array, Graph, Node
from opbuild.platform.digest import blake3_of
from opbuild.text.canonical import canonical_json

BESIDE_PROTO = frozenset(("captures", "opset"))
"""What the front end adds to a node with graphs: names of the values that they read, and their operator set."""


_TEXTS, _LISTS = ("op_type", "domain", "name"), ("inputs", "outputs")


def node_to_json(node: Node) -> dict[str, Any]:
    """Return a node as JSON values; of one that has its serialised ``NodeProto``, the attributes that are not in it.

    Raises:
        ValueError: If it has an attribute that JSON cannot hold.
    """
    stored = node.attrs if node.proto is None else {name: node.attrs[name] for name in BESIDE_PROTO & {*node.attrs}}
    return {
        **{name: getattr(node, name) for name in _TEXTS},
        **{name: list(getattr(node, name)) for name in _LISTS},
        "attrs": {name: _attribute_to_json(value) for name, value in stored.items()},
        "proto": None if node.proto is None else base64.b64encode(node.proto).decode("ascii"),
    }


def node_from_json(parts: Any) -> Node:
    """Return the node that ``node_to_json`` wrote.

    Raises:
        KeyError, TypeError, AttributeError, ValueError: If it is not one.
    """
    fields: dict[str, Any] = {name: str(parts[name]) for name in _TEXTS}
    fields |= {name: tuple(map(str, parts[name])) for name in _LISTS}
    return Node(
        **fields,
        attrs={str(name): _attribute_from_json(value) for name, value in parts["attrs"].items()},
        proto=None if parts["proto"] is None else base64.b64decode(parts["proto"], validate=True),
    )


def _attribute_to_json(value: Any) -> Any:
    if isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}  # exact, and JSON has neither infinity nor NaN
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode("ascii")}
    if isinstance(value, (tuple, list)):
        return [_attribute_to_json(item) for item in value]
    if isinstance(value, np.ndarray):
        return array_to_json(value)
    raise ValueError(f"an attribute of type {type(value).__name__} cannot be stored")


def _attribute_from_json(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_attribute_from_json(item) for item in value)
    if not isinstance(value, dict):
        return value
    if "float" in value:
        return float.fromhex(value["float"])
    if "bytes" in value:
        return base64.b64decode(value["bytes"], validate=True)
    return array_from_json(value)


def array_to_json(array: Array) -> dict[str, Any]:
    """Return an array as JSON values, exactly.

    Raises:
        ValueError: If JSON cannot hold it.
    """
    if array.dtype == object and all(isinstance(each, str) for each in array.flat):
        return {"text": array.reshape(-1).tolist(), "shape": list(array.shape)}
    if array.dtype.name not in DTYPES:
        raise ValueError(f"an array of type {array.dtype.name} cannot be stored")
    data = base64.b64encode(array.tobytes()).decode("ascii")
    return {"array": data, "dtype": array.dtype.name, "shape": list(array.shape)}


def array_from_json(parts: Any) -> Array:
    """Return the array that ``array_to_json`` wrote.

    Raises:
        KeyError, TypeError, ValueError: If it is none.
    """
    if "text" in parts:
        found = np.empty(len(parts["text"]), object)
        found[:] = [str(each) for each in parts["text"]]
        return found.reshape(parts["shape"])
    if parts["dtype"] not in DTYPES:
        raise ValueError(f"an attribute has type {parts['dtype']!r}")
    data = np.frombuffer(base64.b64decode(parts["array"], validate=True), numpy_dtype(parts["dtype"]))
    return data.reshape(parts["shape"]).copy()


def graph_digest(graph: Graph) -> str:
    """Return the BLAKE3 digest of a graph's nodes, types and constants, as 64 hexadecimal digits.

    Raises:
        ValueError: If an attribute is of a type that has no canonical form; such a graph has no stored image.
    """
    parts = {
        "name": graph.name,
        "opset": graph.opset,
        "nodes": [_node(node) for node in graph.nodes],
        "inputs": list(graph.inputs),
        "outputs": list(graph.outputs),
        "types": {name: [type_.dtype, list(type_.shape)] for name, type_ in graph.types.items()},
        "constants": {name: _plain(array) for name, array in graph.constants.items()},
        **({"updates": _plain(graph.updates)} if graph.updates else {}),
    }
    return blake3_of(canonical_json(parts).encode())


def _node(node: Node) -> list[Any]:
    proto = None if node.proto is None else blake3_of(node.proto)
    inputs, outputs = list(node.inputs), list(node.outputs)
    return [node.domain, node.op_type, node.name, inputs, outputs, _plain(node.attrs), proto, *node.made_of]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return ["float", value.hex()]
    if isinstance(value, bytes):
        return ["bytes", blake3_of(value)]
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.ascontiguousarray(value)
        if array.dtype == object:  # text
            return ["text", list(np.shape(value)), array.reshape(-1).tolist()]
        return ["array", array.dtype.str, list(np.shape(value)), blake3_of(array.reshape(-1).view(np.uint8).data)]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise ValueError(f"an attribute of type {type(value).__name__} has no canonical form")
