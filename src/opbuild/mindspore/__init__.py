"""MindSpore's interface on opbuild: ``Tensor``, ``Parameter``, ``nn``, ``ops``, ``context`` and element types.

``opbuild run SCRIPT.py`` lets ``import mindspore`` find this package. It builds and runs networks and does not
train them.
"""

import sys

from opbuild.mindspore import communication, context, dtype, methods, names, nn, ops
from opbuild.mindspore.check import run_check
from opbuild.mindspore.checkpoint import load_checkpoint, load_param_into_net, save_checkpoint
from opbuild.mindspore.context import (
    COMPATIBLE,
    GRAPH_MODE,
    LAX,
    PYNATIVE_MODE,
    STRICT,
    get_context,
    get_current_device,
    set_context,
    set_device,
)  # fmt: skip
from opbuild.mindspore.conversion import ckpt_to_safetensors, load_checkpoint_async, safetensors_to_ckpt
from opbuild.mindspore.dtype import (
    Type,
    bool_,
    byte,
    double,
    dtype_to_nptype,
    dtype_to_pytype,
    float16,
    float32,
    float64,
    float_,
    half,
    int8,
    int16,
    int32,
    int64,
    int_,
    intc,
    intp,
    long,
    pytype_to_dtype,
    short,
    single,
    ubyte,
    uint,
    uint8,
    uint16,
    uint32,
    uint64,
    uintc,
    uintp,
    ushort,
)  # fmt: skip
from opbuild.mindspore.initializer import get_seed, set_seed
from opbuild.mindspore.jit import jit, jit_class, ms_function, mutable
from opbuild.mindspore.model import Model
from opbuild.mindspore.parameter import Parameter, ParameterTuple
from opbuild.mindspore.seeds import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)  # fmt: skip
from opbuild.mindspore.tensor import Tensor, frombuffer, is_tensor, tensor

methods.attach()

common = sys.modules[__name__]
"""MindSpore keeps tensors, initializers and element types below ``common``; here they are one module."""

__getattr__ = names.getter(__name__, lazy=("initializer", "mint", "numpy"))

from_numpy = Tensor.from_numpy
__version__ = "2.10.0"
"""The version of MindSpore whose interface this is."""

__all__ = [
    "COMPATIBLE",
    "GRAPH_MODE",
    "LAX",
    "PYNATIVE_MODE",
    "STRICT",
    "Generator",
    "Model",
    "Parameter",
    "ParameterTuple",
    "Tensor",
    "Type",
    "bool_",
    "byte",
    "ckpt_to_safetensors",
    "communication",
    "context",
    "default_generator",
    "double",
    "dtype",
    "dtype_to_nptype",
    "dtype_to_pytype",
    "float16",
    "float32",
    "float64",
    "float_",
    "from_numpy",
    "frombuffer",
    "get_context",
    "get_current_device",
    "get_rng_state",
    "get_seed",
    "half",
    "initial_seed",
    "int8",
    "int16",
    "int32",
    "int64",
    "int_",
    "intc",
    "intp",
    "is_tensor",
    "jit",
    "jit_class",
    "load_checkpoint",
    "load_checkpoint_async",
    "load_param_into_net",
    "long",
    "manual_seed",
    "ms_function",
    "mutable",
    "nn",
    "ops",
    "pytype_to_dtype",
    "run_check",
    "safetensors_to_ckpt",
    "save_checkpoint",
    "seed",
    "set_context",
    "set_device",
    "set_rng_state",
    "set_seed",
    "short",
    "single",
    "tensor",
    "ubyte",
    "uint",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "uintc",
    "uintp",
    "ushort",
]  # fmt: skip
