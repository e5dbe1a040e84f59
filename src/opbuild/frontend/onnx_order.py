"""Nodes of a model in an order in which each value is assigned before it is read.

ONNX demands that order, and tools that insert nodes (float16 converters, quantizers) append them at the end. Whatever
is in order already is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

from opbuild.errors import InvalidModelError
from opbuild.frontend.onnx_node import captures, describe, subgraphs

_Holder = GraphProto | FunctionProto


def in_order(model: ModelProto) -> ModelProto:
    """Return the model with the nodes of all graphs and functions in order; itself if they are.

    Args:
        model: A model; it is not changed.

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
    """Return whether no node of a graph, or of a graph inside it, reads what a later one assigns."""
    later = _producers(holder)
    for index, node in enumerate(holder.node):
        if any(later.get(name, -1) >= index for name in node.input):
            return False
        graphs = tuple(subgraphs(node))
        if graphs and any(later.get(name, -1) >= index for name in captures(node)):
            return False
        if not all(map(_is_ordered, graphs)):
            return False
    return True


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
    producers = _producers(holder)
    waits = [{producers[name] for name in _reads(node) if name in producers} for node in holder.node]
    readers: list[list[int]] = [[] for _ in waits]
    for index, sources in enumerate(waits):
        for source in sources:
            readers[source].append(index)
    missing = [len(sources) for sources in waits]
    ready = [index for index, count in enumerate(missing) if not count]
    heapify(ready)
    order: list[int] = []
    while ready:
        index = heappop(ready)
        order.append(index)
        for reader in readers[index]:
            missing[reader] -= 1
            if not missing[reader]:
                heappush(ready, reader)
    if len(order) < len(waits):
        _fail(holder, waits, set(range(len(waits))).difference(order))
    return order


def _fail(holder: _Holder, waits: Sequence[set[int]], left: set[int]) -> None:
    """Raise the error that names nodes which read each other in a circle."""
    place, passed = min(left), dict[int, None]()
    while place not in passed:
        passed[place] = None
        place = min(waits[place] & left)
    circle = [*passed][[*passed].index(place) :]
    names = [repr(describe(holder.node[index], index)) for index in reversed(circle)]
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    many = f"the nodes {shown} read each other's outputs in a circle"
    raise InvalidModelError(
        many if len(names) > 1 else f"node {shown} reads its own output",
        "a network has no circles; use Loop or Scan to repeat nodes",
    )


def _producers(holder: _Holder) -> dict[str, int]:
    """Return which node assigns each name.

    Raises:
        InvalidModelError: If two do, or one assigns an input or a constant.
    """
    if isinstance(holder, FunctionProto):
        given = set(holder.input)
    else:
        given = {value.name for value in holder.input} | {tensor.name for tensor in holder.initializer}
    found: dict[str, int] = {}
    for index, node in enumerate(holder.node):
        for name in node.output:
            if name in given:
                raise InvalidModelError(
                    f"node {describe(node, index)!r} assigns {name!r}, which is an input or a constant",
                    "each value is assigned once; rename one of the two",
                )
            if name and found.setdefault(name, index) != index:
                first = describe(holder.node[found[name]], found[name])
                raise InvalidModelError(
                    f"nodes {first!r} and {describe(node, index)!r} both assign {name!r}",
                    "each value is assigned once; rename one of the two",
                )
    return found


def _reads(node: NodeProto) -> Iterator[str]:
    yield from (name for name in node.input if name)
    yield from captures(node)
