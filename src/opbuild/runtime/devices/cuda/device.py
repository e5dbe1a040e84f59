"""The process's GPU as a device: code, memory, copies. Nothing of the driver is loaded before it is needed.

Code is linked without a GPU, so that networks for one are built on any machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.kernel.artifact import Artifact
from opbuild.platform.locks import Lock
from opbuild.platform.records import dataclass
from opbuild.runtime.devices.arrays import DeviceArray
from opbuild.runtime.devices.cuda.arrays import LEGACY, find
from opbuild.runtime.devices.cuda.calls import CudaCalls
from opbuild.runtime.devices.cuda.code import CudaModule, link
from opbuild.runtime.devices.cuda.context import Context
from opbuild.runtime.devices.cuda.outputs import CudaArray
from opbuild.runtime.devices.cuda.staging import Staging
from opbuild.runtime.devices.device import KernelCalls


class CudaMemory:
    """Memory of a GPU; it goes with this object, once what is under way is done.

    Args:
        context: Where it is.
        nbytes: Its size.
        is_shared: Whether other libraries may use it.

    Raises:
        RunError: If there is none.
    """

    def __init__(self, context: Context, nbytes: int, *, is_shared: bool = False) -> None:
        context.enter()
        self.address, self.nbytes = context.allocate(nbytes), nbytes
        context.give_back(self, "cuMemFree_v2", self.address, is_shared=is_shared)


@dataclass
class ForeignMemory:
    """Memory of a GPU that others keep."""

    address: int
    nbytes: int


class CudaDevice:
    """The first GPU that the driver shows; see ``Device``.

    Args:
        library: The driver's library; default: the system's.
    """

    def __init__(self, library: Any = None) -> None:
        self._library = library
        self._lock = Lock()
        self._context: Context | None = None
        self._staging: Staging | None = None

    @property
    def context(self) -> Context:
        """The process's context, made when it is first asked for.

        Raises:
            TargetError: If there is no GPU that is served.
            DriverError: If it gives no context.
        """
        if self._context is None:
            with self._lock:
                if self._context is None:
                    self._context = Context(self._library)
        return self._context

    def require(self) -> None:
        """Refuse to go on without a GPU.

        Raises:
            TargetError: If there is none that is served.
        """
        self.context.enter()

    def link(self, artifacts: Sequence[Artifact], /) -> bytes:
        """Return the binaries, each with how it is launched.

        Raises:
            LinkError: If one is not a GPU's.
        """
        return link(artifacts)

    def load(self, code: bytes, /) -> CudaModule:
        """Return code, loaded.

        Raises:
            LinkError: If it cannot be loaded.
            TargetError: If there is no GPU that is served.
        """
        return CudaModule(self.context, code)

    def prepare(self, calls: KernelCalls, /) -> CudaCalls:
        """Return calls, made ready."""
        return CudaCalls(self.context, calls)

    def allocate(self, nbytes: int, /) -> CudaMemory:
        """Return memory that holds zeros.

        Raises:
            RunError: If there is none.
        """
        memory = CudaMemory(self.context, nbytes)
        self.clear(memory.address, nbytes)
        return memory

    def clear(self, address: int, nbytes: int, /) -> None:
        """Write zeros, after all that was asked for before."""
        if nbytes:
            self.context.enter()
            self.context.call("cuMemsetD8Async", address, 0, nbytes, self.context.stream)

    def write(self, address: int, source: Array, /) -> None:
        """Copy from the host, after all that was asked for before; ``source`` may be changed when it returns."""
        if not source.nbytes:
            return
        context = self.context
        context.enter()
        with self._lock:
            if self._staging is None:
                self._staging = Staging(context)
            self._staging.write(address, source)

    def read(self, address: int, target: Array, /) -> None:
        """Copy to the host, after all that was asked for before; it is there when it returns.

        Raises:
            RunError: If a call failed that was asked for before.
        """
        context = self.context
        context.enter()
        if target.nbytes:
            context.call("cuMemcpyDtoHAsync_v2", target.ctypes.data, address, target.nbytes, context.stream)
        context.wait()

    def find(self, value: Any, /) -> DeviceArray | None:
        """Return the array that an object has on the GPU; see ``SharingDevice``.

        Raises:
            ValueError: If it has one that cannot be copied.
        """
        return find(value, self.context.card.number, self.context.stream)

    def make(self, shape: tuple[int, ...], dtype: np.dtype[Any], /) -> CudaArray:
        """Return an array of its own; see ``SharingDevice``.

        Raises:
            RunError: If there is no memory.
        """
        memory = CudaMemory(self.context, prod(shape) * dtype.itemsize, is_shared=True)
        return CudaArray(self.context, memory, shape, dtype, self.read)

    def uploaded(self, array: Array, /) -> CudaArray:
        """Return a copy of an array of the host; it is done when this returns.

        Raises:
            RunError: If there is no memory.
        """
        made = self.make(array.shape, array.dtype)
        self.write(made.address, array)
        self.synchronize()
        return made

    def at(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], /) -> CudaArray:
        """Return the array that a program has at an address, in the order of the default stream."""
        memory = ForeignMemory(address, prod(shape) * dtype.itemsize)
        return CudaArray(self.context, memory, shape, dtype, self.read, LEGACY)

    def copy(self, target: int, source: int, nbytes: int, /) -> None:
        """Copy on the GPU, after all that was asked for before."""
        if nbytes:
            self.context.enter()
            self.context.call("cuMemcpyDtoDAsync_v2", target, source, nbytes, self.context.stream)

    def follow(self, stream: int | None, /) -> None:
        """Have what is asked for from now on done after all that a stream was asked for."""
        if stream is not None:
            self.context.enter()
            self.context.order(stream, self.context.stream)

    def precede(self, stream: int | None, /) -> None:
        """Have what a stream is asked for from now on done after all that was asked for here; see ``SharingDevice``."""
        self.context.enter()
        if stream is None:
            self.context.wait()
        else:
            self.context.order(self.context.stream, stream)

    def synchronize(self) -> None:
        """Wait until all is done that was asked for.

        Raises:
            RunError: If a call failed.
        """
        if self._context is not None:
            self._context.enter()
            self._context.wait()
