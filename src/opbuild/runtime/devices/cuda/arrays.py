"""Arrays of other libraries on a GPU, by ``__cuda_array_interface__``; none of these libraries is imported."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.runtime.devices.arrays import DeviceArray

_WITH_STREAM = 3
"""The first version of the interface that tells of the stream."""
_LEGACY = 1  # CU_STREAM_LEGACY
_ON_CUDA = 2  # kDLCUDA


def find(value: Any, card: int) -> DeviceArray | None:
    """Return the array that an object has on a GPU; None if it has none.

    Raises:
        ValueError: If it has one that cannot be copied.
    """
    try:
        interface = getattr(value, "__cuda_array_interface__", None)
    except Exception as error:  # whatever the other library raises
        raise ValueError(str(error)) from error
    if interface is None:
        return None
    _check_card(value, card)
    if interface.get("mask") is not None:
        raise ValueError("it has a mask")
    (address, is_read_only), shape = interface["data"], tuple(interface["shape"])
    dtype = np.dtype(interface["typestr"])
    if dtype == np.dtype("<V2"):
        dtype = numpy_dtype("bfloat16")  # whose name the interface does not know
    strides = interface.get("strides")
    if strides is not None and not _is_dense(shape, strides, dtype.itemsize):
        raise ValueError(f"it has strides of {', '.join(map(str, strides))} bytes; make it contiguous")
    return DeviceArray(address or 0, shape, dtype, value, _stream(value, interface), not is_read_only)


def _check_card(value: Any, card: int) -> None:
    """Refuse what another GPU has, where the object says so."""
    if hasattr(value, "__dlpack_device__"):
        kind, number = value.__dlpack_device__()
        if kind == _ON_CUDA and number != card:
            raise ValueError(f"it lies on GPU {number}, and networks run on GPU {card}")


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
        return int(torch.cuda.current_stream(value.device).cuda_stream) or _LEGACY
    return _LEGACY
