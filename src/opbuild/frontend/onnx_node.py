"""Nodes of protobuf: one as a ``Node``, checked against its operator's schema, and all of a model in order.

The order is one in which each value is assigned before it is read. ONNX demands that, and tools that insert nodes
(float16 converters, quantizers) append them at the end. Whatever is in order already is left as it is. A model's own
functions are put in the places of their calls; how large it becomes is told before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from opbuild.errors import InvalidModelError, UnsupportedOperatorError
from opbuild.frontend.onnx_messages import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto
from opbuild.frontend.onnx_read import DataFiles, to_array
from opbuild.frontend.onnx_schemas import Schema, is_defined, schema
from opbuild.frontend.rewritten import NOT_SERVED, REWRITES
from opbuild.graph import user_operators
from opbuild.graph.passes.infer import has_rule
from opbuild.graph.types import Node
from opbuild.platform.records import NamedTuple
from opbuild.text.plural import counted

OWN_RULES = ("com.microsoft",)
"""Domains without schemas in the onnx package, some of whose operators opbuild knows by shape rules."""


def describe(proto: NodeProto, index: int) -> str:
    """Return a node's name, or one made of its type and position."""
    return proto.name or f"{proto.op_type}_{index}"


def _schema_of(op_type: str, domain: str, name: str, version: int) -> Schema:
    if (domain, op_type) == ("", "LayerNormalization"):
        version = max(version, 17)  # ONNX Runtime writes it into every operator set
    found = schema(op_type, version, domain) if version else None
    if found is None:
        if (domain, op_type) in NOT_SERVED:
            why, hint = NOT_SERVED[domain, op_type]
            raise UnsupportedOperatorError(f"node {name!r}: {domain}'s {op_type} is not served: {why}", hint)
        shown = f"domain {domain!r}" if domain else "ONNX's own domain"
        raise UnsupportedOperatorError(
            f"node {name!r}: operator {op_type!r} does not exist in {shown}, operator set {version or 'missing'}",
            "check its spelling and the model's opset_import, replace it by standard operators, or define it with "
            "@opbuild.operator",
        )
    return found


def check_node(proto: NodeProto, name: str, opsets: Mapping[str, int]) -> None:
    """Check that an operator exists and is called as its schema says.

    Raises:
        UnsupportedOperatorError: If no operator set that the model imports has the operator.
        InvalidModelError: If inputs, outputs or attributes do not fit the schema.
    """
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    if user_operators.find(domain, proto.op_type) is not None:
        return
    is_own = REWRITES.serves(domain, proto.op_type) and not is_defined(proto.op_type, domain)
    if is_own or (domain in OWN_RULES and has_rule(domain, proto.op_type)):
        return  # onnx has no schema of it: its shape rule, or what writes it with others, checks what it gets
    found = _schema_of(proto.op_type, domain, name, opsets.get(domain, 0))
    where = f"{proto.op_type} node {name!r}"
    for kind, count, (least, most) in (
        ("inputs", len(proto.input), found.inputs),
        ("outputs", len(proto.output), found.outputs),
    ):
        if not least <= count <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise InvalidModelError(f"{where} has {count} {kind}, not {wanted}", "export the model again")
    for index, source in enumerate(proto.input):
        if not source and index not in found.optional:
            raise InvalidModelError(f"{where} lacks input {index}", "only optional inputs may be left out")
    given = [attribute.name for attribute in proto.attribute]
    for wrong in sorted(set(given) - set(found.attributes)):
        problem = f"{where} has the attribute {wrong!r}, which its operator set does not define"
        raise InvalidModelError(problem, f"it defines {', '.join(sorted(found.attributes)) or 'none'}")
    for missing in sorted(found.required - set(given)):
        raise InvalidModelError(f"{where} lacks the attribute {missing!r}", "export the model again")
    is_doubled = len(given) > len(set(given))
    for attribute in proto.attribute:
        if is_doubled and given.count(attribute.name) > 1:
            raise InvalidModelError(f"{where} has the attribute {attribute.name!r} twice", "export the model again")
        _check_kind(attribute, found.attributes[attribute.name], where)
    _check_graphs(proto, name, opsets)


