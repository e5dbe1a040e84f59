"""``train``: ``Model`` and its companions: callbacks, metrics, checkpoints, and managers of loss scales."""

from opbuild.mindspore import names
from opbuild.mindspore.amp import DynamicLossScaleManager, FixedLossScaleManager, LossScaleManager, build_train_network
from opbuild.mindspore.checkpoint import load_checkpoint, load_param_into_net, save_checkpoint
from opbuild.mindspore.train import callback, metrics
from opbuild.mindspore.train.callback import *
from opbuild.mindspore.train.metrics import *
from opbuild.mindspore.train.model import Model

__getattr__ = names.getter(__name__)

__all__ = [
    "DynamicLossScaleManager", "FixedLossScaleManager", "LossScaleManager", "Model", "build_train_network",
    "load_checkpoint", "load_param_into_net", "save_checkpoint",
]  # fmt: skip
__all__ += vars(callback)["__all__"]
__all__ += vars(metrics)["__all__"]
