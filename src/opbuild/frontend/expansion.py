"""Operators that ONNX defines by others: the function of such an operator, as its schema has it for a node's types.

A function of the schema is a body of nodes in an operator set of its own. Some bodies depend on the node: on the types
and ranks of its inputs, and on which of them are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from opbuild.frontend.onnx_messages import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto
from opbuild.frontend.onnx_schemas import newest_of, schema
from opbuild.frontend.own_functions import OWN_FUNCTIONS, own_function
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.platform.records import NamedTuple, dataclass


class HostCalls(NamedTuple):
    """What of a graph no kernel serves.

    Attributes:
        calls: Calls of the host backend.
        foreign: Those of them that onnx's reference evaluator takes, and no implementation of opbuild's own.
    """

    calls: int
    foreign: int


Served = Callable[[Graph], HostCalls]
"""Tells what becomes of a small graph: the front end may not ask lowering itself."""

INEXACT = frozenset(("MeanVarianceNormalization", "GroupNormalization"))
"""Operators that keep their own implementation: their functions take the variance as the difference of two means, which
has few digits where the mean is large."""


@dataclass(frozen=True)
class Body:
    """The function of one node.

    Attributes:
        inputs: The names of its formal inputs.
        outputs: The names of its formal outputs.
        nodes: Its nodes, without references to attributes.
        opsets: The operator sets that they speak.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[NodeProto, ...]
    opsets: Mapping[str, int]


def has_body(node: Node, opset: int) -> bool:
    """Return whether a node's operator is defined by others; ``opset`` is ONNX's own that the node speaks."""
    if (node.domain, node.op_type) in OWN_FUNCTIONS:
        return True
    found = schema(node.op_type, _version(node.domain, opset), node.domain)
    return node.op_type not in INEXACT and found is not None and found.has_function


def body_of(node: Node, types: Sequence[TensorType | None], opset: int) -> Body | None:
    """Return the function of a node for inputs of these types; None if its operator has none for them.

    Args:
        node: A node of an operator that has one.
        types: The type of each formal input, None for an absent one.
        opset: ONNX's operator set that the node speaks.
    """
    from opbuild.frontend.onnx_single import to_proto  # it is onnx that has functions, and most networks need none

    if types and types[0] is not None and types[0].dtype == "float64":
        node = _in_own_digits(node)
    proto, given = to_proto(node), dict[str, AttributeProto]()
    if (node.domain, node.op_type) in OWN_FUNCTIONS:
        function = own_function(node, types)
    elif has_body(node, opset):
        from onnx import defs

        found = defs.get_schema(node.op_type, _version(node.domain, opset), node.domain)
        function, given = _function(found, proto, types), _defaults(found)
    else:
        function = None
    if function is None:
        return None
    given |= {attribute.name: attribute for attribute in (*function.attribute_proto, *proto.attribute)}
    opsets = {("" if each.domain == "ai.onnx" else each.domain): each.version for each in function.opset_import}
    nodes = tuple(_filled(each, given) for each in function.node)
    return Body(tuple(function.input), tuple(function.output), nodes, opsets)


def _in_own_digits(node: Node) -> Node:
    """Return a node of float64 that computes its statistics in that, not in float32, as ONNX Runtime does."""
    return node.with_(attrs={**node.attrs, "stash_type": _FLOAT64}) if node.op_type == "RMSNormalization" else node


_FLOAT64 = 11
"""The number that ONNX has for it."""


def _version(domain: str, opset: int) -> int:
    return newest_of(domain) if domain else opset


def _defaults(schema: Any) -> dict[str, AttributeProto]:
    values = {name: attribute.default_value for name, attribute in schema.attributes.items()}
    return {name: value for name, value in values.items() if value.type != AttributeProto.UNDEFINED}


