"""Which operators are written with ONNX's own, and where: a module is loaded for a network that has one of its."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opbuild.graph.types import Node
from opbuild.platform.registry import Registry

Rewrite = Callable[..., Sequence[Node]]
"""What writes the nodes in place of one, with the ``Rewriting`` of it."""

LEARNED, MICROSOFT, NCHWC = "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc"

_SERVED: dict[str, dict[str, tuple[str, ...]]] = {
    "learned": {
        LEARNED: (
            *("ArrayFeatureExtractor", "Binarizer", "FeatureVectorizer", "Imputer", "LabelEncoder", "LinearClassifier"),
            *("LinearRegressor", "Normalizer", "OneHotEncoder", "SVMClassifier", "SVMRegressor", "Scaler"),
        )
    },
    "opbuild.frontend.trees.packed": {LEARNED: ("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor")},
    "microsoft": {
        MICROSOFT: (
            *("FusedConv", "NhwcConv", "NhwcFusedConv", "FusedGemm", "FusedMatMul", "TransposeMatMul", "GemmFastGelu"),
            *("BiasAdd", "BiasGelu", "BiasSoftmax", "BiasSplitGelu", "FastGelu", "Gelu", "QuickGelu", "Tokenizer"),
            *("CDist", "ComplexMul", "ComplexMulConj", "ConvTransposeWithDynamicPads", "CropAndResize", "ExpandDims"),
            *("GatherND", "GridSample", "Irfft", "IsAllFinite", "NGramRepeatBlock", "Pad", "Range", "Rfft", "SampleOp"),
            *("TorchEmbedding", "Trilu", "UnfoldTensor", "Unique", "WordConvEmbedding"),
            *("DequantizeLinear", "DynamicQuantizeLSTM", "GatherBlockQuantized", "MatMulBnb4", "MatMulInteger16"),
            *("MatMulNBits", "MulInteger", "QLinearReduceMean", "QuantizeLinear", "ReduceSumInteger"),
        ),
        NCHWC: (
            *("AveragePool", "Conv", "GlobalAveragePool", "GlobalMaxPool", "MaxPool", "ReorderInput", "ReorderOutput"),
            "Upsample",
        ),
    },
    "microsoft_attention": {
        MICROSOFT: (
            *("Attention", "DecoderMaskedMultiHeadAttention", "GroupQueryAttention", "MRotaryEmbedding"),
            *("MultiHeadAttention", "QAttention", "RelativePositionBias", "RotaryEmbedding"),
        )
    },
    "onnx_attention": {"": ("Attention",)},
    "microsoft_experts": {MICROSOFT: ("MoE", "QMoE")},
    "microsoft_search": {MICROSOFT: ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch")},
    "microsoft_layers": {
        "": ("SimplifiedLayerNormalization",),  # ONNX Runtime writes it into ONNX's own domain as well
        MICROSOFT: (
            *("BranchwiseRMSNorm", "CausalConvWithState", "EmbedLayerNormalization", "EngramGate", "GatedAdd"),
            *("GatedRMSNorm", "GroupNorm", "HyperConnectionPostMix", "HyperConnectionPreMix", "LayerNormalization"),
            *("LinearAttention", "LinearAttentionGate", "MoEGroupRouter", "QEmbedLayerNormalization", "ScaledSiLU"),
            *("SimplifiedLayerNormalization", "SkipGroupNorm", "SkipLayerNormalization"),
            *("SkipSimplifiedLayerNormalization", "GatedDeltaNet", "MurmurHash3", "NGramHashMapping"),
            *("VarlenCausalConvWithState", "VarlenNGramHashMapping"),
        ),
    },
}

REWRITES: Registry[Rewrite] = Registry("rewrite", __package__, _SERVED)
"""How operators are written with ONNX's own."""

NOT_SERVED: dict[tuple[str, str], tuple[str, str]] = {
    (MICROSOFT, "AttnLSTM"): ("attention inside an LSTM is not written with others", "export both apart"),
    (MICROSOFT, "GatherPacked"): (
        "its weights are packed in formats of ONNX Runtime's own, which are not read",
        "quantise the embeddings with GatherBlockQuantized",
    ),
    (MICROSOFT, "MatMulFpQ4"): (
        "its weights are packed in a layout that its documentation does not tell",
        "quantise the model anew, with MatMulNBits",
    ),
    (MICROSOFT, "MaxpoolWithMask"): (
        "its documentation is 'for internal use', and does not say what it computes",
        "replace it by MaxPool of masked values",
    ),
    (MICROSOFT, "SparseAttention"): (
        "its caches are written in place, in memory that the caller shares between inputs and outputs",
        "export the model with GroupQueryAttention",
    ),
    (MICROSOFT, "SparseToDenseMatMul"): (
        "it reads a sparse tensor, of which opbuild has none",
        "export the matrix as a dense one, with MatMul",
    ),
}
"""Why operators are not served of which ONNX Runtime has kernels for CPUs, and what to do about it."""
