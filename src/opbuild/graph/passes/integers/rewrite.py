"""The pass that rewrites operators on quantised numbers."""

from __future__ import annotations

from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.integers.registry import REWRITES, IntegerGraph
from opbuild.graph.passes.rewriter import rewritten
from opbuild.graph.types import Graph


def rewrite_integers(graph: Graph) -> Graph:
    """Return the graph with operators on quantised numbers, and patterns of them, as products of integers.

    Args:
        graph: A typed graph in which no DequantizeLinear was folded.
    """
    found = rewritten(IntegerGraph(graph), graph, lambda node: REWRITES.get((node.domain, node.op_type)))
    return eliminate_dead(found)
