"""DLPack without numpy's help: a library that gives arrays on a GPU in memory, and one that takes them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p, py_object
from typing import Any, NamedTuple

import numpy as np

from support.gpu_arrays import GpuArray

CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
DELETER = ctypes.CFUNCTYPE(None, c_void_p)
READ_ONLY = 1


class Tensor(ctypes.Structure):
    """``DLTensor``."""

    _fields_ = (
        ("data", c_void_p), ("kind", c_int32), ("number", c_int32), ("rank", c_int32), ("code", c_uint8),
        ("bits", c_uint8), ("lanes", c_uint16), ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)), ("offset", c_uint64),
    )  # fmt: skip


class Managed(ctypes.Structure):
    """``DLManagedTensor``."""

    _fields_ = (("tensor", Tensor), ("context", c_void_p), ("deleter", DELETER))


class Versioned(ctypes.Structure):
    """``DLManagedTensorVersioned``."""

    _fields_ = (
        ("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", DELETER), ("flags", c_uint64),
        ("tensor", Tensor),
    )  # fmt: skip


NAMES: dict[bytes, Any] = {b"dltensor": Managed, b"dltensor_versioned": Versioned}
USED = {name: b"used_" + name for name in NAMES}

_new, _name, _pointer, _rename = (
    getattr(ctypes.pythonapi, f"PyCapsule_{each}") for each in ("New", "GetName", "GetPointer", "SetName")
)
_new.restype, _new.argtypes = py_object, [c_void_p, ctypes.c_char_p, c_void_p]
_name.restype, _name.argtypes = ctypes.c_char_p, [py_object]
_pointer.restype, _pointer.argtypes = c_void_p, [py_object, ctypes.c_char_p]
_rename.restype, _rename.argtypes = ctypes.c_int, [py_object, ctypes.c_char_p]


class DlpackArray:
    """An array of a library that shows it by DLPack alone.

    Args:
        array: The array; its own interface is not shown.
        versioned: Whether the library knows versions of capsules.
        changes: Fields of the tensor that differ, and ``flags`` and ``strides``.

    Attributes:
        streams: The streams that its users named.
        deleted: How often a deleter was called.
    """

    def __init__(self, array: GpuArray, *, versioned: bool = True, device: tuple[int, int] = (2, 0), **changes: Any):
        self.array, self.streams, self.deleted = array, list[Any](), 0
        self.shape, self.dtype = array.shape, array.dtype
        self._versioned, self._device, self._changes = versioned, device, changes
        self._kept: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        """Return a capsule; what its own stream was asked for is waited for by the one that is named."""
        if options and not self._versioned:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        self.streams.append(stream)
        driver = self.array._driver
        if self.array.stream is not None and stream is not None:
            wait_for(driver, self.array.stream, stream)
        managed = (Versioned if self._versioned else Managed)()
        changes = dict(self._changes)
        if isinstance(managed, Versioned):
            managed.major, managed.flags = 1, changes.pop("flags", 0)
        tensor, rank = managed.tensor, len(self.shape)
        shape = (c_int64 * rank)(*self.shape)
        strides = changes.pop("strides", None)
        tensor.data, (tensor.kind, tensor.number), tensor.rank = self.array.address, self._device, rank
        dtype = self.array.dtype
        tensor.code, tensor.bits, tensor.lanes = CODES.get(dtype.kind, 4), 8 * dtype.itemsize, 1
        tensor.shape = ctypes.cast(shape, ctypes.POINTER(c_int64))
        if strides is not None:
            steps = (c_int64 * rank)(*strides)
            tensor.strides = ctypes.cast(steps, ctypes.POINTER(c_int64))
            self._kept.append(steps)
        for name, value in changes.items():
            setattr(tensor, name, value)
        managed.deleter = DELETER(self._delete)
        self._kept += [managed, shape]
        name = b"dltensor_versioned" if self._versioned else b"dltensor"
        return _new(ctypes.addressof(managed), next(each for each in NAMES if each == name), None)

    def _delete(self, _: Any) -> None:
        self.deleted += 1


class Taken(NamedTuple):
    """An array that a library took; ``release`` lets go of it."""

    address: int
    device: tuple[int, int]
    shape: Sequence[int]
    kind: tuple[int, int]
    release: Any


def take(capsule: Any) -> Taken:
    """Take a capsule as a library does: it is used once, and its deleter is called at the end."""
    name = _name(capsule)
    place = _pointer(capsule, name)
    managed = NAMES[name].from_address(place)
    assert _rename(capsule, USED[name]) == 0
    tensor = managed.tensor
    shape = [tensor.shape[axis] for axis in range(tensor.rank)]
    steps = [tensor.strides[axis] for axis in range(tensor.rank)] if tensor.strides else None
    assert steps in (None, [int(np.prod(shape[axis + 1 :])) for axis in range(tensor.rank)])
    return Taken(
        tensor.data + tensor.offset, (tensor.kind, tensor.number), shape, (tensor.code, tensor.bits),
        lambda: managed.deleter(place),
    )  # fmt: skip


def wait_for(driver: Any, first: int, second: int) -> None:
    """Have a stream wait for another one, as a library does by an event."""
    event = c_uint64()
    assert driver.cuCtxSetCurrent(0xC0) == driver.cuEventCreate(ctypes.addressof(event), 2) == 0
    assert driver.cuEventRecord(event.value, first) == driver.cuStreamWaitEvent(second, event.value, 0) == 0
    assert driver.cuEventDestroy_v2(event.value) == 0
