"""Composite operators rewritten into simpler ones, so that lowering needs a rule for the simpler ones only."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from importlib import import_module

from opbuild.graph.passes import composite
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.rewriter import NewGraph, PassBuilder, Rewrite, rewritten
from opbuild.graph.types import Graph, Node, TensorType


def decompose(graph: Graph, kept: Collection[str] = ()) -> Graph:
    """Rewrite variadic Sum, Mean, Max and Min, MeanVarianceNormalization, and the operators of ``composite``.

    Args:
        graph: A graph.
        kept: Operators that stay as they are.
    """

    def rewrite_of(node: Node) -> Rewrite | None:
        rewrite = None if node.domain or node.op_type in kept else find_rewrite(node.op_type)
        is_small_sum = node.op_type in _SUMS and graph.types[node.outputs[0]].dtype in _SMALL
        return partial(_in_int32, rewrite=rewrite) if rewrite and is_small_sum else rewrite

    return eliminate_dead(rewritten(NewGraph(graph), graph, rewrite_of))


def _in_int32(of: PassBuilder, rewrite: Rewrite) -> None:
    narrow = of.types[of.outputs[0]]
    inputs = tuple(
        of("Cast", name, to="int32") if name and of.types[name].dtype == narrow.dtype else name for name in of.inputs
    )
    output = of.scope.fresh(f"{of.outputs[0]}/wide")
    of.types[output] = TensorType("int32", narrow.shape)
    rewrite(of.scope.at(of.node.with_(inputs=inputs, outputs=(output,))))
    of("Cast", output, output=of.outputs[0], to=narrow.dtype)


_BINARY = {"Sum": "Add", "Mean": "Add", "Max": "Max", "Min": "Min"}


def _variadic(of: PassBuilder) -> None:
    first, *others = of.inputs
    is_mean = of.node.op_type == "Mean" and bool(others)
    if not others:
        of("Identity", first, output=of.outputs[0])
        return
    outputs = *("" for _ in others[1:]), "" if is_mean else of.outputs[0]
    for output, other in zip(outputs, others, strict=True):
        first = of(_BINARY[of.node.op_type], first, other, output=output)
    if is_mean:
        count = of.constant(len(of.inputs), of.types[first].dtype)
        of("Div", first, count, output=of.outputs[0])


def _mean_variance(of: PassBuilder) -> None:
    (x,) = of.inputs
    axes, small = of.ints(*of.attr("axes", (0, 2, 3))), of.constant(1e-9, of.types[x].dtype)
    centred = of("Sub", x, of("ReduceMean", x, axes, keepdims=1))
    variance = of("ReduceMean", of("Mul", centred, centred), axes, keepdims=1)
    deviation = of("Add", of("Sqrt", variance), small)
    of("Div", centred, deviation, output=of.outputs[0])


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
