"""``nn``: cells, the layers that networks are made of."""

from opbuild.mindspore import names
from opbuild.mindspore.nn.activation import (
    CELU,
    ELU,
    GELU,
    FastGelu,
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
    SeLU,
    Sigmoid,
    SiLU,
    Softmax,
    SoftShrink,
    Softsign,
    Tanh,
    Tanhshrink,
    get_activation,
)  # fmt: skip
from opbuild.mindspore.nn.basic import Dense, Dropout, Embedding, Flatten, Identity
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.container import CellDict, CellList, SequentialCell
from opbuild.mindspore.nn.convolution import Conv1d, Conv2d, Conv2dTranspose, Conv3d
from opbuild.mindspore.nn.normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, LayerNorm
from opbuild.mindspore.nn.pooling import (
    AdaptiveAvgPool2d,
    AdaptiveMaxPool2d,
    AvgPool1d,
    AvgPool2d,
    MaxPool1d,
    MaxPool2d,
)  # fmt: skip

__getattr__ = names.getter(__name__)

__all__ = [
    "CELU", "ELU", "GELU", "AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "AvgPool1d", "AvgPool2d", "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d", "Cell", "CellDict", "CellList", "Conv1d", "Conv2d", "Conv2dTranspose", "Conv3d", "Dense", "Dropout",
    "Embedding", "FastGelu", "Flatten", "GroupNorm", "HShrink", "HSigmoid", "HSwish", "Identity", "LayerNorm",
    "LeakyReLU",
    "LogSigmoid", "LogSoftmax", "MaxPool1d", "MaxPool2d", "Mish", "PReLU", "ReLU", "ReLU6", "SeLU",
    "SequentialCell", "SiLU",
    "Sigmoid", "SoftShrink", "Softmax", "Softsign", "Tanh", "Tanhshrink", "get_activation",
]  # fmt: skip
