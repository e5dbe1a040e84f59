"""Outputs of networks that stay on a GPU, for other libraries: ``__cuda_array_interface__`` and DLPack."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.runtime.devices.cuda.arrays import CUDA, LEGACY
from opbuild.runtime.devices.cuda.context import Context
from opbuild.runtime.devices.device import DeviceMemory
from opbuild.runtime.devices.dlpack import HOST, given

_NO_STREAM = -1


class CudaArray:
    """An output of a network on a GPU, which others read where it is: ``torch.from_dlpack(y)``, ``cupy.asarray(y)``.

    Args:
        context: The GPU's.
        memory: Its memory, which goes back when neither it nor another library has it.
        shape: Its shape.
        dtype: Its element type.
        read: Copies from the GPU to the host.
        stream: The order in which it is written and read; default: the GPU's own.
    """

    def __init__(
        self,
        context: Context,
        memory: DeviceMemory,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        read: Callable[[int, Array], None],
        stream: int | None = None,
    ) -> None:
        self._context, self._memory, self._read = context, memory, read
        self.shape, self.dtype = shape, dtype
        self._stream = context.stream if stream is None else stream

    def __repr__(self) -> str:
        return f"<array on the GPU: {self.dtype.name} {list(self.shape)}>"

    @property
    def address(self) -> int:
        """Where it begins."""
        return self._memory.address

    @property
    def nbytes(self) -> int:
        """Its size."""
        return prod(self.shape) * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Where it lies, and the stream on which it is written."""
        typestr = "<V2" if self.dtype.name == "bfloat16" else self.dtype.str
        return {"shape": self.shape, "typestr": typestr, "data": (self._memory.address, False), "strides": None,
                "version": 3, "stream": self._stream}  # fmt: skip

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self._context.card.number

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a capsule, once the stream that reads it waits for what writes it; -1: no stream waits.

        Raises:
            BufferError: If it is asked for elsewhere, or as a copy.
        """
        if dl_device is not None and tuple(dl_device) == HOST:
            if copy is False:
                raise BufferError("an array on the GPU is not the CPU's without a copy")
            host = np.asarray(self)
            return host.__dlpack__() if max_version is None else host.__dlpack__(max_version=max_version)
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("an array on the GPU is given there, and not copied")
        if stream == 0:
            raise BufferError("stream 0 is ambiguous: give 1 for the default stream, 2 for the thread's own")
        if stream != _NO_STREAM:
            self._context.enter()
            self._context.order(self._stream, LEGACY if stream is None else stream)
        return given(self._memory, self._memory.address, self.shape, self.dtype, self.__dlpack_device__(), max_version)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Return a copy in the host's memory."""
        if copy is False:
            raise ValueError("an array on the GPU is not numpy's without a copy")
        made = np.empty(self.shape, self.dtype)
        self._context.enter()
        self._context.order(self._stream, self._context.stream)
        self._read(self._memory.address, made)
        return made if dtype is None else made.astype(dtype, copy=False)
