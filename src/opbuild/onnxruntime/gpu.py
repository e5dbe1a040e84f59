"""Memory on a GPU for values and bindings: opbuild's own, or the program's at an address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.runtime.devices.cuda.outputs import CudaArray
from opbuild.runtime.devices.device import open_device

CUDA = "cuda"


def _device() -> Any:
    return open_device(CUDA)


def is_there(value: Any) -> bool:
    """Return whether a value's tensor lies on the GPU."""
    return isinstance(value, CudaArray)


def made(shape: Sequence[int], dtype: np.dtype[Any]) -> CudaArray:
    """Return a tensor on the GPU whose contents are not set."""
    found: CudaArray = _device().make(tuple(shape), dtype)
    return found


def array_at(address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> CudaArray:
    """Return the tensor on the GPU that the program has at an address, in the order of the default stream."""
    found: CudaArray = _device().at(address, tuple(shape), dtype)
    return found


def uploaded(array: np.ndarray[Any, Any]) -> CudaArray:
    """Return a copy of an array on the GPU."""
    found: CudaArray = _device().uploaded(array)
    return found


def copy_over(target: CudaArray, source: np.ndarray[Any, Any] | CudaArray) -> None:
    """Copy an array, or a tensor on the GPU, over one there; it is done when this returns."""
    device = _device()
    if isinstance(source, CudaArray):
        device.copy(target.address, source.address, target.nbytes)
    else:
        device.write(target.address, source)
    device.synchronize()


def synchronize() -> None:
    """Wait for all that the GPU was asked for."""
    _device().synchronize()
