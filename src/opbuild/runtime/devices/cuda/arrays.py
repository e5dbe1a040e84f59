"""Arrays of other libraries on a GPU, by ``__cuda_array_interface__`` or DLPack; none of them is imported."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.runtime.devices.arrays import DeviceArray
from opbuild.runtime.devices.dlpack import taken

_WITH_STREAM = 3
"""The first version of the interface that tells of the stream."""
LEGACY = 1  # CU_STREAMLEGACY
CUDA, _MANAGED = 2, 13  # kDLCUDA, kDLCUDAManaged


def find(value: Any, card: int, stream: int = LEGACY) -> DeviceArray | None:
    """Return the array that an object has on a GPU; None if it has none.

    DLPack tells an object of the stream that uses its array next, and nobody of the one that used it before: such an
    array has no stream of its own, and is ready for the given one.

    Args:
        value: The object.
        card: The number of the GPU.
        stream: Where its array is used.

    Raises:
        ValueError: If it has one that cannot be copied.
    """
    try:
        interface = getattr(value, "__cuda_array_interface__", None)
    except Exception as error:  # whatever the other library raises
        raise ValueError(str(error)) from error
    is_there = _is_on(value, card)
    if interface is None:
        return _taken(value, stream) if is_there else None
    if interface.get("mask") is not None:
        raise ValueError("it has a mask")
    (address, is_read_only), shape = interface["data"], tuple(interface["shape"])
    dtype = np.dtype(interface["typestr"])
    if dtype == np.dtype("<V2"):
        dtype = numpy_dtype("bfloat16")  # whose name the interface does not know
    strides = interface.get("strides")
    if strides is not None and not _is_dense(shape, strides, dtype.itemsize):
        raise _not_dense(strides)
    return DeviceArray(address or 0, shape, dtype, value, _stream(value, interface), not is_read_only)


def _is_on(value: Any, card: int) -> bool:
    """Return whether an object says by DLPack that it is on the GPU; what is on another one is refused."""
    if not hasattr(value, "__dlpack_device__"):
        return False
    try:
        kind, number = value.__dlpack_device__()
    except Exception as error:  # whatever the other library raises
        raise ValueError(str(error)) from error
    if kind not in (CUDA, _MANAGED):
        return False
    if number != card:
        raise ValueError(f"it lies on GPU {number}, and networks run on GPU {card}")
    return True


def _taken(value: Any, stream: int) -> DeviceArray:
    array = taken(value, stream)
    if not _is_dense(array.shape, array.strides, array.itemsize):
        raise _not_dense(array.strides)
    return DeviceArray(
        array.ctypes.data, array.shape, array.dtype, value, None, is_writeable=array.flags.writeable, held=array
    )


def _not_dense(strides: Sequence[int]) -> ValueError:
    return ValueError(f"it has strides of {', '.join(map(str, strides))} bytes; make it contiguous")


def _is_dense(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> bool:
    """Return whether elements lie in row-major order without gaps."""
    expected = itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != expected:
            return 0 in shape
        expected *= extent
    return True


def _stream(value: Any, interface: Mapping[str, Any]) -> int | None:
    """Return the stream of who gives an array: what the interface says, torch's current one, or else the default one.

    Torch's interface is of a version without streams.
    """
    if interface.get("version", 0) >= _WITH_STREAM:
        stream: int | None = interface.get("stream")
        return stream
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return int(torch.cuda.current_stream(value.device).cuda_stream) or LEGACY
    return LEGACY
