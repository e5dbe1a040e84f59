"""Which operators are written with ONNX's own, and where: a module is loaded for a network that has one of its."""

from __future__ import annotations

MICROSOFT = "com.microsoft"

_MODULES: dict[str, dict[str, tuple[str, ...]]] = {
    "microsoft": {
        MICROSOFT: (
            *("FusedConv", "NhwcConv", "NhwcFusedConv", "FusedGemm", "FusedMatMul", "TransposeMatMul", "GemmFastGelu"),
            *("BiasAdd", "BiasGelu", "BiasSoftmax", "BiasSplitGelu", "FastGelu", "Gelu", "QuickGelu"),
        )
    },
    "microsoft_attention": {
        MICROSOFT: ("Attention", "GroupQueryAttention", "MultiHeadAttention", "QAttention"),
    },
    "microsoft_normalization": {
        "": ("SimplifiedLayerNormalization",),  # ONNX Runtime writes it into ONNX's own domain as well
        MICROSOFT: (
            *("EmbedLayerNormalization", "LayerNormalization", "SimplifiedLayerNormalization"),
            *("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
        ),
    },
    "microsoft_positions": {MICROSOFT: ("RotaryEmbedding",)},
    "microsoft_recurrent": {MICROSOFT: ("DynamicQuantizeLSTM",)},
}

MODULES = {
    (domain, op_type): name
    for name, served in _MODULES.items()
    for domain, op_types in served.items()
    for op_type in op_types
}
"""By domain and operator type the module that writes it."""


def rewrites(domain: str, op_type: str) -> bool:
    """Return whether an operator is written with others."""
    return (domain, op_type) in MODULES
