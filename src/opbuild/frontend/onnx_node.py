"""One ``NodeProto`` to a ``Node``: its attributes as plain values, checked against the operator's schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import onnx
from onnx import AttributeProto, GraphProto, NodeProto

from opbuild.errors import InvalidModelError, UnsupportedOperatorError
from opbuild.frontend.onnx_read import DataFiles, to_array
from opbuild.graph.types import Node
from opbuild.kernel import user_operators


@dataclass(frozen=True)
class _Signature:
    """What a schema says about calls of its operator."""

    inputs: tuple[int, int]
    outputs: tuple[int, int]
    attributes: frozenset[str]
    required: frozenset[str]


@lru_cache(maxsize=4096)
def _signature(op_type: str, version: int, domain: str) -> _Signature | None:
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    return _Signature(
        (schema.min_input, schema.max_input),
        (schema.min_output, schema.max_output),
        frozenset(schema.attributes),
        frozenset(name for name, attribute in schema.attributes.items() if attribute.required),
    )


def newest_opset() -> int:
    """Return the newest version of ONNX's operator set that the onnx package knows."""
    return onnx.defs.onnx_opset_version()


def describe(proto: NodeProto, index: int) -> str:
    """Return a node's name, or one made of its type and position."""
    return proto.name or f"{proto.op_type}_{index}"


def check_node(proto: NodeProto, name: str, opsets: Mapping[str, int]) -> None:
    """Check that an operator exists and is called as its schema says.

    Raises:
        UnsupportedOperatorError: If no operator set that the model imports has the operator.
        InvalidModelError: If inputs, outputs or attributes do not fit the schema.
    """
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    if user_operators.find(domain, proto.op_type) is not None:
        return
    version = opsets.get(domain, 0)
    found = _signature(proto.op_type, version, domain) if version else None
    if found is None:
        shown = f"domain {domain!r}" if domain else "ONNX's own domain"
        raise UnsupportedOperatorError(
            f"node {name!r}: operator {proto.op_type!r} does not exist in {shown}, operator set {version or 'missing'}",
            "check its spelling and the model's opset_import, replace it by standard operators, or define it with "
            "@opbuild.operator",
        )
    where = f"{proto.op_type} node {name!r}"
    for kind, count, (least, most) in (
        ("inputs", len(proto.input), found.inputs),
        ("outputs", len(proto.output), found.outputs),
    ):
        if not least <= count <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise InvalidModelError(f"{where} has {count} {kind}, not {wanted}", "export the model again")
    given = {attribute.name for attribute in proto.attribute}
    for wrong in sorted(given - found.attributes):
        raise InvalidModelError(
            f"{where} has the attribute {wrong!r}, which operator set {version} does not define",
            f"it defines {', '.join(sorted(found.attributes)) or 'none'}",
        )
    for missing in sorted(found.required - given):
        raise InvalidModelError(f"{where} lacks the attribute {missing!r}", "export the model again")


def read_attributes(proto: NodeProto, files: DataFiles) -> dict[str, Any]:
    """Return a node's attributes as ints, floats, strings, tuples of them, arrays and graphs."""
    return {attribute.name: _value(attribute, files) for attribute in proto.attribute}


def _value(attribute: AttributeProto, files: DataFiles) -> Any:
    kind = attribute.type
    if kind == AttributeProto.INT:
        return int(attribute.i)
    if kind == AttributeProto.INTS:
        return tuple(attribute.ints)
    if kind == AttributeProto.FLOAT:
        return float(attribute.f)
    if kind == AttributeProto.FLOATS:
        return tuple(attribute.floats)
    if kind == AttributeProto.STRING:
        return _text(attribute.s)
    if kind == AttributeProto.STRINGS:
        return tuple(_text(item) for item in attribute.strings)
    if kind == AttributeProto.TENSOR:
        return to_array(attribute.t, files)
    if kind == AttributeProto.GRAPH:
        return attribute.g
    return onnx.helper.get_attribute_value(attribute)


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def subgraphs(proto: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs among a node's attributes."""
    for attribute in proto.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def captures(proto: NodeProto) -> tuple[str, ...]:
    """Return the names that a node's graphs read from outside, in order of first use."""
    found: dict[str, None] = {}
    for graph in subgraphs(proto):
        found.update(dict.fromkeys(_free_names(graph)))
    return tuple(found)


def _free_names(graph: GraphProto) -> Iterator[str]:
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        yield from (name for name in (*node.input, *captures(node)) if name and name not in own)
        own.update(node.output)
    yield from (value.name for value in graph.output if value.name not in own)


def make_node(proto: NodeProto, name: str, attrs: Mapping[str, Any], inputs: tuple[str, ...]) -> Node:
    """Return the Node of a ``NodeProto`` whose inputs were resolved."""
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    has_graph = any(True for _ in subgraphs(proto))
    return Node(
        proto.op_type,
        inputs,
        tuple(proto.output),
        attrs,
        name,
        domain,
        proto.SerializeToString() if has_graph or domain else None,
    )
