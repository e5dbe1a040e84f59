"""Weights of 0 where a softmax is NaN, as torch's exporter writes them behind attention's, become the softmax's own."""

from __future__ import annotations

import numpy as np

from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.types import Graph, Node


def zero_softmax(graph: Graph) -> Graph:
    """Replace ``Where(IsNaN(w), 0, w)`` by ``w``, a softmax with ``zeros``, if nothing else reads that.

    The exporter means rows that a mask hides, but its operators also make 0 of rows with NaN or +inf, and so does
    ``zeros="nan"``; torch's own operators, and ``zeros="hidden"``, do not.
    """
    producers, readers = graph.producers(), graph.consumers()

    def zeroed(node: Node) -> Node | None:
        """Return a Where as the softmax that it makes 0 of, or None."""
        if node.domain or node.op_type != "Where":
            return None
        condition, zero, weights = node.inputs
        question, softmax = producers.get(condition), producers.get(weights)
        if question is None or softmax is None or question.inputs != (weights,):
            return None
        if [(each.domain, each.op_type) for each in (question, softmax)] != [("", "IsNaN"), ("", "Softmax")]:
            return None
        value = graph.constants.get(zero)
        if value is None or value.size != 1 or np.signbit(value).any() or value.any():
            return None
        is_other = graph.types[weights] != graph.types[node.outputs[0]]
        is_read = not {weights, condition}.isdisjoint(graph.outputs)
        if is_other or is_read or (len(readers[weights]), len(readers[condition])) != (2, 1):
            return None
        result = softmax.with_(outputs=node.outputs, attrs={**softmax.attrs, "zeros": "nan"}, proto=None)
        return result.taking(question).taking(node)

    return eliminate_dead(graph.with_(nodes=tuple(zeroed(node) or node for node in graph.nodes)))
