"""Arrays of another library on the GPU that the driver in memory stands for: that library's memory and its streams."""

from __future__ import annotations

import ctypes
from functools import partial
from math import prod
from typing import Any

import numpy as np

from support.fake_driver import FakeDriver

Array = Any


class GpuArray:
    """An array as ``__cuda_array_interface__`` shows it; its memory is freed by ``free``.

    Args:
        driver: The driver in memory, whose context must be this thread's.
        contents: What it holds once its stream has come to that.
        stream: Where its library works; None: the interface says that nobody has to wait.
        changes: Entries of the interface that differ.
    """

    def __init__(self, driver: FakeDriver, contents: Array, stream: int | None = None, **changes: Any) -> None:
        self._driver, self.stream, self.contents = driver, stream, np.ascontiguousarray(contents)
        self.shape, self.dtype = self.contents.shape, self.contents.dtype
        place = ctypes.c_uint64()
        assert driver.cuCtxSetCurrent(0xC0) == 0
        assert driver.cuMemAlloc_v2(ctypes.addressof(place), max(self.contents.nbytes, 1)) == 0
        self.address = place.value
        self._changes = changes
        self.put(self.contents)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found = {"shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False), "version": 3,
                 "stream": self.stream, **self._changes}  # fmt: skip
        return {name: value for name, value in found.items() if value is not ...}

    def put(self, contents: Array) -> None:
        """Write contents, as late as its stream does."""
        taken = np.ascontiguousarray(contents).reshape(-1).view(np.uint8).copy()
        work = partial(self._set, taken)
        if self.stream is None:
            work()
        else:
            self._driver._ask(self.stream, work)

    def _set(self, taken: Array) -> None:
        self._driver.bytes_at(self.address, taken.nbytes)[...] = taken

    def seen(self) -> Array:
        """Return the contents as its library reads them, on its stream; without one at once."""
        if self.stream is not None:
            assert self._driver.cuStreamSynchronize(self.stream) == 0
        nbytes = prod(self.shape) * self.dtype.itemsize
        return self._driver.bytes_at(self.address, nbytes).copy().view(self.dtype).reshape(self.shape)

    def free(self) -> None:
        """Give its memory back in the order of its stream, as a library's allocator does: others may have it then."""
        work = partial(self._driver.memory.pop, self.address)
        if self.stream is None:
            work()
        else:
            self._driver._ask(self.stream, work)


def new_stream(driver: FakeDriver) -> int:
    """Return a stream of another library's."""
    place = ctypes.c_uint64()
    assert driver.cuInit(0) == driver.cuCtxSetCurrent(0xC0) == 0
    assert driver.cuStreamCreate(ctypes.addressof(place), 1) == 0
    return place.value
