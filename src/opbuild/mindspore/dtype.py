"""Element types: ``mindspore.float32`` and its kin."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from opbuild.dtypes import is_float, numpy_dtype
from opbuild.mindspore.arguments import ArgumentTypeError

__all__ = [
    "Type", "bfloat16", "bool_", "byte", "double", "dtype_to_nptype", "dtype_to_pytype", "float16", "float32",
    "float64", "float_", "half", "int8", "int16", "int32", "int64", "int_", "intc", "intp", "long",
    "pytype_to_dtype", "short", "single", "ubyte", "uint", "uint8", "uint16", "uint32", "uint64", "uintc", "uintp",
    "ushort",
]  # fmt: skip


class Type:
    """An element type. ``str`` gives MindSpore's class name (``Float32``), ``repr`` the public one.

    Attributes:
        name: The numpy name.
        code: ONNX's number of this type, the ``to`` of a Cast.
    """

    __slots__ = ("_label", "code", "name")

    def __init__(self, name: str, label: str, code: builtins.int) -> None:
        self.name = name
        self._label = label
        self.code = code

    def __str__(self) -> str:
        return self._label

    def __repr__(self) -> str:
        return f"mindspore.{self.name}"

    def __eq__(self, other: object) -> builtins.bool:
        return isinstance(other, Type) and other.name == self.name

    def __hash__(self) -> builtins.int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return to_type, (self.name,)


class Kind(Type):
    """A kind of numbers: ``mindspore.float_``, ``int_``, ``uint``. Functions that take one take it as of 32 bits."""

    __slots__ = ("public",)

    def __init__(self, public: str, label: str) -> None:
        super().__init__(public.rstrip("_"), label, 0)
        self.public = public

    def __reduce__(self) -> str:  # type: ignore[override]
        return self.public


bool_ = Type("bool", "Bool", 9)
int8 = Type("int8", "Int8", 3)
int16 = Type("int16", "Int16", 5)
int32 = Type("int32", "Int32", 6)
int64 = Type("int64", "Int64", 7)
uint8 = Type("uint8", "UInt8", 2)
uint16 = Type("uint16", "UInt16", 4)
uint32 = Type("uint32", "UInt32", 12)
uint64 = Type("uint64", "UInt64", 13)
float16 = Type("float16", "Float16", 10)
float32 = Type("float32", "Float32", 1)
float64 = Type("float64", "Float64", 11)
bfloat16 = Type("bfloat16", "BFloat16", 16)

float_, int_, uint = Kind("float_", "Float"), Kind("int_", "Int"), Kind("uint", "UInt")

bool = bool_
int = int32
float = float32
byte, short, intc, long, intp = int8, int16, int32, int64, int64
ubyte, ushort, uintc, uintp = uint8, uint16, uint32, uint64
half, single, double = float16, float32, float64

TYPES = (bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, float32, float64, bfloat16)
_BY_NAME = {type_.name: type_ for type_ in TYPES}
_PYTHON: dict[object, Type] = {builtins.bool: bool_, builtins.int: int64, builtins.float: float32}


def to_type(value: object) -> Type:
    """Return the element type of a ``Type``, a numpy dtype or class, a Python type or a numpy name, else refuse it."""
    if isinstance(value, Kind):
        value = f"{value.name}32"
    if isinstance(value, type) and value in _PYTHON:
        return _PYTHON[value]
    name = value.name if isinstance(value, Type) else value
    try:
        return _BY_NAME[numpy_dtype(name).name]  # of bfloat16 numpy knows from here on
    except (TypeError, KeyError):
        allowed = ", ".join(_BY_NAME)
        raise ArgumentTypeError(
            f"{value!r} is not an element type that opbuild knows", f"use one of {allowed}"
        ) from None


def dtype_to_nptype(type_: Type) -> type[np.generic]:
    """Return the numpy class of an element type; that of bfloat16 is ``ml_dtypes``'."""
    return numpy_dtype(type_.name).type


def dtype_to_pytype(type_: Type) -> type:
    """Return the Python type that holds one element."""
    name = to_type(type_).name
    if is_float(name):
        return builtins.float
    return builtins.bool if name == "bool" else builtins.int


def pytype_to_dtype(value: object) -> Type:
    """Return the element type of a Python or numpy type."""
    return to_type(value)
