"""``mindspore.numpy``: the functions of ``ops``, and some of numpy itself on data, with numpy's arguments."""

from opbuild.mindspore import names
from opbuild.mindspore.dtype import (
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from opbuild.mindspore.numpy import creation, elementwise, on_arrays, shapes

float_, int_ = float32, int32
_FUNCTIONS = {**elementwise.FUNCTIONS, **shapes.FUNCTIONS, **creation.FUNCTIONS, **on_arrays.FUNCTIONS}

globals().update(_FUNCTIONS)
__getattr__ = names.getter(__name__)
__all__ = [*_FUNCTIONS]
__all__ += [
    "bool_", "float16", "float32", "float64", "float_", "int8", "int16", "int32", "int64", "int_", "uint8", "uint16",
    "uint32", "uint64",
]  # fmt: skip
