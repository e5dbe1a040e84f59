"""Checks of indices: operands read as indices go through ``InRange`` first; kernels keep to memory, and tell nobody."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from opbuild.graph.extents import SymbolicExtent
from opbuild.graph.indices import Bounds, bounds_of, is_check
from opbuild.graph.passes.rewriter import NewGraph
from opbuild.graph.types import Array, Graph, Node


def check_indices(graph: Graph) -> Graph:
    """Return a graph in which indices that are out of range are refused; known ones that are inside are left alone."""
    to, checked = NewGraph(graph), dict[Hashable, str]()
    for node in graph.nodes:
        if is_check(node):
            checked[node.outputs[0], _key(node.attrs["counts"]), True] = node.outputs[0]
        bounds = bounds_of(node, lambda index, node=node: graph.types[node.inputs[index]].shape)  # type: ignore[misc]
        if bounds is None or is_inside(graph.constants.get(node.inputs[bounds.input]), bounds):
            to.nodes.append(node)
            continue
        name = node.inputs[bounds.input]
        known = name, _key(bounds.counts), bounds.negative
        if known not in checked:
            checked[known] = to.at(node).in_range(name, *bounds.counts, negative=bounds.negative)
        to.nodes.append(with_input(node, bounds.input, checked[known]))
    return to.graph(graph) if checked else graph


def _key(counts: Sequence[int]) -> Hashable:
    """Return a key equal for numbers that are the same at any size; an open extent would be closed by its hash."""
    return tuple(each.polynomial if isinstance(each, SymbolicExtent) else each for each in counts)


def with_input(node: Node, index: int, name: str) -> Node:
    """Return a node that reads another value."""
    return node.with_(inputs=(*node.inputs[:index], str(name), *node.inputs[index + 1 :]))


def is_inside(values: Array | None, bounds: Bounds) -> bool:
    """Return whether known indices are in range; of open extents that is a condition."""
    if values is None:
        return False
    if not values.size:
        return True
    groups = values.reshape(-1, len(bounds.counts))
    if values.dtype == object:  # which of them is the least may be another one in another size
        rows = [
            (value, value, count) for row in groups.tolist() for value, count in zip(row, bounds.counts, strict=True)
        ]
    else:
        rows = list(zip(groups.min(0).tolist(), groups.max(0).tolist(), bounds.counts, strict=True))
    return all(least >= (-count if bounds.negative else 0) and most < count for least, most, count in rows)
