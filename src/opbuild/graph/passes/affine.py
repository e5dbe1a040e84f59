"""BatchNormalization that no convolution could take in: a product and a sum by channel, which fuse as others do."""

from __future__ import annotations

from opbuild.graph.passes.batchnorm import batchnorm_step
from opbuild.graph.passes.blame import blaming
from opbuild.graph.passes.rewriter import Rewriter
from opbuild.graph.types import Graph


def spell_out_batchnorm(graph: Graph) -> Graph:
    """Return the graph with every BatchNormalization of known parameters that its type holds written as Mul and Add."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        is_batchnorm = node.op_type == "BatchNormalization" and not node.domain
        with blaming(node):
            step = batchnorm_step(node, graph.constants) if is_batchnorm else None
        if step is None or not step.fits(graph.types[node.inputs[0]].dtype):
            rewriter.nodes.append(node)
            continue
        dtype = graph.types[node.inputs[0]].dtype
        shape = (-1,) + (1,) * (len(graph.types[node.inputs[0]].shape) - 2)
        names = [
            rewriter.constant(f"{node.outputs[0]}/{part}", value.astype(dtype).reshape(shape))
            for part, value in (("scale", step.scale), ("shift", step.shift))
        ]
        product = rewriter.add(node, "Mul", (node.inputs[0], names[0]))
        rewriter.add(node, "Add", (product, names[1]), node.outputs[0])
    return rewriter.graph(graph)
