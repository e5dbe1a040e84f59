"""Looking into an ONNX model without building it: which nodes cannot be read, and the whole model as JSON values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from opbuild.errors import ModelError
from opbuild.frontend import onnx_node
from opbuild.frontend.onnx_messages import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto
from opbuild.frontend.onnx_model import only_own_errors
from opbuild.frontend.onnx_read import DataFiles, Source, opsets, read_model, to_array
from opbuild.platform.records import NamedTuple

MOST_VALUES = 16
"""Elements of a tensor whose values are shown; of larger ones type and shape are."""


class NodeCheck(NamedTuple):
    """One node of a model.

    Attributes:
        name: Its name, or one made of its type and position.
        op_type: Its operator's type.
        fits: Whether it can be built.
        remark: What is wrong with it, or why no kernel serves it; empty if one does.
    """

    name: str
    op_type: str
    fits: bool = True
    remark: str = ""


def check_nodes(source: Source) -> tuple[NodeCheck, ...]:
    """Return every node of a model's graph, with its problem.

    Nodes that call one of the model's own functions are right: they are replaced by the function's nodes.

    Raises:
        ModelError: If the model cannot be read.
    """
    with only_own_errors():
        model, _, _ = read_model(source)
        own = {(function.domain, function.name) for function in model.functions}
        versions = opsets(model)
        return tuple(_check(proto, index, versions, own) for index, proto in enumerate(model.graph.node))


def _check(proto: NodeProto, index: int, versions: Mapping[str, int], own: set[tuple[str, str]]) -> NodeCheck:
    name = onnx_node.describe(proto, index)
    try:
        if (proto.domain, proto.op_type) not in own:
            onnx_node.check_node(proto, name, versions)
    except ModelError as error:
        return NodeCheck(name, proto.op_type, False, error.message)
    return NodeCheck(name, proto.op_type)


def describe_model(source: Source) -> dict[str, Any]:
    """Return a model as JSON values, for people: large tensors are shown by their type and shape.

    Raises:
        ModelError: If the model cannot be read.
    """
    with only_own_errors():
        model, files, name = read_model(source)
        return {
            "name": name,
            "ir_version": model.ir_version,
            "producer": f"{model.producer_name} {model.producer_version}".strip(),
            "opsets": opsets(model),
            **_graph(model.graph, files),
            "functions": [f"{function.domain}.{function.name}" for function in model.functions],
        }


def _graph(graph: GraphProto, files: DataFiles) -> dict[str, Any]:
    known = {tensor.name for tensor in graph.initializer}
    return {
        "inputs": [_value(value) for value in graph.input if value.name not in known],
        "outputs": [_value(value) for value in graph.output],
        "constants": [{"name": tensor.name, **_tensor(tensor, files)} for tensor in graph.initializer],
        "nodes": [_node(proto, index, files) for index, proto in enumerate(graph.node)],
    }


def _value(value: ValueInfoProto) -> dict[str, Any]:
    tensor = value.type.tensor_type
    extents = [dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in tensor.shape.dim]
    shape = extents if tensor.HasField("shape") else None
    return {"name": value.name, "type": _type_name(tensor.elem_type), "shape": shape}


def _node(proto: NodeProto, index: int, files: DataFiles) -> dict[str, Any]:
    return {
        "name": onnx_node.describe(proto, index),
        "op_type": proto.op_type,
        **({"domain": proto.domain} if proto.domain else {}),
        "inputs": list(proto.input),
        "outputs": list(proto.output),
        "attributes": {attribute.name: _attribute(attribute, files) for attribute in proto.attribute},
    }


def _attribute(attribute: AttributeProto, files: DataFiles) -> Any:
    if attribute.type == AttributeProto.GRAPH:
        return _graph(attribute.g, files)
    if attribute.type == AttributeProto.TENSOR:
        return _tensor(attribute.t, files)
    value = onnx_node.attribute_value(attribute)
    if isinstance(value, (bytes, str, int, float)):
        return _plain(value)
    try:
        return [_plain(each) for each in value]
    except TypeError:
        return str(AttributeProto.AttributeType.Name(attribute.type))


def _tensor(tensor: TensorProto, files: DataFiles) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": _type_name(tensor.data_type), "shape": list(tensor.dims)}
    if math.prod(tensor.dims) <= MOST_VALUES:
        try:
            shown["values"] = [_plain(each) for each in np.asarray(to_array(tensor, files)).ravel().tolist()]
        except ModelError as error:
            shown["problem"] = error.message
    return shown


def _plain(value: Any) -> Any:
    """Return a JSON value for an element: text for bytes, and for numbers that JSON does not have."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (str, bool, int, float)) else str(value)


def _type_name(number: int) -> str:
    return TensorProto.DataType.Name(number).lower() if number in TensorProto.DataType.values() else str(number)
