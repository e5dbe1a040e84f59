"""BatchNormalization that no convolution could take in: a product and a sum by channel, which fuse as others do."""

from __future__ import annotations

from opbuild.graph.passes.batchnorm import batchnorm_step
from opbuild.graph.passes.rewriter import KeptError, NewGraph, PassBuilder, Rewrite, rewritten
from opbuild.graph.types import Graph, Node


def spell_out_batchnorm(graph: Graph) -> Graph:
    """Return the graph with every BatchNormalization of known parameters that its type holds written as Mul and Add."""

    def rewrite_of(node: Node) -> Rewrite | None:
        return _spelled_out if node.op_type == "BatchNormalization" and not node.domain else None

    return rewritten(NewGraph(graph), graph, rewrite_of)


def _spelled_out(of: PassBuilder) -> None:
    x, step = of.input(0), batchnorm_step(of.node, of.constants)
    if step is None or not step.fits(x.dtype):
        raise KeptError
    shape = (-1,) + (1,) * (len(x.shape) - 2)
    scale, shift = (of.constant(part.astype(x.dtype).reshape(shape)) for part in (step.scale, step.shift))
    of("Add", of("Mul", x, scale), shift, output=of.outputs[0])