def _check_graphs(proto: NodeProto, name: str, opsets: Mapping[str, int]) -> None:
    """Check the graphs inside a node: their nodes, and of branches the number of outputs."""
    for attribute in proto.attribute:
        if attribute.type != AttributeProto.GRAPH:
            continue
        graph = attribute.g
        for index, inner in enumerate(graph.node):
            check_node(inner, f"{name}/{attribute.name}/{describe(inner, index)}", opsets)
        if proto.op_type == "If" and len(graph.output) != len(proto.output):
            raise InvalidModelError(
                f"If node {name!r} has {counted(len(proto.output), 'output')}, its {attribute.name} "
                f"has {len(graph.output)}",
                "export the model again",
            )


_SINGLE = {"FLOAT": "f", "INT": "i", "STRING": "s", "TENSOR": "t", "GRAPH": "g", "SPARSE_TENSOR": "sparse_tensor",
           "TYPE_PROTO": "tp"}  # fmt: skip
_LISTS = {f"{kind}S": f"{kind.lower()}s" for kind in _SINGLE}
_FIELDS: dict[int, str] = {AttributeProto.AttributeType.Value(kind): f for kind, f in (_SINGLE | _LISTS).items()}
"""The field of an ``AttributeProto`` that holds a value of each kind."""

_NEVER_EMPTY = ("t", "g", "sparse_tensor", "tp")
"""Fields that may not be missing, unlike an empty list and what some writers of protobuf leave out, a zero."""


def _check_kind(attribute: AttributeProto, wanted: int, where: str) -> None:
    """Check that an attribute is of the kind that its operator defines, and holds a value of that kind and no other."""
    where = f"{where}: attribute {attribute.name!r}"
    if attribute.ref_attr_name:
        raise _reference(attribute, where)
    if attribute.type != wanted:
        raise InvalidModelError(
            f"{where} is {_kind_name(attribute.type)}, not {_kind_name(wanted)}", "export the model again"
        )
    filled = {field.name for field, _ in attribute.ListFields()} & set(_FIELDS.values())
    own = _FIELDS[wanted]
    if filled - {own} or (not filled and own in _NEVER_EMPTY):
        problem = f"{where} is {_kind_name(wanted)} and holds {' and '.join(sorted(filled)) or 'nothing'}"
        raise InvalidModelError(problem, f"its value belongs in the field {own!r} alone; export the model again")


def _kind_name(kind: int) -> str:
    known = AttributeProto.AttributeType.values()
    name = AttributeProto.AttributeType.Name(kind) if kind in known else str(kind)
    return "of no kind" if kind == AttributeProto.UNDEFINED else f"of kind {name}"


def attribute_value(attribute: AttributeProto) -> Any:
    """Return the value of an attribute, a list of repeated values; None if it is of no kind.

    Raises:
        InvalidModelError: If it refers to an attribute of a function.
    """
    if attribute.ref_attr_name:
        raise _reference(attribute, f"attribute {attribute.name!r}")
    if attribute.type == AttributeProto.UNDEFINED:
        return None
    field = _FIELDS[attribute.type]
    value = getattr(attribute, field)
    return list(value) if field in _LISTS.values() else value


def _reference(attribute: AttributeProto, where: str) -> InvalidModelError:
    return InvalidModelError(
        f"{where} refers to {attribute.ref_attr_name!r}, which only a function's nodes may do", "give it a value"
    )


def _value(attribute: AttributeProto, files: DataFiles) -> Any:
    """Return an attribute as an int, a float, a string, a tuple of them, an array or a graph."""
    if attribute.type == AttributeProto.TENSOR:
        return to_array(attribute.t, files)
    value = attribute_value(attribute)
    return tuple(map(_text, value)) if isinstance(value, list) else _text(value)


def _text(value: Any) -> Any:
    try:
        return value.decode() if isinstance(value, bytes) else value
    except UnicodeDecodeError:
        return value


