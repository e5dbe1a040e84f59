"""The types of one node by itself, through the onnx package."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, shape_inference

from opbuild.errors import UnsupportedOperatorError
from opbuild.frontend.onnx_schemas import newest_of
from opbuild.frontend.open_values import Types, Values
from opbuild.graph.extents import SymbolicExtent, example_value
from opbuild.graph.shape_rules import ONNX_DTYPES, ONNX_NUMBERS, NoTensorError, ShapeCall, UnknownTypeError
from opbuild.graph.types import Node, TensorType

_VALUE_LIMIT = 65536


def open_type_proto(kind: TensorType) -> onnx.TypeProto:
    """Return the ``TypeProto`` of a type, which does not say how large open extents are."""
    shape = [None if isinstance(extent, SymbolicExtent) else extent for extent in kind.shape]
    found: onnx.TypeProto = onnx.helper.make_tensor_type_proto(ONNX_NUMBERS[kind.dtype], shape)
    return found


def to_proto(node: Node) -> onnx.NodeProto:
    """Return the ``NodeProto`` of a node, with its formal inputs only."""
    if node.proto is not None:
        proto: onnx.NodeProto = onnx.NodeProto.FromString(node.proto)
        return proto
    attrs: dict[str, Any] = {
        name: numpy_helper.from_array(value, name) if isinstance(value, np.ndarray) else value
        for name, value in node.attrs.items()
        if not (isinstance(value, tuple) and not value)
    }
    return onnx.helper.make_node(node.op_type, node.inputs, node.outputs, node.name, domain=node.domain, **attrs)


def infer_single(node: Node, types: Types, constants: Values, opset: int) -> tuple[TensorType, ...]:
    """Return the types of a node's outputs by onnx's shape inference.

    Inputs beyond those in the node's own proto are what its graphs read from outside.

    Raises:
        UnknownTypeError: If they are not tensors of one static shape.
        UnsupportedOperatorError: If onnx cannot tell them.
        DTypeError: If the operator is not defined for the type of an input.
    """
    _require_allowed(node, types, constants)
    proto = to_proto(node)
    _add_defaults(proto, opset)
    names = [*proto.input, *node.attrs.get("captures", ())]
    values, initializers = [], []
    for name, each, constant in zip(names, types, constants, strict=True):
        if each is None:
            continue
        shape = tuple(map(example_value, each.shape))
        values.append(onnx.helper.make_tensor_value_info(name, ONNX_NUMBERS[each.dtype], shape))
        if constant is not None and constant.size <= _VALUE_LIMIT:
            initializers.append(numpy_helper.from_array(np.asarray(constant, order="C"), name))
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in proto.output if name]
    graph = onnx.helper.make_graph([proto], "single", values, outputs, initializers)
    opsets = [onnx.helper.make_opsetid("", opset)]
    if node.domain:
        opsets.append(onnx.helper.make_opsetid(node.domain, newest_of(node.domain)))
    model = onnx.helper.make_model(graph, opset_imports=opsets)
    try:
        found = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except Exception as error:
        raise UnsupportedOperatorError(
            f"{node.op_type} node {node.name!r}: onnx cannot infer its types: {' '.join(str(error).split())[:300]}",
            "check the node's inputs and attributes",
        ) from error
    by_name = {value.name: value.type for value in found.graph.output}
    results = tuple(_type(node, by_name[name]) if name else TensorType("float32", ()) for name in proto.output)
    for each in types:  # what is known is known of the size at hand alone; that a type is not known, at any size
        tuple(map(int, each.shape if each else ()))
    return results


def _require_allowed(node: Node, types: Types, constants: Values) -> None:
    if node.domain or not onnx.defs.has(node.op_type, ""):
        return
    schema = onnx.defs.get_schema(node.op_type, "")
    allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    for port, each in zip(schema.inputs, types, strict=False):
        name = each and onnx.TensorProto.DataType.Name(ONNX_NUMBERS[each.dtype]).lower()
        if each is not None and f"tensor({name})" not in allowed.get(port.type_str, [port.type_str]):
            ShapeCall(node, types, constants).fail_dtype(f"it is not defined for {each.dtype}")


def _add_defaults(proto: onnx.NodeProto, opset: int) -> None:
    """Add the attributes that a node leaves to their defaults; for some onnx's inference takes others (STFT)."""
    if proto.domain or not onnx.defs.has(proto.op_type, opset, ""):
        return
    given = {attribute.name for attribute in proto.attribute}
    for name, attribute in onnx.defs.get_schema(proto.op_type, opset, "").attributes.items():
        if name not in given and attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
            proto.attribute.append(attribute.default_value)


def _type(node: Node, proto: onnx.TypeProto) -> TensorType:
    where = f"{node.op_type} node {node.name!r}"
    if proto.WhichOneof("value") not in ("tensor_type", None):
        kind = str(proto.WhichOneof("value")).removesuffix("_type")
        result = "an optional value" if kind == "optional" else f"a {kind}"
        problem = f"{where} makes {result}, and opbuild knows tensors only"
        raise NoTensorError(problem, "replace sequences, optionals and maps by tensors")
    tensor = proto.tensor_type
    dtype = ONNX_DTYPES.get(tensor.elem_type)
    static = tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim)
    if dtype is None or not static:
        raise UnknownTypeError(
            f"{where}: the shape or the element type of its output is not known when the network is built",
            "only static shapes are supported; replace this node, or make the inputs that decide its shape constants",
        )
    return TensorType(dtype, tuple(dim.dim_value for dim in tensor.shape.dim))
