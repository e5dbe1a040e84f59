"""MindSpore's interface on opbuild: ``Tensor``, ``Parameter``, ``nn``, ``ops``, ``context`` and element types.

``opbuild run SCRIPT.py`` lets ``import mindspore`` find this package. It builds, runs and trains networks.
"""

import sys

from opbuild.mindspore import amp, communication, context, dtype, methods, names, nn, ops, seeds, train
from opbuild.mindspore.check import run_check
from opbuild.mindspore.context import *
from opbuild.mindspore.conversion import ckpt_to_safetensors, load_checkpoint_async, safetensors_to_ckpt
from opbuild.mindspore.dtype import *
from opbuild.mindspore.gradients import GradOperation, get_grad, grad, value_and_grad
from opbuild.mindspore.initializer import get_seed, set_seed
from opbuild.mindspore.jit import jit, jit_class, ms_function, mutable
from opbuild.mindspore.parameter import Parameter, ParameterTuple
from opbuild.mindspore.seeds import *
from opbuild.mindspore.tensor import Tensor, frombuffer, is_tensor, tensor
from opbuild.mindspore.train import *

methods.attach()
vars(ops).update(GradOperation=GradOperation, grad=grad, value_and_grad=value_and_grad)  # MindSpore has them there

common = sys.modules[__name__]
"""MindSpore keeps tensors, initializers and element types below ``common``; here they are one module."""

__getattr__ = names.getter(__name__, lazy=("dataset", "initializer", "mint", "numpy", "parallel"))

from_numpy = Tensor.from_numpy
__version__ = "2.10.0"
"""The version of MindSpore whose interface this is."""

__all__ = [
    "Parameter", "ParameterTuple", "Tensor", "amp", "ckpt_to_safetensors", "communication", "context", "dtype",
    "from_numpy", "frombuffer", "get_grad", "get_seed", "grad", "is_tensor", "jit", "jit_class",
    "load_checkpoint_async", "ms_function", "mutable", "nn", "ops", "run_check", "safetensors_to_ckpt", "set_seed",
    "tensor", "train", "value_and_grad",
]  # fmt: skip
__all__ += context.__all__
__all__ += dtype.__all__
__all__ += seeds.__all__
__all__ += train.__all__
