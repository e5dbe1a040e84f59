"""The pass that rewrites operators on quantised numbers."""

from __future__ import annotations

from opbuild.graph.passes.blame import blaming
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.integers import (  # noqa: F401 - importing a module registers its rewrites
    convolutions,
    elementwise,
    products,
    requantization,
)
from opbuild.graph.passes.integers.registry import REWRITES, IntegerRewriter
from opbuild.graph.types import Graph


def rewrite_integers(graph: Graph) -> Graph:
    """Return the graph with operators on quantised numbers, and patterns of them, as products of integers.

    Args:
        graph: A typed graph in which no DequantizeLinear was folded.
    """
    rewriter = IntegerRewriter(graph)
    for node in graph.nodes:
        rewrite = REWRITES.get((node.domain, node.op_type))
        with blaming(node):
            if rewrite is None or not rewrite(rewriter, node):
                rewriter.nodes.append(node)
    return eliminate_dead(rewriter.graph(graph))
