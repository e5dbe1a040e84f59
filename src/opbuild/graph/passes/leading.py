"""Products of rows that are flattened before and spread again behind become products of all leading dimensions.

Exporters write a linear layer of tokens as a Reshape to a matrix, Gemm, and a Reshape back. What follows element by
element is a part of the product's kernel only if nothing stands between.
"""

from __future__ import annotations

from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.rewriter import NewGraph
from opbuild.graph.types import Graph, Node
from opbuild.platform.records import dataclass


@dataclass(frozen=True)
class _Layer:
    """A product between two reshapes: what the first one reads, and the product's other operands."""

    product: Node
    rows: str
    weights: str
    bias: str


def keep_leading_dimensions(graph: Graph) -> Graph:
    """Replace ``Reshape(Gemm(Reshape(x), w, b))`` by ``x @ w + b`` where the last dimension alone is changed."""
    producers, readers, outputs = graph.producers(), graph.consumers(), frozenset(graph.outputs)
    to = NewGraph(graph)

    def layer(node: Node) -> _Layer | None:
        product = producers.get(node.inputs[0]) if _is(node, "Reshape") else None
        if product is None or not _is_plain(product) or len(readers[node.inputs[0]]) != 1:
            return None
        flat, weights, bias = (*product.inputs, "")[:3]
        before = producers.get(flat)
        if not _is(before, "Reshape") or before is None or node.inputs[0] in outputs:
            return None
        rows, shapes = before.inputs[0], graph.types
        matrix, shape = shapes[weights].shape, shapes[rows].shape
        if not len(matrix) == len(shapes[flat].shape) == 2 < len(shape) or shape[-1] != matrix[0]:
            return None
        is_kept = shapes[node.outputs[0]].shape == (*shape[:-1], matrix[1])
        is_row = not bias or shapes[bias].shape in ((matrix[1],), (1, matrix[1]), (1,), ())
        return _Layer(product, rows, weights, bias) if is_kept and is_row else None

    for node in graph.nodes:
        found = layer(node)
        if found is None:
            to.nodes.append(node)
            continue
        of, result = to.at(found.product), "" if found.bias else node.outputs[0]
        total = of("MatMul", found.rows, found.weights, output=result)
        if found.bias:
            of("Add", total, found.bias, output=node.outputs[0])
    return eliminate_dead(to.graph(graph))


def _is_plain(product: Node) -> bool:
    """Return whether a product turns and scales nothing."""
    if _is(product, "MatMul"):
        return True
    factors = (float(product.attrs.get(name, 1.0)) for name in ("alpha", "beta"))
    turned = (product.attrs.get(name, 0) for name in ("transA", "transB"))
    return _is(product, "Gemm") and not any(turned) and all(factor == 1.0 for factor in factors)


def _is(node: Node | None, op_type: str) -> bool:
    return node is not None and not node.domain and node.op_type == op_type
