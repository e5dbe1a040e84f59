"""DLPack's capsules of memory that is a device's, read and made by numpy: it never looks at what an array holds.

Numpy takes and makes capsules of the host's memory alone, with deleters in C that anybody may call. So what a capsule
says of its device is changed while numpy takes it, and after numpy made it; so are element types that numpy lacks.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int32, c_uint8, c_uint16, c_void_p, py_object
from typing import Any

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.graph.types import Array
from opbuild.platform.files.mapping import ShownMemory

HOST = (1, 0)  # kDLCPU
VERSION = (1, 0) if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else None
"""The greatest version of capsules that numpy knows; None: those of before versions."""

_UNSIGNED, _BFLOAT = 1, 4
_CODES = {_BFLOAT: "bfloat16", 10: "float8_e4m3fn", 11: "float8_e4m3fnuz", 12: "float8_e5m2", 13: "float8_e5m2fnuz",
          14: "float8_e8m0fnu"}  # fmt: skip
"""Element types that numpy's capsules lack, by the protocol's codes: numpy has integers of their size."""


class _Tensor(ctypes.Structure):
    """An array as a capsule says it: ``DLTensor`` of ``dlpack.h``."""

    _fields_ = (
        ("data", c_void_p), ("kind", c_int32), ("number", c_int32), ("rank", c_int32), ("code", c_uint8),
        ("bits", c_uint8), ("lanes", c_uint16), ("shape", c_void_p), ("strides", c_void_p), ("offset", ctypes.c_uint64),
    )  # fmt: skip


_PLACES = {b"dltensor": 0, b"dltensor_versioned": 32}
"""Where it lies in what a capsule holds, by the capsule's name."""

_name, _pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
_name.restype, _name.argtypes = c_char_p, [py_object]
_pointer.restype, _pointer.argtypes = c_void_p, [py_object, c_char_p]


def _tensor_of(capsule: Any) -> _Tensor:
    """Return the array of a capsule, as that says it; one that is none or was taken before is refused."""
    try:
        name = _name(capsule)
        return _Tensor.from_address(_pointer(capsule, name) + _PLACES[name])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError("its __dlpack__ gave no capsule that can be taken") from error


class _Given:
    """Gives numpy a capsule as one of the host's."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return HOST


def taken(value: Any, stream: Any) -> Array:
    """Return an object's array on a device: its address, shape and strides alone are to be looked at.

    The object's memory is kept until the array is gone.

    Args:
        value: The object.
        stream: What reads or writes the array next, as the protocol numbers streams of the device.

    Raises:
        ValueError: If it gives none, in its own words, or one of an element type that numpy lacks.
    """
    try:
        capsule = _capsule_of(value, stream)
    except Exception as error:  # whatever the other library raises
        raise ValueError(str(error) or type(error).__name__) from error
    tensor = _tensor_of(capsule)
    device, code = (tensor.kind, tensor.number), tensor.code
    tensor.kind, tensor.number = HOST
    if code in _CODES:
        tensor.code = _UNSIGNED
    try:
        array: Array = np.from_dlpack(_Given(capsule))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"its element type is none that arrays have: {error}") from error
    finally:
        tensor.kind, tensor.number, tensor.code = *device, code
    return array.view(numpy_dtype(_CODES[code])) if code in _CODES else array


def _capsule_of(value: Any, stream: Any) -> Any:
    if VERSION is not None:
        try:
            return value.__dlpack__(stream=stream, max_version=VERSION)
        except TypeError:  # it is of before versions
            pass
    return value.__dlpack__(stream=stream)


def given(
    owner: Any, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], device: tuple[int, int], version: Any
) -> Any:
    """Return a capsule of a dense array on a device.

    Args:
        owner: Keeps the memory; let go of when the capsule's user is done.
        address: Where the array begins.
        shape: Its shape.
        dtype: Its element type.
        device: The device, as the protocol numbers it.
        version: The greatest version that the user takes; None: one of before versions.

    Raises:
        BufferError: If the protocol has no such element type.
    """
    code = next((each for each, name in _CODES.items() if name == dtype.name), None)
    typestr = dtype.str if code is None else f"<u{dtype.itemsize}"
    array = np.asarray(ShownMemory(address, shape, typestr, owner))
    is_versioned = VERSION is not None and version is not None and tuple(version) >= VERSION
    capsule = array.__dlpack__(max_version=VERSION) if is_versioned else array.__dlpack__()
    tensor = _tensor_of(capsule)
    tensor.kind, tensor.number = device
    if code is not None:
        tensor.code = code
    return capsule
