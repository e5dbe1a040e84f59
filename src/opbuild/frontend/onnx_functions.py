"""A model's own functions are put in the places of their calls; how large it becomes is told before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from opbuild.errors import InvalidModelError
from opbuild.frontend.onnx_messages import FunctionProto, ModelProto, NodeProto
from opbuild.frontend.onnx_node import describe, subgraphs
from opbuild.frontend.onnx_schemas import schema
from opbuild.platform.records import NamedTuple
from opbuild.text.plural import counted

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
    functions = {(each.domain, each.name, each.overload): each for each in model.functions}
    calls = {name: [*_calls(each.node, functions)] for name, each in functions.items()}
    sizes: dict[_Name, _Size] = {}
    try:
        order = [*TopologicalSorter({name: set(map(_called, of)) for name, of in calls.items()}).static_order()]
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
            nodes, nbytes = nodes + sizes[_called(call)].nodes, nbytes + sizes[_called(call)].nbytes
            _check(_Size(nodes, nbytes, 0), lambda: f"node {describe(node, index)!r}")  # noqa: B023


def _size(function: FunctionProto, calls: Iterable[NodeProto], sizes: Mapping[_Name, _Size]) -> _Size:
    called = [sizes[_called(call)] for call in calls]
    return _Size(
        sum(1 for _ in _all_nodes(function.node)) - len(called) + sum(each.nodes for each in called),
        function.ByteSize() + sum(each.nbytes for each in called),
        1 + max((each.levels for each in called), default=0),
    )


def _calls(nodes: Iterable[NodeProto], functions: Mapping[_Name, FunctionProto]) -> Iterable[NodeProto]:
    return (node for node in _all_nodes(nodes) if _called(node) in functions)


def _called(node: NodeProto) -> _Name:
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
        node.attribute.extend(each for each in defaults.get(_called(node), ()) if each.name not in given)
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
