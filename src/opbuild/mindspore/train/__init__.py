"""What of ``mindspore.train`` concerns networks that run: checkpoints, and to predict. Nothing is trained here."""

from opbuild.mindspore import names
from opbuild.mindspore.checkpoint import load_checkpoint, load_param_into_net, save_checkpoint
from opbuild.mindspore.model import Model

__getattr__ = names.getter(__name__)

__all__ = ["Model", "load_checkpoint", "load_param_into_net", "save_checkpoint"]
