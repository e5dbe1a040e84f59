"""Scales of both operands of a product, as exporters write attention, become one of the product.

Queries and keys are each multiplied by the root of a factor there, so that no score is too large for float16. In
float32 one factor behind the product, as torch computes it, is a part of its kernel or of attention's, where two before
it are passes over memory.
"""

from __future__ import annotations

from opbuild.graph.factors import is_moderate
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.rewriter import NewGraph
from opbuild.graph.types import Graph, Node

_EXACT = "float32"


def merge_scales(graph: Graph) -> Graph:
    """Replace ``(a * x) @ (b * y)`` by ``(x @ y) * (a * b)`` where nothing else reads it.

    a and b are numbers that no product overflows without, nor sinks into denormals.
    """
    producers, readers = graph.producers(), graph.consumers()
    to = NewGraph(graph)

    def scaled(name: str) -> tuple[str, float] | None:
        """Return what a value is a multiple of, and its factor."""
        node = producers.get(name)
        if not _is(node, "Mul") or node is None or len(readers[name]) != 1 or name in graph.outputs:
            return None
        for source, factor in (node.inputs, node.inputs[::-1]):
            value = graph.constants.get(factor)
            is_number = value is not None and value.size == 1 and graph.types[source] == graph.types[name]
            if value is not None and is_number and source not in graph.constants:
                number = float(value.reshape(-1)[0])
                return (source, number) if is_moderate(number) else None
        return None

    for node in graph.nodes:
        is_product = _is(node, "MatMul") and graph.types[node.outputs[0]].dtype == _EXACT
        left, right = (scaled(node.inputs[0]), scaled(node.inputs[1])) if is_product else (None, None)
        if left is None or right is None:
            to.nodes.append(node)
            continue
        of = to.at(node)
        product, scale = of("MatMul", left[0], right[0]), of.constant(left[1] * right[1], "float32")
        of("Mul", product, scale, output=node.outputs[0])
    return eliminate_dead(to.graph(graph))


def _is(node: Node | None, op_type: str) -> bool:
    return node is not None and not node.domain and node.op_type == op_type
