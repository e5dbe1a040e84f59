"""One lowering rule an operator family.

A module registers its rules when it is loaded, which happens when a network first has one of its operators.
"""

from __future__ import annotations

from importlib import import_module

from opbuild.lowering.context import RULES, Rule

_MODULES: dict[str, dict[str, tuple[str, ...]]] = {
    "attention": {"opbuild": ("Attention",)},
    "conv": {"": ("Conv",)},
    "conv_integer": {"": ("ConvInteger",)},
    "conv_transpose": {"": ("ConvTranspose",)},
    "conv_weight_gradient": {"opbuild": ("ConvWeightGradient", "PlainWeights")},
    "gather": {"": ("Gather", "GatherElements", "GatherND")},
    "indices": {"opbuild": ("InRange",)},
    "numbers": {"opbuild": ("Table",)},
    "grid_sample": {"": ("GridSample",)},
    "matmul": {"": ("MatMul", "Gemm"), "opbuild": ("IntegerMatMul",)},
    "matmul_nbits": {"com.microsoft": ("MatMulNBits",)},
    "movement": {
        "": (
            *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "BitCast", "Transpose", "Expand"),
            *("Slice", "Split", "Concat", "Tile", "DepthToSpace", "SpaceToDepth", "Pad"),
        ),
        "opbuild": ("ChannelShuffle",),
    },
    "normalization": {
        "": (
            *("Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization"),
            *("InstanceNormalization", "GroupNormalization"),
        )
    },
    "pool": {"": ("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "LRN")},
    "recurrent": {"": ("RNN", "GRU", "LSTM")},
    "reduction": {
        "": (
            *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
            *("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "ArgMax", "ArgMin", "TopK"),
        )
    },
    "resize": {"": ("Resize", "Upsample")},
    "roi_align": {"": ("RoiAlign",)},
    "scan": {"": ("CumSum", "CumProd")},
    "scatter": {"": ("ScatterElements", "ScatterND")},
    "trees": {"opbuild": ("TreeEnsemble",)},
    "window": {"": ("LpPool",)},
}

MODULES = {
    (domain, op_type): name
    for name, served in _MODULES.items()
    for domain, op_types in served.items()
    for op_type in op_types
}
"""By domain and operator type the module that has the rule."""

OTHERS = "elementwise"
"""The module that has the rule of operators that are not listed, if they have one."""


def find_rule(domain: str, op_type: str) -> Rule | None:
    """Return the rule of an operator, None if there is none."""
    import_module(f"{__name__}.{MODULES.get((domain, op_type), OTHERS)}")
    return RULES.get((domain, op_type))
