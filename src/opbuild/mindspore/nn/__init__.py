"""``nn``: cells, the layers that networks are made of."""

import sys

from opbuild.mindspore import names
from opbuild.mindspore.nn.activation import (
    CELU,
    ELU,
    GELU,
    GLU,
    LRN,
    FastGelu,
    Hardtanh,
    HShrink,
    HSigmoid,
    HSwish,
    LeakyReLU,
    LogSigmoid,
    LogSoftmax,
    Mish,
    PReLU,
    ReLU,
    ReLU6,
    RReLU,
    SeLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softmax2d,
    Softmin,
    SoftShrink,
    Softsign,
    Tanh,
    Tanhshrink,
    Threshold,
    get_activation,
)  # fmt: skip
from opbuild.mindspore.nn.attention import MultiheadAttention
from opbuild.mindspore.nn.basic import Dense, Dropout, Embedding, Flatten, Identity, Linear
from opbuild.mindspore.nn.cell import Cell, no_init_parameters
from opbuild.mindspore.nn.combined import (
    Conv2dBnAct,
    DenseBnAct,
    Dropout1d,
    Dropout2d,
    Dropout3d,
    EmbeddingLookup,
    TimeDistributed,
)  # fmt: skip
from opbuild.mindspore.nn.container import CellDict, CellList, SequentialCell
from opbuild.mindspore.nn.convolution import (
    Conv1d,
    Conv1dTranspose,
    Conv2d,
    Conv2dTranspose,
    Conv3d,
    Conv3dTranspose,
)  # fmt: skip
from opbuild.mindspore.nn.image import (
    PSNR,
    SSIM,
    CentralCrop,
    ChannelShuffle,
    ImageGradients,
    PixelShuffle,
    PixelUnshuffle,
    Unfold,
    Upsample,
)  # fmt: skip
from opbuild.mindspore.nn.loss import (
    BCELoss,
    BCEWithLogitsLoss,
    CosineEmbeddingLoss,
    CrossEntropyLoss,
    DiceLoss,
    FocalLoss,
    GaussianNLLLoss,
    HuberLoss,
    KLDivLoss,
    L1Loss,
    LossBase,
    MAELoss,
    MSELoss,
    MultiClassDiceLoss,
    NLLLoss,
    PoissonNLLLoss,
    RMSELoss,
    SmoothL1Loss,
    SoftmaxCrossEntropyWithLogits,
)  # fmt: skip
from opbuild.mindspore.nn.margin_loss import (
    HingeEmbeddingLoss,
    MarginRankingLoss,
    MultilabelMarginLoss,
    MultiLabelSoftMarginLoss,
    MultiMarginLoss,
    SoftMarginLoss,
    TripletMarginLoss,
    TripletMarginWithDistanceLoss,
)  # fmt: skip
from opbuild.mindspore.nn.matrix import (
    BiDense,
    ClipByNorm,
    L1Regularizer,
    MatMul,
    MatrixDiag,
    MatrixDiagPart,
    MatrixSetDiag,
    Moments,
    Norm,
    OneHot,
    Range,
    ReduceLogSumExp,
    Roll,
    Tril,
    Triu,
    Unflatten,
)  # fmt: skip
from opbuild.mindspore.nn.normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    SyncBatchNorm,
)  # fmt: skip
from opbuild.mindspore.nn.padding import (
    ConstantPad1d,
    ConstantPad2d,
    ConstantPad3d,
    Pad,
    ReflectionPad1d,
    ReflectionPad2d,
    ReflectionPad3d,
    ReplicationPad1d,
    ReplicationPad2d,
    ReplicationPad3d,
    ZeroPad2d,
)  # fmt: skip
from opbuild.mindspore.nn.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    LPPool1d,
    LPPool2d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MaxUnpool1d,
    MaxUnpool2d,
    MaxUnpool3d,
)  # fmt: skip
from opbuild.mindspore.nn.recurrent import GRU, LSTM, RNN
from opbuild.mindspore.nn.recurrent_cells import GRUCell, LSTMCell, RNNCell
from opbuild.mindspore.nn.special import DiGamma, IGamma, LBeta, LGamma, MatDet, MatInverse
from opbuild.mindspore.nn.transformer import (
    Transformer,
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)

__getattr__ = names.getter(__name__)

layer = optim = wrap = sys.modules[__name__]
"""MindSpore has layers in modules of their own too: ``from mindspore.nn import layer``."""

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "GRU", "LRN", "LSTM", "PSNR", "RNN", "SSIM", "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d",
    "AvgPool1d", "AvgPool2d", "AvgPool3d", "BCELoss", "BCEWithLogitsLoss", "BatchNorm1d", "BatchNorm2d",
    "BatchNorm3d", "BiDense", "Cell", "CellDict", "CellList", "CentralCrop", "ChannelShuffle", "ClipByNorm",
    "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "Conv1d", "Conv1dTranspose", "Conv2d", "Conv2dBnAct",
    "Conv2dTranspose", "Conv3d", "Conv3dTranspose", "CosineEmbeddingLoss", "CrossEntropyLoss", "Dense",
    "DenseBnAct", "DiGamma", "DiceLoss", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "Embedding",
    "EmbeddingLookup", "FastGelu", "Flatten", "FocalLoss", "GRUCell", "GaussianNLLLoss", "GroupNorm", "HShrink",
    "HSigmoid", "HSwish", "Hardtanh", "HingeEmbeddingLoss", "HuberLoss", "IGamma", "Identity", "ImageGradients",
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "KLDivLoss", "L1Loss", "L1Regularizer", "LBeta",
    "LGamma", "LPPool1d", "LPPool2d", "LSTMCell", "LayerNorm", "LeakyReLU", "Linear", "LogSigmoid", "LogSoftmax",
    "LossBase", "MAELoss", "MSELoss", "MarginRankingLoss", "MatDet", "MatInverse", "MatMul", "MatrixDiag",
    "MatrixDiagPart", "MatrixSetDiag", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d",
    "MaxUnpool3d", "Mish", "Moments", "MultiClassDiceLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss",
    "MultiheadAttention", "MultilabelMarginLoss", "NLLLoss", "Norm", "OneHot", "PReLU", "Pad", "PixelShuffle",
    "PixelUnshuffle", "PoissonNLLLoss", "RMSELoss", "RNNCell", "RReLU", "Range", "ReLU", "ReLU6",
    "ReduceLogSumExp", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d",
    "ReplicationPad2d", "ReplicationPad3d", "Roll", "SeLU", "SequentialCell", "SiLU", "Sigmoid", "SmoothL1Loss",
    "SoftMarginLoss", "SoftShrink", "Softmax", "Softmax2d", "SoftmaxCrossEntropyWithLogits", "Softmin",
    "Softsign", "SyncBatchNorm", "Tanh", "Tanhshrink", "Threshold", "TimeDistributed", "Transformer",
    "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer", "Tril",
    "TripletMarginLoss", "TripletMarginWithDistanceLoss", "Triu", "Unflatten", "Unfold", "Upsample", "ZeroPad2d",
    "get_activation", "no_init_parameters",
]  # fmt: skip
