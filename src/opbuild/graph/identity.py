"""The identity of a graph: one digest for all that decides its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from opbuild.graph.types import Graph, Node
from opbuild.platform.digest import blake3_of
from opbuild.text.canonical import canonical_json


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
