"""MindSpore's interface on opbuild: ``Tensor``, ``Parameter``, ``nn``, ``ops``, ``context`` and element types.

``opbuild run SCRIPT.py`` lets ``import mindspore`` find this package. It builds, runs and trains networks.
"""

import sys

from opbuild.mindspore import amp, communication, context, dtype, functions, methods, names, nn, ops, seeds, train
from opbuild.mindspore.checkpoint import ckpt_to_safetensors, load_checkpoint_async, safetensors_to_ckpt
from opbuild.mindspore.context import *
from opbuild.mindspore.dtype import *
from opbuild.mindspore.functions import *
from opbuild.mindspore.initializer import get_seed, set_seed
from opbuild.mindspore.parameter import Parameter, ParameterTuple
from opbuild.mindspore.seeds import *
from opbuild.mindspore.tensor import Tensor, frombuffer, is_tensor, tensor
from opbuild.mindspore.train import *

methods.attach()
GradOperation = ops.GradOperation = functions.GradOperation  # MindSpore has it and its kin there
ops.grad, ops.value_and_grad = functions.grad, functions.value_and_grad

common = sys.modules[__name__]
"""MindSpore keeps tensors, initializers and element types below ``common``; here they are one module."""

__getattr__ = names.getter(__name__, lazy=("dataset", "initializer", "mint", "numpy", "parallel"))

from_numpy = Tensor.from_numpy
__version__ = "2.10.0"
"""The version of MindSpore whose interface this is."""

__all__ = [
    "Parameter", "ParameterTuple", "Tensor", "amp", "ckpt_to_safetensors", "communication", "context", "dtype",
    "from_numpy", "frombuffer", "get_seed", "is_tensor", "load_checkpoint_async", "nn", "ops", "safetensors_to_ckpt",
    "set_seed", "tensor", "train",
]  # fmt: skip
__all__ += functions.__all__
__all__ += context.__all__
__all__ += dtype.__all__
__all__ += seeds.__all__
__all__ += train.__all__
