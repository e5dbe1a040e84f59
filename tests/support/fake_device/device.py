"""The fake device: memory that nobody else can read, and a stream of calls that the test drives."""

from __future__ import annotations

import json
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import LinkError, RunError
from opbuild.kernel.artifact import Artifact
from opbuild.platform.records import NamedTuple
from opbuild.runtime.devices.arrays import DeviceArray
from opbuild.runtime.devices.device import KernelCalls, Step

Array = Any
FIRST = 1 << 44
"""The first address: what takes it for one of the host's dies."""


class FakeMemory:
    """Memory at an address of the device's own."""

    def __init__(self, address: int, nbytes: int, free: Callable[[], None]) -> None:
        self.address, self.nbytes, self._free = address, nbytes, free
        self.contents = np.zeros(nbytes, np.uint8)

    def __del__(self) -> None:
        """Give it back, once what is under way is done."""
        self._free()


class SharedArray(NamedTuple):
    """An array of another library on the device."""

    memory: FakeMemory
    shape: tuple[int, ...]
    dtype: str


class FakeDevice:
    """See the module.

    Attributes:
        pending: What was asked for and is not done yet, in order.
        patience: How many calls at most wait; when there are more, the first is done.
        longest: How many calls have waited at once.
        launched: The kernels that were called, in order.
        copied: Bytes that were copied to the device and from it.
    """

    def __init__(self) -> None:
        self.pending: deque[tuple[str, Callable[[], None]]] = deque()
        self.patience, self.longest = 1 << 30, 0
        self.launched: list[str] = []
        self.copied = [0, 0]
        self._failed: RunError | None = None
        self._next = FIRST
        self._memories: WeakValueDictionary[int, FakeMemory] = WeakValueDictionary()
        self._lock = threading.RLock()

    # -- what ``Device`` has ------------------------------------------------------------------------------------------

    def link(self, artifacts: Sequence[Artifact], /) -> bytes:
        """Return all sources as JSON."""
        return json.dumps([[each.symbol, each.data.decode(), each.launch["operands"]] for each in artifacts]).encode()

    def load(self, code: bytes, /) -> FakeModule:
        """Return the kernels of ``link``."""
        try:
            return FakeModule({name: (source, count) for name, source, count in json.loads(code)})
        except (ValueError, TypeError) as error:
            raise LinkError(f"this is no code of the fake device: {error}") from error

    def prepare(self, calls: KernelCalls, /) -> FakeCalls:
        """Return calls, made ready."""
        return FakeCalls(self, calls)

    def allocate(self, nbytes: int, /) -> FakeMemory:
        """Return memory that holds zeros; between two there is a gap."""
        with self._lock:
            memory = FakeMemory(self._next, nbytes, self._drain)
            self._memories[self._next] = memory
            self._next += nbytes + 4096
            return memory

    def clear(self, address: int, nbytes: int, /) -> None:
        """Write zeros, later."""
        view = self.view(address, (nbytes,), (1,), "uint8")
        self.ask("clear", lambda: view.fill(0))

    def write(self, address: int, source: Array, /) -> None:
        """Copy from the host: the bytes are taken now and written later."""
        taken = np.ascontiguousarray(source).reshape(-1).view(np.uint8).copy()
        self.copied[0] += taken.nbytes
        view = self.view(address, (taken.nbytes,), (1,), "uint8")
        self.ask("write", lambda: view.__setitem__(slice(None), taken))

    def read(self, address: int, target: Array, /) -> None:
        """Copy to the host, once all is done."""
        self.synchronize()
        self.copied[1] += target.nbytes
        target[...] = self.view(address, target.shape, target.strides, target.dtype.name).reshape(target.shape)

    # -- what ``SharingDevice`` has: its memory is what other libraries give --------------------------------------

    def find(self, value: Any, /) -> DeviceArray | None:
        """Return the array of a ``SharedArray``."""
        if not isinstance(value, SharedArray):
            return None
        return DeviceArray(value.memory.address, value.shape, np.dtype(value.dtype), value)

    def make(self, shape: tuple[int, ...], dtype: Any, /) -> SharedArray:
        """Return a ``SharedArray``."""
        made = np.zeros(shape, dtype)
        return SharedArray(self.allocate(made.nbytes), made.shape, made.dtype.name)

    def copy(self, target: int, source: int, nbytes: int, /) -> None:
        """Copy on the device, later."""
        views = [self.view(address, (nbytes,), (1,), "uint8") for address in (target, source)]
        self.ask("copy", lambda: np.copyto(*views))

    def follow(self, stream: Any, /) -> None:
        """Do nothing: there is one stream."""

    def precede(self, stream: Any, /) -> None:
        """Wait for what is pending."""
        self.synchronize()

    def synchronize(self) -> None:
        """Do all that is pending, and name the failures."""
        with self._lock:
            self._drain()
            failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    # -- for its calls, and for tests ---------------------------------------------------------------------------------

    def ask(self, name: str, work: Callable[[], None]) -> None:
        """Have something done later."""
        with self._lock:
            self.pending.append((name, work))
            self.longest = max(self.longest, len(self.pending))
            while len(self.pending) > self.patience:
                self._do_one()

    def view(self, address: int, shape: Sequence[int], strides: Sequence[int], dtype: str) -> Array:
        """Return memory as an array, outermost dimension first; what reaches beyond it is refused.

        Raises:
            RunError: If it is not the device's, or not all of it.
        """
        starts = sorted(self._memories)
        place = bisect_right(starts, address) - 1
        memory = self._memories.get(starts[place]) if place >= 0 else None
        if 0 in shape:
            return np.empty(shape, numpy_dtype(dtype))
        if memory is None or not 0 <= address - memory.address < memory.nbytes:
            raise RunError(f"address {address} is not the device's")
        try:
            return np.ndarray(shape, numpy_dtype(dtype), memory.contents.data, address - memory.address, strides)
        except ValueError as error:
            raise RunError(f"{shape} at {address} reaches beyond {memory.nbytes} bytes: {error}") from error

    @property
    def held(self) -> int:
        """Bytes of memory that are in use."""
        return sum(each.nbytes for each in self._memories.values())

    def _drain(self) -> None:
        with self._lock:
            while self.pending:
                self._do_one()

    def _do_one(self) -> None:
        name, work = self.pending.popleft()
        if self._failed is None:
            try:
                with np.errstate(all="ignore"):
                    work()
            except Exception as error:
                self._failed = RunError(f"kernel {name} failed: {error}", "it ran on the fake device")


