"""Operators that several simpler ones compute; a module is loaded for a graph that has one of its operators."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.rewriter import NewGraph, PassBuilder, Rewrite, rewritten
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.platform.registry import Registry

_SERVED: dict[str, tuple[str, ...]] = {
    "axes": ("CumProd", "CumSum", "DFT", "STFT"),
    "einsum": ("Einsum",),
    "images": ("AffineGrid", "Col2Im", "ConvTranspose", "DeformConv", "MaxUnpool"),
    "selection": (
        *("CenterCropPad", "Dropout", "EyeLike", "Hardmax", "OneHot", "ReverseSequence", "TensorScatter", "Trilu"),
    ),
    "statistics": (
        *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin"),
        *("ReduceProd", "ReduceSum", "ReduceSumSquare", "BatchNormalization", "GlobalAveragePool", "GlobalMaxPool"),
        *("GlobalLpPool", "LayerNormalization", "LpNormalization", "LpPool", "MeanVarianceNormalization"),
        *("Max", "Mean", "Min", "Sum"),
    ),
}

REWRITES: Registry[Rewrite] = Registry("rewrite", __name__, {name: {"": served} for name, served in _SERVED.items()})
"""What is written in the place of an operator."""


def decompose(graph: Graph, kept: Collection[str] = ()) -> Graph:
    """Rewrite composite operators but those that are ``kept``."""

    def rewrite_of(node: Node) -> Rewrite | None:
        rewrite = None if node.op_type in kept else REWRITES.get((node.domain, node.op_type))
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


_SUMS, _SMALL = ("Col2Im", "Einsum"), ("int8", "uint8", "int16", "uint16")
"""Operators of sums, and types of which ONNX has none: they wrap when the sum is cast back."""
