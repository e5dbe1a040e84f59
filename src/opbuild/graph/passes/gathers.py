"""Gathers that take everything, in order, are shapes: masks that are indexed by all places are written so."""

from __future__ import annotations

from math import prod

import numpy as np

from opbuild.graph.extents import is_open
from opbuild.graph.passes.rewriter import NewGraph
from opbuild.graph.types import Array, Graph, Node


def reshape_whole_gathers(graph: Graph) -> Graph:
    """Replace Gather and GatherND by Reshape where their constant indices are all places, one after the other."""
    to = NewGraph(graph)
    for node in graph.nodes:
        if _takes_all(graph, node):
            to.at(node).reshaped(node.inputs[0], graph.types[node.outputs[0]].shape, node.outputs[0])
        else:
            to.nodes.append(node)
    return to.graph(graph)


def _takes_all(graph: Graph, node: Node) -> bool:
    if node.domain or node.op_type not in ("Gather", "GatherND") or node.attrs.get("batch_dims", 0):
        return False
    indices, shape = graph.constants.get(node.inputs[1]), graph.types[node.inputs[0]].shape
    if indices is None or indices.dtype == object or is_open(shape) or is_open(graph.types[node.outputs[0]].shape):
        return False
    if node.op_type == "Gather":
        return _counts(indices, shape[int(node.attrs.get("axis", 0))])
    axes = shape[: indices.shape[-1]]
    if indices.size != prod(axes) * len(axes) or (indices < 0).any():
        return False
    return _counts(np.ravel_multi_index(tuple(np.moveaxis(indices, -1, 0)), axes, mode="clip"), prod(axes)) and bool(
        (indices < np.array(axes)).all()
    )


def _counts(indices: Array, extent: int) -> bool:
    return indices.size == extent and np.array_equal(indices.reshape(-1), np.arange(extent))