class FakeModule:
    """Sources, each run when its kernel is first asked for."""

    num_threads = 1

    def __init__(self, sources: dict[str, tuple[str, int]]) -> None:
        self._sources = sources
        self._functions: dict[str, Any] = {}

    def kernel(self, symbol: str, /) -> Any:
        """Return a kernel, which has its name and says how many operands it takes."""
        if symbol not in self._sources:
            raise LinkError(f"the fake device has no kernel {symbol!r}")
        if symbol not in self._functions:
            source, count = self._sources[symbol]
            names: dict[str, Any] = {}
            exec(compile(source, symbol, "exec"), names)
            self._functions[symbol] = names[symbol], symbol, count
        return self._functions[symbol]


class FakeCalls:
    """Calls that are ready but for numbers."""

    def __init__(self, device: FakeDevice, calls: KernelCalls) -> None:
        self._device, self._calls = device, calls
        ends = calls.ends.tolist()
        starts = [0, *ends]
        self.steps: list[Step] = [
            (self._launch, (calls.callees[kind].function, start, end))
            for kind, start, end in zip(calls.called.tolist(), starts, ends, strict=False)
        ]

    def fill(self, addresses: Array, pairs: Array, /) -> None:
        """Keep the numbers of a size."""
        self._addresses = addresses.tolist()
        self._dims = self._calls.dims.with_(pairs=pairs.copy()).rows

    def _launch(self, kernel: tuple[Any, str, int], start: int, end: int) -> None:
        function, name, count = kernel
        if end - start != count:
            raise RunError(f"kernel {name} was called with {end - start} operands, it takes {count}")
        operands = [self._operand(number) for number in range(start, end)]
        self._device.launched.append(name)
        self._device.ask(name, partial(function, *operands))

    def _operand(self, number: int) -> Array:
        dtype = self._calls.dtypes[int(self._calls.dtype[number])]
        size = numpy_dtype(dtype).itemsize
        dims = self._dims[int(self._calls.shape[number])][::-1]
        shape, strides = [extent for extent, _ in dims], [stride * size for _, stride in dims]
        return self._device.view(self._addresses[number], shape, strides, dtype)
