"""Which operators compute with element types that few have: truth values, codes of fewer bits, bytes of quantized ones.

Most operators say so by what they compute. Those here would be evaluated by numpy, which has meanings of its own for
such types: what has none in ONNX is refused by name where the network is bound.
"""

from __future__ import annotations

from opbuild.dtypes import CODED
from opbuild.graph.shape_rules import ShapeCall

WITH_CODES = frozenset(
    (
        "BitCast", "Cast", "CastLike", "CenterCropPad", "Compress", "Concat", "ConcatFromSequence", "ConstantOfShape",
        "DepthToSpace", "DequantizeLinear", "Dropout", "Expand", "EyeLike", "Flatten", "Gather", "GatherElements",
        "GatherND", "Identity", "If", "IsInf", "IsNaN", "Loop", "Optional", "OptionalGetElement", "OptionalHasElement",
        "Pad", "QLinearMatMul", "QuantizeLinear", "RandomNormalLike", "RandomUniformLike", "Reshape",
        "ReverseSequence", "Scan", "ScatterElements", "ScatterND", "SequenceAt", "SequenceConstruct", "SequenceErase",
        "SequenceInsert", "SequenceMap", "Shape", "Size", "Slice", "SpaceToDepth", "Split", "SplitToSequence",
        "Squeeze", "TensorScatter", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where",
    )
)  # fmt: skip
"""Operators that move numbers of fewer than 8 bits and floats of 8, or convert them; others have no arithmetic."""

OF_FLOATS = frozenset(
    (
        "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "AveragePool", "BatchNormalization", "Bernoulli",
        "CausalConvWithState", "Ceil", "Celu", "Conv", "ConvTranspose", "Cos", "Cosh", "DFT", "DeformConv", "Det",
        "DynamicQuantizeLinear", "Elu", "Erf", "Exp", "Floor", "GRU", "Gelu", "GlobalAveragePool", "GlobalLpPool",
        "GlobalMaxPool", "GroupNormalization", "HardSigmoid", "HardSwish", "Hardmax", "InstanceNormalization", "LRN",
        "LSTM", "LayerNormalization", "LeakyRelu", "LinearAttention", "Log", "LogSoftmax", "LpNormalization", "LpPool",
        "MaxRoiPool", "MaxUnpool", "Mean", "MeanVarianceNormalization", "Mish", "Multinomial",
        "NegativeLogLikelihoodLoss", "NonMaxSuppression", "RMSNormalization", "RNN", "Reciprocal", "ReduceLogSum",
        "ReduceLogSumExp", "RoiAlign", "RotaryEmbedding", "Round", "STFT", "Selu", "Sigmoid", "Sin", "Sinh", "Softmax",
        "SoftmaxCrossEntropyLoss", "Softplus", "Softsign", "Sqrt", "Sum", "SwiGLU", "Swish", "Tan", "Tanh",
        "ThresholdedRelu",
    )
)  # fmt: skip
"""Operators whose first input is of floating numbers: they are not defined for truth values."""

OF_BYTES = {
    **dict.fromkeys(("ConvInteger", "MatMulInteger", "MatMulIntegerToFloat"), (0, 1)),
    **dict.fromkeys(("QGemm", "QLinearAdd", "QLinearConv", "QLinearMul"), (0, 3)),
    **dict.fromkeys(("QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearLeakyRelu"), (0,)),
    **dict.fromkeys(("QLinearSigmoid", "QLinearSoftmax"), (0,)),
    "QLinearConcat": (2,),
    "QLinearWhere": (1, 4),
    "DynamicQuantizeMatMul": (1,),
}
"""Inputs that hold bytes, of operators that compute with quantized numbers."""


def require_known(call: ShapeCall) -> None:
    """Refuse element types for which an operator is not defined.

    Raises:
        DTypeError: If an input has one; the message names the node and the type.
    """
    node = call.node
    if node.domain in ("", "com.microsoft"):
        for index in OF_BYTES.get(node.op_type, ()):
            if call.has(index) and call.dtype(index) not in ("uint8", "int8"):
                call.fail_dtype(f"it computes with uint8 and int8, not with {call.dtype(index)}")
    if node.domain:
        return
    dtypes = [each.dtype for each in call.types if each is not None]
    codes = [each for each in dtypes if each in CODED]
    if codes and node.op_type not in WITH_CODES:
        call.fail_dtype(f"it is not defined for {codes[0]}")
    if dtypes[:1] == ["bool"] and node.op_type in OF_FLOATS:
        call.fail_dtype("it is not defined for bool")
    if node.op_type == "DynamicQuantizeLinear" and dtypes[:1] != ["float32"]:
        call.fail_dtype(f"it quantizes float32, not {dtypes[0]}")
