"""Writes to a GPU: small ones through memory that the driver copies from on its own, large ones awaited.

A copy from plain memory may go on after the driver returned, and what it reads is the caller's, who may change it then.
"""

from __future__ import annotations

import ctypes

import numpy as np

from opbuild.graph.types import Array
from opbuild.runtime.devices.cuda.context import Context
from opbuild.runtime.devices.cuda.driver import DriverError

_ROOM = 4 << 20
"""Bytes of memory that small writes go through. When it is full, what is under way is awaited once."""
_SMALL = 1 << 20
_ALIGNMENT = 64


class Staging:
    """Writes of one thread at a time.

    Args:
        context: Where.
    """

    def __init__(self, context: Context) -> None:
        self._context, self._end = context, 0
        try:
            address = context.handle("cuMemHostAlloc", _ROOM, 0)
            self._memory: Array = np.ctypeslib.as_array((ctypes.c_ubyte * _ROOM).from_address(address))
        except DriverError as error:  # as where little may be locked: then each write is awaited
            if error.is_fatal:
                raise
            self._memory = np.zeros(0, np.uint8)

    def write(self, address: int, source: Array) -> None:
        """Copy from the host to the GPU, behind all that was asked for before."""
        nbytes, context = source.nbytes, self._context
        is_small = nbytes <= min(_SMALL, len(self._memory))
        if is_small:
            if self._end + nbytes > len(self._memory):
                context.wait()
                self._end = 0
            staged = self._memory[self._end : self._end + nbytes]
            staged[:] = np.ascontiguousarray(source).reshape(-1).view(np.uint8)
            self._end += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
            source = staged
        source = np.ascontiguousarray(source)
        context.call("cuMemcpyHtoDAsync_v2", address, source.ctypes.data, nbytes, context.stream)
        if not is_small:
            context.wait()