def subgraphs(proto: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs among a node's attributes."""
    for attribute in proto.attribute:
        if attribute.type == AttributeProto.GRAPH and not attribute.ref_attr_name:
            yield attribute.g
        yield from attribute.graphs


def captures(proto: NodeProto) -> tuple[str, ...]:
    """Return the names that a node's graphs read from outside, in order of first use."""
    return tuple(dict.fromkeys(name for graph in subgraphs(proto) for name in _free_names(graph)))


def _free_names(graph: GraphProto) -> Iterator[str]:
    own = {each.name for each in (*graph.input, *graph.initializer)}
    own.update(name for node in graph.node for name in node.output)
    for node in graph.node:
        yield from (name for name in _reads(node) if name not in own)
    yield from (value.name for value in graph.output if value.name not in own)


def make_node(proto: NodeProto, name: str, files: DataFiles) -> Node:
    """Return a ``NodeProto`` as a Node, whose inputs and outputs still have the model's names."""
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    attrs = {attribute.name: _value(attribute, files) for attribute in proto.attribute}
    contents = proto.SerializeToString() if any(True for _ in subgraphs(proto)) else None
    return Node(proto.op_type, tuple(proto.input), tuple(proto.output), attrs, name, domain, contents)


_Holder = GraphProto | FunctionProto

_ONCE = "each value is assigned once; rename one of the two"


def in_order(model: ModelProto) -> ModelProto:
    """Return the model with the nodes of all graphs and functions in order; itself, unchanged, if they are.

    Raises:
        InvalidModelError: If nodes read each other in a circle, or two of one graph assign the same name.
    """
    holders: tuple[_Holder, ...] = (model.graph, *model.functions)
    if all(_is_ordered(holder) for holder in holders):
        return model
    ordered = ModelProto()
    ordered.CopyFrom(model)
    for holder in (ordered.graph, *ordered.functions):
        _order(holder)
    return ordered


def _is_ordered(holder: _Holder) -> bool:
    """Return whether no node of a graph, or of a graph inside it, reads a value that a later one assigns."""
    later = _producers(holder)
    return all(
        all(later.get(name, -1) < index for name in _reads(node)) and all(map(_is_ordered, subgraphs(node)))
        for index, node in enumerate(holder.node)
    )


def _order(holder: _Holder) -> None:
    for node in holder.node:
        for graph in subgraphs(node):
            _order(graph)
    order = _sorted(holder)
    if order != list(range(len(order))):
        nodes = [NodeProto.FromString(holder.node[index].SerializeToString()) for index in order]
        del holder.node[:]
        holder.node.extend(nodes)


def _sorted(holder: _Holder) -> list[int]:
    """Return the places of the nodes in order; those that could stand anywhere keep to the order that they had."""
    from graphlib import CycleError, TopologicalSorter  # nearly all models are in order
    from heapq import heappop, heappush

    producers = _producers(holder)
    waits = {index: {producers[n] for n in _reads(node) if n in producers} for index, node in enumerate(holder.node)}
    sorter = TopologicalSorter(waits)
    try:
        sorter.prepare()
    except CycleError as error:
        raise _circular(holder, error.args[1][1:]) from None
    ready, order = list[int](), list[int]()
    while sorter.is_active():
        for index in sorter.get_ready():
            heappush(ready, index)
        order.append(heappop(ready))
        sorter.done(order[-1])
    return order


def _circular(holder: _Holder, circle: Sequence[int]) -> InvalidModelError:
    names = [repr(describe(holder.node[index], index)) for index in circle]
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    many = f"the nodes {shown} read each other's outputs in a circle"
    problem = many if len(names) > 1 else f"node {shown} reads its own output"
    return InvalidModelError(problem, "a network has no circles; use Loop or Scan to repeat nodes")


def _producers(holder: _Holder) -> dict[str, int]:
    """Return the node that assigns each name; it is an error if two do, or one assigns an input or a constant."""
    if isinstance(holder, FunctionProto):
        given = set(holder.input)
    else:
        given = {each.name for each in (*holder.input, *holder.initializer)}
    found: dict[str, int] = {}
    for index, node in enumerate(holder.node):
        for name in node.output:
            if name in given:
                problem = f"node {describe(node, index)!r} assigns {name!r}, which is an input or a constant"
                raise InvalidModelError(problem, _ONCE)
            if name and found.setdefault(name, index) != index:
                first = describe(holder.node[found[name]], found[name])
                problem = f"nodes {first!r} and {describe(node, index)!r} both assign {name!r}"
                raise InvalidModelError(problem, _ONCE)
    return found


def _reads(node: NodeProto) -> Iterator[str]:
    yield from (name for name in node.input if name)
    yield from captures(node)


MOST_NODES = 2**17
"""Nodes that calls of a model's own functions may become: functions that call each other twice double at each level."""

MOST_BYTES = 2**30
"""Bytes that they may become, with the constants of the functions."""

MOST_LEVELS = 100
"""Functions that may call each other, one inside the other; onnx puts no more in their places."""

_Name = tuple[str, str, str]


class _Size(NamedTuple):
    nodes: int
    nbytes: int
    levels: int


def inlined(proto: ModelProto) -> ModelProto:
    """Return a model with its own functions in the places of their calls.

    Raises:
        InvalidModelError: If that cannot be done, or the model would become too large; the message names what does.
    """
    from onnx import inliner

    check_expansion(proto)
    try:
        return inliner.inline_local_functions(with_common_versions(with_defaults(proto)), convert_version=True)
    except Exception as error:  # onnx raises RuntimeError, ValueError and its own types here
        raise InvalidModelError(
            f"the model's functions cannot be inlined: {error}", "export it without functions"
        ) from error


def check_expansion(model: ModelProto) -> None:
    """Check that the functions of a model can be put in the places of their calls.

    Raises:
        InvalidModelError: If one calls itself, or the model would become too large; the message names what does.
    """
    from graphlib import CycleError, TopologicalSorter

    functions = {(each.domain, each.name, each.overload): each for each in model.functions}
    calls = {name: [*_calls(each.node, functions)] for name, each in functions.items()}
    sizes: dict[_Name, _Size] = {}
    try:
        order = [*TopologicalSorter({name: set(map(_function_name, of)) for name, of in calls.items()}).static_order()]
    except CycleError as error:
        shown = " -> ".join(repr(name) for _, name, _ in reversed(error.args[1][:6]))
        raise InvalidModelError(
            f"the model's functions call themselves: {shown}", "a network has no circles; use Loop to repeat nodes"
        ) from None
    for name in order:
        sizes[name] = _size(functions[name], calls[name], sizes)
        _check(sizes[name], lambda name=name: f"function {name[1]!r} of domain {name[0]!r}")  # type: ignore[misc]
    nodes = nbytes = 0
    for index, node in enumerate(model.graph.node):
        for call in _calls([node], functions):
            nodes, nbytes = nodes + sizes[_function_name(call)].nodes, nbytes + sizes[_function_name(call)].nbytes
            _check(_Size(nodes, nbytes, 0), lambda: f"node {describe(node, index)!r}")  # noqa: B023


def _size(function: FunctionProto, calls: Iterable[NodeProto], sizes: Mapping[_Name, _Size]) -> _Size:
    called = [sizes[_function_name(call)] for call in calls]
    return _Size(
        sum(1 for _ in _all_nodes(function.node)) - len(called) + sum(each.nodes for each in called),
        function.ByteSize() + sum(each.nbytes for each in called),
        1 + max((each.levels for each in called), default=0),
    )


def _calls(nodes: Iterable[NodeProto], functions: Mapping[_Name, FunctionProto]) -> Iterable[NodeProto]:
    return (node for node in _all_nodes(nodes) if _function_name(node) in functions)


def _function_name(node: NodeProto) -> _Name:
    return node.domain, node.op_type, node.overload


def _check(size: _Size, what: Callable[[], str]) -> None:
    hint = "export the model without functions, or with functions that are called less often"
    for found, most, unit in ((size.nodes, MOST_NODES, "node"), (size.nbytes, MOST_BYTES, "byte")):
        if found > most:
            problem = f"{what()} becomes {counted(found, unit)} when functions are put in the places of their calls"
            raise InvalidModelError(f"{problem}; at most {most} are taken", hint)
    if size.levels > MOST_LEVELS:
        raise InvalidModelError(f"{what()} calls others more than {counted(MOST_LEVELS, 'level')} deep", hint)


def with_defaults(model: ModelProto) -> ModelProto:
    """Return a model in which calls of its own functions give all attributes; onnx's inliner knows no defaults."""
    defaults = {(each.domain, each.name, each.overload): each.attribute_proto for each in model.functions}
    if not any(defaults.values()):
        return model
    changed = ModelProto()
    changed.CopyFrom(model)
    for node in _all_nodes([*changed.graph.node, *(node for function in changed.functions for node in function.node)]):
        given = {attribute.name for attribute in node.attribute}
        node.attribute.extend(each for each in defaults.get(_function_name(node), ()) if each.name not in given)
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
            if all(_is_same(node, each.domain, each.version, newer) for node in _all_nodes(function.node)):
                each.version = newer
    return changed


def _is_same(node: NodeProto, domain: str, one: int, other: int) -> bool:
    """Return whether two operator sets have the same operator of a node's type, or the node is of another domain."""
    if node.domain != domain:
        return True
    found = schema(node.op_type, one, domain)
    return found is not None and found == schema(node.op_type, other, domain)


def _all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield nodes, and those of the graphs among their attributes."""
    for node in nodes:
        yield node
        for graph in subgraphs(node):
            yield from _all_nodes(graph.node)
