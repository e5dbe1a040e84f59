"""Operators that several simpler ones compute, by kind: ``REWRITES`` of each module has them by operator type.

A module is loaded when a network first has one of its operators.
"""

from __future__ import annotations

_MODULES: dict[str, tuple[str, ...]] = {
    "axes": ("CumProd", "CumSum", "DFT"),
    "einsum": ("Einsum",),
    "images": ("AffineGrid", "Col2Im", "ConvTranspose", "DeformConv", "MaxUnpool"),
    "selection": (
        *("CenterCropPad", "Dropout", "EyeLike", "Hardmax", "OneHot", "ReverseSequence", "TensorScatter", "Trilu"),
    ),
    "signal": ("STFT",),
    "statistics": (
        *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin"),
        *("ReduceProd", "ReduceSum", "ReduceSumSquare", "BatchNormalization", "GlobalAveragePool", "GlobalMaxPool"),
        *("GlobalLpPool", "LayerNormalization", "LpNormalization", "LpPool"),
    ),
}

MODULES = {op_type: name for name, op_types in _MODULES.items() for op_type in op_types}
"""By operator type the module that has its rewrite."""
