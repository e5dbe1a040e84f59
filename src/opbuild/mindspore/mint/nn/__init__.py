"""``mint.nn``: layers with the arguments of PyTorch."""

from opbuild.mindspore import names
from opbuild.mindspore.mint.nn.layers import LAYERS
from opbuild.mindspore.mint.nn.weighted import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose2d,
    Dropout,
    Dropout2d,
    Embedding,
    GroupNorm,
    LayerNorm,
    PReLU,
    SyncBatchNorm,
)  # fmt: skip
from opbuild.mindspore.nn.basic import Identity, Linear
from opbuild.mindspore.nn.cell import Cell

globals().update(LAYERS)
__getattr__ = names.getter(__name__, lazy=("functional",))
__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Cell", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d", "Dropout",
    "Dropout2d", "Embedding", "GroupNorm", "Identity", "LayerNorm", "Linear", "PReLU", "SyncBatchNorm", *LAYERS,
]  # fmt: skip