def _function(schema: Any, proto: NodeProto, types: Sequence[TensorType | None]) -> FunctionProto | None:
    """Return the function in the newest operator set for which the schema has one."""
    from opbuild.frontend.onnx_single import open_type_proto

    if schema.has_context_dependent_function:
        version = max(schema.context_dependent_function_opset_versions)
        kinds = [(TypeProto() if each is None else open_type_proto(each)).SerializeToString() for each in types]
        found = schema.get_context_dependent_function_with_opset_version(version, proto.SerializeToString(), kinds)
    else:
        found = schema.get_function_with_opset_version(max(schema.function_opset_versions))
    function: FunctionProto = FunctionProto.FromString(found)
    return function if function.node else None


def _filled(proto: NodeProto, given: Mapping[str, AttributeProto]) -> NodeProto:
    """Return a node with the values of the attributes that it refers to; one that the caller lacks is left out."""
    if not any(attribute.ref_attr_name or _graphs(attribute) for attribute in proto.attribute):
        return proto
    filled = NodeProto()
    filled.CopyFrom(proto)
    _fill(filled, given)
    return filled


def _fill(proto: NodeProto, given: Mapping[str, AttributeProto]) -> None:
    kept: list[AttributeProto] = []
    for attribute in proto.attribute:
        for graph in _graphs(attribute):
            for inner in graph.node:
                _fill(inner, given)
        if not attribute.ref_attr_name:
            kept.append(attribute)
        elif attribute.ref_attr_name in given:
            value = AttributeProto()
            value.CopyFrom(given[attribute.ref_attr_name])
            value.name = attribute.name
            kept.append(value)
    del proto.attribute[:]
    proto.attribute.extend(kept)


def _graphs(attribute: AttributeProto) -> Iterator[GraphProto]:
    if attribute.type == AttributeProto.GRAPH and not attribute.ref_attr_name:
        yield attribute.g
    yield from attribute.graphs


def with_defaults(model: ModelProto) -> ModelProto:
    """Return a model in which calls of its own functions give all attributes; onnx's inliner knows no defaults."""
    defaults = {(each.domain, each.name, each.overload): each.attribute_proto for each in model.functions}
    if not any(defaults.values()):
        return model
    changed = ModelProto()
    changed.CopyFrom(model)
    for nodes in (changed.graph.node, *(function.node for function in changed.functions)):
        _give_defaults(nodes, defaults)
    return changed


def with_common_versions(model: ModelProto) -> ModelProto:
    """Return a model whose functions speak its own operator set, where that has all their operators unchanged.

    onnx's inliner converts the others, and stops at some that it could leave as they are.
    """
    own = {each.domain: each.version for each in model.opset_import}
    if all(own.get(each.domain, each.version) == each.version for f in model.functions for each in f.opset_import):
        return model
    changed = ModelProto()
    changed.CopyFrom(model)
    for function in changed.functions:
        for each in function.opset_import:
            newer = own.get(each.domain, each.version)
            if all(_is_same(node, each.domain, each.version, newer) for node in all_nodes(function.node)):
                each.version = newer
    return changed


def _is_same(node: NodeProto, domain: str, one: int, other: int) -> bool:
    """Return whether two operator sets have the same operator of a node's type, or the node is of another domain."""
    if node.domain != domain:
        return True
    found = schema(node.op_type, one, domain)
    return found is not None and found == schema(node.op_type, other, domain)


def all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield nodes, and those of the graphs among their attributes."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in _graphs(attribute):
                yield from all_nodes(graph.node)


def _give_defaults(nodes: Iterable[NodeProto], defaults: Mapping[tuple[str, str, str], Any]) -> None:
    for node in nodes:
        given = {attribute.name for attribute in node.attribute}
        known = defaults.get((node.domain, node.op_type, node.overload), ())
        node.attribute.extend(attribute for attribute in known if attribute.name not in given)
        for attribute in node.attribute:
            for graph in _graphs(attribute):
                _give_defaults(graph.node, defaults)
