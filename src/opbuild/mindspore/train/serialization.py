"""``mindspore.train.serialization``: where older scripts import checkpoints' functions from."""

from opbuild.mindspore.checkpoint import load_checkpoint, load_param_into_net, save_checkpoint

__all__ = ["load_checkpoint", "load_param_into_net", "save_checkpoint"]
