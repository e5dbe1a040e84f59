"""BatchNormalization that no convolution could take in: a product and a sum by channel, which fuse as others do."""

from __future__ import annotations

import numpy as np

from opbuild.graph.passes.blame import blaming
from opbuild.graph.passes.rewriter import Rewriter
from opbuild.graph.types import Array, Graph, Node


def spell_out_batchnorm(graph: Graph) -> Graph:
    """Return the graph with every BatchNormalization of known, finite parameters written as Mul and Add."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        with blaming(node):
            step = _step(node, graph)
        if step is None:
            rewriter.nodes.append(node)
            continue
        shape = (-1,) + (1,) * (len(graph.types[node.inputs[0]].shape) - 2)
        kind = graph.types[node.inputs[0]]
        dtype = "float32" if kind.dtype == "float16" else kind.dtype  # rounded once, at the end
        names = [
            rewriter.constant(f"{node.outputs[0]}/{part}", value.astype(dtype).reshape(shape))
            for part, value in zip(("scale", "shift"), step, strict=True)
        ]
        x = node.inputs[0] if dtype == kind.dtype else rewriter.add(node, "Cast", (node.inputs[0],), to=dtype)
        product = rewriter.add(node, "Mul", (x, names[0]))
        if dtype == kind.dtype:
            rewriter.add(node, "Add", (product, names[1]), node.outputs[0])
        else:
            total = rewriter.add(node, "Add", (product, names[1]))
            rewriter.add(node, "Cast", (total,), node.outputs[0], to=kind.dtype)
    return rewriter.graph(graph)


def _step(node: Node, graph: Graph) -> tuple[Array, Array] | None:
    """Return what a BatchNormalization multiplies by and adds, in float64, or None if it is not one that is known."""
    if node.op_type != "BatchNormalization" or node.domain or node.attrs.get("training_mode", 0):
        return None
    values = [graph.constants.get(name) for name in node.inputs[1:5]]
    if len(node.outputs) != 1 or any(value is None for value in values):
        return None
    scale, bias, mean, variance = (np.asarray(value, np.float64) for value in values)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + float(node.attrs.get("epsilon", 1e-5)))
        shift = bias - mean * factor
    return (factor, shift) if np.isfinite(factor).all() and np.isfinite(shift).all() else None
