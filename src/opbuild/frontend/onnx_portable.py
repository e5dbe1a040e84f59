"""An ONNX model to a network that binds without onnx, or an error that names every node for which that can not be."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from opbuild.frontend.block import Block, blocks
from opbuild.frontend.onnx_bind import to_block
from opbuild.frontend.onnx_messages import ModelProto
from opbuild.frontend.onnx_read import DataFiles, opsets
from opbuild.frontend.onnx_schemas import newest_opset
from opbuild.frontend.onnx_upgrade import upgrades
from opbuild.frontend.portable import NotPortableError, PortableModel
from opbuild.frontend.rewritten import rewrites
from opbuild.graph import user_operators
from opbuild.graph.passes.infer import has_rule
from opbuild.graph.types import Array, Node

Runs = Callable[[Node], bool]
"""Tells whether a node can be evaluated where onnx is not."""

_CONTROL = frozenset(("If", "Loop", "Scan", "SequenceMap"))


def to_portable(
    proto: ModelProto, files: DataFiles, name: str, inputs: tuple[tuple[str, str], ...], runs: Runs
) -> PortableModel:
    """Return the network of a model.

    Args:
        proto: The model; its functions were inlined.
        files: Where its tensors are.
        name: The network's name.
        inputs: Name and element type of each input, initializers excluded.
        runs: Tells which nodes can be evaluated without onnx.

    Raises:
        NotPortableError: If it has operators of the user, or some that have no shape rule and need onnx to run.
        InvalidModelError: If a node does not fit its schema.
    """
    versions = opsets(proto)
    refused: dict[str, str] = {}
    block = _portable(to_block(proto.graph, files, versions), runs, refused)
    if refused:
        raise NotPortableError.of(refused)
    opset = newest_opset()
    return PortableModel(name, inputs, block, versions.get("", opset), opset)


def _portable(block: Block, runs: Runs, refused: dict[str, str]) -> Block:
    """Return a block whose constants were read, and whose nodes have no protobuf; ``refused`` takes those that can not.

    Constants that are nodes become tensors, and text, which no kernel reads, becomes nodes.
    """
    tensors: dict[str, Array] = {name: read() for name, read in block.tensors.items()}
    text = {name: array for name, array in tensors.items() if array.dtype == object}
    nodes = [Node("Constant", (), (name,), {"value": array}, name) for name, array in text.items()]
    for node in block.nodes:
        value = node.attrs.get("value")
        is_array = node.op_type == "Constant" and isinstance(value, np.ndarray) and node.outputs[0] not in tensors
        if is_array and value is not None and value.dtype != object:
            tensors[node.outputs[0]] = value
            continue
        if why := _why_not(node, runs):
            refused[node.name] = f"{node.op_type}: {why}"
        nodes.append(node.with_(proto=None, attrs=_attributes(node, runs, refused)))
    kept = {name: partial(_itself, array) for name, array in tensors.items() if name not in text}
    return Block(tuple(nodes), kept, block.inputs, block.outputs)


def _attributes(node: Node, runs: Runs, refused: dict[str, str]) -> dict[str, object]:
    """Return a node's attributes, but for the type that an Optional declares, a message of protobuf."""
    return {
        name: _portable(value, runs, refused) if isinstance(value, Block) else value
        for name, value in node.attrs.items()
        if not hasattr(value, "SerializeToString")
    }


def _why_not(node: Node, runs: Runs) -> str:
    """Return why a node can not be bound without onnx; empty if it can."""
    if user_operators.find(node.domain, node.op_type) is not None:
        return "defined in this process only"
    if any(blocks(node)):
        is_control = node.op_type in _CONTROL and not node.domain
        return "" if is_control else "its graphs are taken by the onnx package"
    known = node.op_type == "Constant" or has_rule(node.domain, node.op_type) or runs(node)
    return "" if known or upgrades(node) or rewrites(node.domain, node.op_type) else "no shape rule"


def _itself(array: Array) -> Array:
    return array
