"""Operators that several simpler ones compute; a module is loaded for a graph that has one of its operators."""

from __future__ import annotations

from opbuild.graph.passes.rewriter import Rewrite
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
