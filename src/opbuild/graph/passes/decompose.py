"""Composite operators rewritten into simpler ones, so that lowering needs a rule for the simpler ones only."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module

import numpy as np

from opbuild.graph.passes import composite
from opbuild.graph.passes.blame import blaming
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.composite.rewrite import KeptError, Rewrite
from opbuild.graph.passes.rewriter import Rewriter
from opbuild.graph.types import Graph, Node, TensorType


def decompose(graph: Graph, kept: Collection[str] = ()) -> Graph:
    """Rewrite variadic Sum, Mean, Max and Min, MeanVarianceNormalization, and the operators of ``composite``.

    Args:
        graph: A graph.
        kept: Operators that stay as they are.
    """
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        rewrite = None if node.domain or node.op_type in kept else find_rewrite(node.op_type)
        if rewrite is None:
            rewriter.nodes.append(node)
            continue
        try:
            with blaming(node):
                if rewriter.types[node.outputs[0]].dtype in _SMALL and node.op_type in _SUMS:
                    _in_int32(rewriter, node, rewrite)
                else:
                    rewrite(rewriter, node)
        except KeptError:
            rewriter.nodes.append(node)
    return eliminate_dead(rewriter.graph(graph))


def _in_int32(to: Rewriter, node: Node, rewrite: Rewrite) -> None:
    narrow = to.types[node.outputs[0]]
    inputs = tuple(
        to.add(node, "Cast", (name,), to="int32") if name and to.types[name].dtype == narrow.dtype else name
        for name in node.inputs
    )
    output = to.fresh(f"{node.outputs[0]}/wide")
    to.types[output] = TensorType("int32", narrow.shape)
    rewrite(to, node.with_(inputs=inputs, outputs=(output,)))
    to.add(node, "Cast", (output,), node.outputs[0], to=narrow.dtype)


_BINARY = {"Sum": "Add", "Mean": "Add", "Max": "Max", "Min": "Min"}


def _variadic(to: Rewriter, node: Node) -> None:
    first, *others = node.inputs
    is_mean = node.op_type == "Mean" and bool(others)
    if not others:
        to.add(node, "Identity", (first,), node.outputs[0])
        return
    outputs = *("" for _ in others[1:]), "" if is_mean else node.outputs[0]
    for output, other in zip(outputs, others, strict=True):
        first = to.add(node, _BINARY[node.op_type], (first, other), output)
    if is_mean:
        count = to.constant(f"{node.name}/count", np.array(len(node.inputs), to.types[first].dtype))
        to.add(node, "Div", (first, count), node.outputs[0])


def _mean_variance(to: Rewriter, node: Node) -> None:
    (x,) = node.inputs
    axes = to.constant(f"{node.name}/axes", np.array(node.attrs.get("axes", (0, 2, 3)), np.int64))
    small = to.constant(f"{node.name}/epsilon", np.array(1e-9, to.types[x].dtype))
    centred = to.add(node, "Sub", (x, to.add(node, "ReduceMean", (x, axes), keepdims=1)))
    variance = to.add(node, "ReduceMean", (to.add(node, "Mul", (centred, centred)), axes), keepdims=1)
    deviation = to.add(node, "Add", (to.add(node, "Sqrt", (variance,)), small))
    to.add(node, "Div", (centred, deviation), node.outputs[0])


_SUMS, _SMALL = ("Col2Im", "Einsum"), ("int8", "uint8", "int16", "uint16")
"""Operators of sums, and types of which ONNX has none: they wrap when the sum is cast back."""

REWRITES: dict[str, Rewrite] = {
    **dict.fromkeys(_BINARY, _variadic),
    "MeanVarianceNormalization": _mean_variance,
}
"""The rewrites of operators that are here; ``composite`` has others."""


def find_rewrite(op_type: str) -> Rewrite | None:
    """Return the rewrite of a composite operator, None of another one."""
    module = composite.MODULES.get(op_type)
    if module is None:
        return REWRITES.get(op_type)
    found: Rewrite = import_module(f"{composite.__name__}.{module}").REWRITES[op_type]
    return found
