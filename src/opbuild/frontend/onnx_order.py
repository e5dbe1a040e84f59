"""Nodes of a model in an order in which each value is assigned before it is read.

ONNX demands that order, and tools that insert nodes (float16 converters, quantizers) append them at the end. Whatever
is in order already is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opbuild.errors import InvalidModelError
from opbuild.frontend.onnx_messages import FunctionProto, GraphProto, ModelProto, NodeProto
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
    return InvalidModelError(
        many if len(names) > 1 else f"node {shown} reads its own output",
        "a network has no circles; use Loop or Scan to repeat nodes",
    )


def _producers(holder: _Holder) -> dict[str, int]:
    """Return the node that assigns each name.

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
