"""Shuffles of channels, which models write as Reshape, Transpose, Reshape, found again."""

from __future__ import annotations

from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.types import Graph, Node


def fuse_channel_shuffle(graph: Graph) -> Graph:
    """Replace channels reshaped to (groups, channels of a group), transposed and joined again by ChannelShuffle.

    The node made is ``opbuild.ChannelShuffle`` with attribute ``group``; lowering knows it, the host does not need to.
    """
    producers = graph.producers()
    nodes = []
    for node in graph.nodes:
        found = _shuffle(graph, producers, node)
        if found is None:
            nodes.append(node)
        else:
            source, groups = found
            nodes.append(Node("ChannelShuffle", (source,), node.outputs, {"group": groups}, node.name, "opbuild"))
    return eliminate_dead(graph.with_(nodes=tuple(nodes)))


def _shuffle(graph: Graph, producers: dict[str, Node], node: Node) -> tuple[str, int] | None:
    """Return what a Reshape is a shuffle of, and its groups."""
    if not _is(node, "Reshape"):
        return None
    transpose = producers.get(node.inputs[0])
    split = producers.get(transpose.inputs[0]) if _is(transpose, "Transpose") and transpose is not None else None
    if transpose is None or split is None or not _is(split, "Reshape"):
        return None
    source = split.inputs[0]
    shape, parts = graph.types[source].shape, graph.types[split.outputs[0]].shape
    order = (0, 2, 1, *range(3, len(parts)))
    if len(shape) not in (3, 4) or tuple(transpose.attrs.get("perm") or ()) != order:
        return None
    divided = len(parts) == len(shape) + 1 and (parts[0], parts[1] * parts[2], *parts[3:]) == shape
    if not divided or graph.types[node.outputs[0]].shape != shape or 0 in shape:
        return None
    return source, parts[1]


def _is(node: Node | None, op_type: str) -> bool:
    return node is not None and not node.domain and node.op_type == op_type
