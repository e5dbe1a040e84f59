"""Composite operators rewritten into simpler ones, so that lowering needs a rule for the simpler ones only."""

from __future__ import annotations

import numpy as np

from opbuild.graph.passes.blame import blaming
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.composite import axes, einsum, images, recurrent, selection, signal, statistics
from opbuild.graph.passes.composite.rewrite import KeptError, Rewrite
from opbuild.graph.passes.rewriter import Rewriter
from opbuild.graph.types import Graph, Node, TensorType


def decompose(graph: Graph) -> Graph:
    """Rewrite variadic Sum, Mean, Max and Min, MeanVarianceNormalization, and the operators of ``composite``.

    An operator is rounded to float16 once, at its end: what it is made of is computed in float32.
    """
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        rewrite = None if node.domain else REWRITES.get(node.op_type)
        if rewrite is None:
            rewriter.nodes.append(node)
            continue
        try:
            with blaming(node):
                wide = _wider(node, rewriter.types[node.outputs[0]].dtype)
                if wide:
                    _in_wider(rewriter, node, rewrite, wide)
                else:
                    rewrite(rewriter, node)
        except KeptError:
            rewriter.nodes.append(node)
    return eliminate_dead(rewriter.graph(graph))


def _wider(node: Node, dtype: str) -> str:
    """Return the type in which what a node is made of is computed; empty for its own."""
    if dtype == "float16" and node.op_type in _ROUNDING:
        return "float32"
    return "int32" if dtype in _SMALL and node.op_type in _SUMS else ""


def _in_wider(to: Rewriter, node: Node, rewrite: Rewrite, wide: str) -> None:
    narrow = to.types[node.outputs[0]]
    inputs = tuple(
        to.add(node, "Cast", (name,), to=wide) if name and to.types[name].dtype == narrow.dtype else name
        for name in node.inputs
    )
    output = to.fresh(f"{node.outputs[0]}/wide")
    to.types[output] = TensorType(wide, narrow.shape)
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


_ROUNDING = frozenset(
    ("Col2Im", "Einsum", "GlobalLpPool", "LpNormalization", "Mean", "MeanVarianceNormalization", "Sum")
)
"""Operators that are rewritten as several that round."""

_SUMS, _SMALL = ("Col2Im", "Einsum"), ("int8", "uint8", "int16", "uint16")
"""Operators of sums, and types of which ONNX has none: they wrap when the sum is cast back."""

REWRITES: dict[str, Rewrite] = {
    **dict.fromkeys(_BINARY, _variadic),
    "MeanVarianceNormalization": _mean_variance,
    **axes.REWRITES,
    **einsum.REWRITES,
    **images.REWRITES,
    **recurrent.REWRITES,
    **selection.REWRITES,
    **signal.REWRITES,
    **statistics.REWRITES,
}
"""The rewrite of each composite operator."""
