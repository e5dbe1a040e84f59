"""An ONNX model to a network that binds without onnx, or an error that names every node for which that can not be."""

from __future__ import annotations

import numpy as np
import onnx

from opbuild.frontend import onnx_node
from opbuild.frontend.microsoft import rewrites
from opbuild.frontend.onnx_read import DataFiles, opsets, to_array
from opbuild.frontend.onnx_upgrade import upgrades
from opbuild.frontend.portable import Declared, NotPortableError, PortableModel
from opbuild.graph import user_operators
from opbuild.graph.passes.infer import has_rule
from opbuild.graph.types import Array, Node


def _is_written(node: Node) -> bool:
    """Return whether other nodes may take its place, which have shape rules."""
    return upgrades(node) or rewrites(node.domain, node.op_type)


def to_portable(
    proto: onnx.ModelProto, files: DataFiles, name: str, inputs: tuple[Declared, ...], outputs: tuple[str, ...]
) -> PortableModel:
    """Return the network of a model.

    Args:
        proto: The model; its functions were inlined.
        files: Where its tensors are.
        name: The network's name.
        inputs: Its inputs, initializers excluded.
        outputs: Names of its outputs.

    Raises:
        NotPortableError: If it has control flow, operators of the user, or operators without a shape rule.
        InvalidModelError: If a node does not fit its schema.
    """
    versions = opsets(proto)
    tensors: dict[str, Array] = {each.name: to_array(each, files) for each in proto.graph.initializer}
    nodes: list[Node] = []
    refused: dict[str, str] = {}
    for index, each in enumerate(proto.graph.node):
        label = onnx_node.describe(each, index)
        onnx_node.check_node(each, label, versions)
        node = onnx_node.make_node(each, label, files).with_(proto=None)
        value = node.attrs.get("value")
        if node.op_type == "Constant" and isinstance(value, np.ndarray) and node.outputs[0] not in tensors:
            tensors[node.outputs[0]] = value
            continue
        if onnx_node.has_graphs(each):
            refused[label] = f"{node.op_type}: control flow"
        elif user_operators.find(node.domain, node.op_type) is not None:
            refused[label] = f"{node.op_type}: defined in this process only"
        elif not (node.op_type == "Constant" or has_rule(node.domain, node.op_type) or _is_written(node)):
            refused[label] = f"{node.op_type}: no shape rule"
        nodes.append(node)
    if refused:
        raise NotPortableError.of(refused)
    opset = onnx.defs.onnx_opset_version()
    return PortableModel(name, inputs, outputs, tuple(nodes), tensors, versions.get("", opset), opset)
