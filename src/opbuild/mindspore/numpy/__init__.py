"""``mindspore.numpy``: the functions of ``ops``, and some of numpy itself on data, with numpy's arguments."""

from opbuild.mindspore import dtype, names
from opbuild.mindspore.numpy.functions import FUNCTIONS
from opbuild.mindspore.ops.declaration import name_table

_TYPES = [
    "bool_", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip
_NAMES = {**FUNCTIONS, "float_": dtype.float32, "int_": dtype.int32, **{name: vars(dtype)[name] for name in _TYPES}}

name_table(FUNCTIONS, __name__, "Return ``{}`` of tensors, with the arguments of numpy.")
globals().update(_NAMES)
__getattr__ = names.getter(__name__)
__all__ = [*_NAMES]
