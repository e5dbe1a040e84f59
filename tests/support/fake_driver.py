"""CUDA's driver in memory: functions with C's own arguments, a GPU whose memory is the host's, kernels run by Python.

It knows a kernel's parameters from its binary alone and reads them where the caller's pointers point, as the driver
would. What is asked for on a stream is done late, when it is awaited or too much waits. Nothing runs while a stream is
captured. Whatever is used in a way that the driver would refuse is refused with its number of that error, and any
function can be told to fail.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_float, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from opbuild.runtime.devices.cuda.driver import SIGNATURES

GPU = Path(__file__).parents[2] / "benchmarks" / "gpu"
if str(GPU) not in sys.path:
    sys.path.append(str(GPU))

from cubin import parameter_places, sections  # noqa: E402

Array = np.ndarray[Any, Any]
Parameters = Sequence[bytes]
Grid = tuple[int, int, int]
Kernel = Callable[["FakeDriver", Parameters, Grid], None]
"""Does what a launch does: given the driver, the bytes of each parameter, and the grid."""
Kernels = Callable[[str, bytes], Kernel]

INVALID, NO_MEMORY, NOT_INITIALIZED, NO_DEVICE, BAD_IMAGE, NO_CONTEXT = 1, 2, 3, 100, 200, 201
NOT_FOUND, ILLEGAL_ADDRESS, CAPTURED, INVALIDATED, UNKNOWN = 500, 700, 900, 901, 999
NAMES = {
    INVALID: "CUDA_ERROR_INVALID_VALUE", NO_MEMORY: "CUDA_ERROR_OUT_OF_MEMORY", NO_DEVICE: "CUDA_ERROR_NO_DEVICE",
    NOT_INITIALIZED: "CUDA_ERROR_NOT_INITIALIZED", BAD_IMAGE: "CUDA_ERROR_INVALID_IMAGE",
    NO_CONTEXT: "CUDA_ERROR_INVALID_CONTEXT", NOT_FOUND: "CUDA_ERROR_NOT_FOUND",
    ILLEGAL_ADDRESS: "CUDA_ERROR_ILLEGAL_ADDRESS", CAPTURED: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
    INVALIDATED: "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
}  # fmt: skip
TEXTS = {ILLEGAL_ADDRESS: "an illegal memory access was encountered", NO_MEMORY: "out of memory"}
MOST_SHARED, SHARED_UNASKED = 232448, 48 * 1024
MOST_PROGRAMS = (2**31 - 1, 65535, 65535)
GUARD, PATTERN, OLD = 512, 0xA5, 0xAB
"""Bytes around each allocation, what is in them, and what an allocation holds before anything is written."""

BENCHMARKS: dict[str, tuple[Any, ...]] = {
    "cuMemsetD8_v2": (c_uint64, c_ubyte, c_size_t),
    "cuMemcpyHtoD_v2": (c_uint64, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (c_void_p, c_void_p, c_void_p),
    "cuTensorMapEncodeTiled": (c_void_p, c_int, c_uint, *[c_void_p] * 5, *[c_int] * 4),
}
"""Functions that benchmarks use beside those of opbuild."""

ANYWHERE = {"cuInit", "cuGetErrorName", "cuGetErrorString", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet",
            "cuDeviceGetName", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"}  # fmt: skip
"""Functions that need no context."""

AWAITING = {
    "cuStreamSynchronize",
    "cuCtxSynchronize",
    "cuEventSynchronize",
    "cuMemFree_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoD_v2",
}
"""Functions that return what has gone wrong before."""


class RefusedError(Exception):
    """The driver would return an error."""

    def __init__(self, code: int) -> None:
        super().__init__(NAMES.get(code, str(code)))
        self.code = code


class FakeDriver:
    """What ``ctypes.CDLL("libcuda.so.1")`` gives.

    Args:
        kernels: Returns what a kernel does, given its symbol and its binary.
        capability: The compute capability of the GPU; none: there is no GPU.
        memory: How many bytes it has.

    Attributes:
        patience: How much work of a stream at most waits.
        called: The functions that were called, in order.
        launched: The kernels that ran, in order.
        memory: What is allocated, by address.
        handles: How many handles of each kind there are that must be given back.
        problems: Errors of Python in functions and kernels, and what was written beside an allocation.
    """

    def __init__(
        self,
        kernels: Callable[[str, bytes], Kernel],
        capability: tuple[int, int] | None = (9, 0),
        memory: int = 1 << 30,
    ) -> None:
        self.kernels, self.capability, self.total = kernels, capability, memory
        self.patience = 1 << 30
        self.called: list[str] = []
        self.launched: list[str] = []
        self.memory: dict[int, Array] = {}
        self.handles: Counter[str] = Counter()
        self.problems: list[str] = []
        self.failed = 0
        self._faults: dict[str, dict[int, int]] = {}
        self._counts: Counter[str] = Counter()
        self._known: dict[int, Any] = {}
        self._streams: dict[int, deque[Callable[[], None]]] = {0: deque()}
        self._captured: dict[int, list[Callable[[], None]] | None] = {}
        self._functions: dict[str, Any] = {}
        self._keep: list[Array] = []
        self._next, self._process = 0x7000, 0
        self._here = threading.local()
        self._lock = threading.RLock()

    # -- for tests -----------------------------------------------------------------------------------------------------

    def fail(self, name: str, code: int, at: int = 1) -> None:
        """Let a function return an error at its n-th call from now on; 0: at each."""
        self._faults.setdefault(name, {})[at and at + self._counts[name]] = code

    def heal(self) -> None:
        """Let no function fail any more that was told to."""
        self._faults.clear()

    @property
    def held(self) -> int:
        """Bytes that are allocated."""
        return sum(each.nbytes - 2 * GUARD for each in self.memory.values())

    @property
    def is_empty(self) -> bool:
        """Whether all that has to be was given back."""
        return not self.memory and not +self.handles

    def bytes_at(self, address: int, nbytes: int) -> Array:
        """Return allocated bytes.

        Raises:
            RefusedError: If not all of them are.
        """
        for start, memory in self.memory.items():
            if start <= address and address + nbytes <= start + memory.nbytes - 2 * GUARD:
                first = GUARD + address - start
                return memory[first : first + nbytes]
        raise RefusedError(ILLEGAL_ADDRESS)

    def __getattr__(self, name: str) -> Any:
        """Return a function of the driver's, with C's arguments."""
        arguments = {**SIGNATURES, **BENCHMARKS}.get(name)
        if arguments is None or not hasattr(type(self), f"_{name}"):
            raise AttributeError(name)
        if name not in self._functions:
            self._functions[name] = ctypes.CFUNCTYPE(c_int, *arguments)(lambda *given: self._answer(name, *given))
        return self._functions[name]

    def _answer(self, name: str, *arguments: Any) -> int:
        with self._lock:
            self.called.append(name)
            self._counts[name] += 1
            faults = self._faults.get(name, {})
            code = faults.get(self._counts[name], faults.get(0, 0)) or self._problem(name)
            if code:
                if code == ILLEGAL_ADDRESS:
                    self.failed = code
                return code
            try:
                getattr(self, f"_{name}")(*arguments)
            except RefusedError as error:
                return error.code
            except Exception:
                self.problems.append(traceback.format_exc())
                return UNKNOWN
            return self.failed if name in AWAITING else 0

    def _problem(self, name: str) -> int:
        """Return the error of a function that may not be called now."""
        if name in ("cuInit", "cuGetErrorName", "cuGetErrorString"):
            return 0
        if self._process != os.getpid():
            return NOT_INITIALIZED
        if name not in ANYWHERE and not getattr(self._here, "context", 0):
            return NO_CONTEXT
        is_end = name.startswith(("cuMemFree", "cuGraphExecDestroy", "cuGraphDestroy", "cuModuleUnload"))
        return 0 if is_end or name in ANYWHERE else self.failed

    # -- the machine ---------------------------------------------------------------------------------------------------

    def _cuInit(self, flags: int) -> None:
        if self._process not in (0, os.getpid()):
            raise RefusedError(NOT_INITIALIZED)
        self._process = os.getpid()
        if self.capability is None:
            raise RefusedError(NO_DEVICE)

    def _cuGetErrorName(self, code: int, text: int) -> None:
        _put(text, self._text(NAMES.get(code, "CUDA_ERROR_UNKNOWN")))

    def _cuGetErrorString(self, code: int, text: int) -> None:
        _put(text, self._text(TEXTS.get(code, "something is wrong")))

    def _text(self, text: str) -> int:
        array = np.frombuffer(text.encode() + b"\0", np.uint8)
        self._keep.append(array)
        return int(array.ctypes.data)

    def _cuDriverGetVersion(self, version: int) -> None:
        _put(version, 13000, c_int)

    def _cuDeviceGetCount(self, number: int) -> None:
        _put(number, 0 if self.capability is None else 1, c_int)

    def _cuDeviceGet(self, device: int, ordinal: int) -> None:
        _put(device, ordinal, c_int)

    def _cuDeviceGetName(self, text: int, nbytes: int, device: int) -> None:
        ctypes.memmove(text, b"a stand-in for a GPU\0", 21)

    def _cuDeviceGetAttribute(self, value: int, attribute: int, device: int) -> None:
        assert self.capability is not None
        _put(value, self.capability[{75: 0, 76: 1}[attribute]], c_int)

    def _cuDevicePrimaryCtxRetain(self, context: int, device: int) -> None:
        _put(context, 0xC0)

    def _cuCtxSetCurrent(self, context: int | None) -> None:
        if context not in (None, 0xC0):
            raise RefusedError(NO_CONTEXT)
        self._here.context = context

    def _cuCtxSynchronize(self) -> None:
        self._drain_all()

    # -- memory --------------------------------------------------------------------------------------------------------

    def _cuMemGetInfo_v2(self, free: int, total: int) -> None:
        _put(free, self.total - self.held)
        _put(total, self.total)

    def _cuMemAlloc_v2(self, address: int, nbytes: int) -> None:
        if nbytes == 0:
            raise RefusedError(INVALID)
        if nbytes > self.total - self.held:
            raise RefusedError(NO_MEMORY)
        whole = np.full(nbytes + 2 * GUARD + 256, PATTERN, np.uint8)
        place = -(-(whole.ctypes.data + GUARD) // 256) * 256
        first = place - GUARD - whole.ctypes.data
        memory = whole[first : first + nbytes + 2 * GUARD]
        memory[GUARD:-GUARD] = OLD
        self.memory[place] = memory
        _put(address, place)

    def _cuMemFree_v2(self, address: int) -> None:
        memory = self.memory.get(address)
        if memory is None:
            raise RefusedError(INVALID)
        self._drain_all()
        if (memory[:GUARD] != PATTERN).any() or (memory[-GUARD:] != PATTERN).any():
            self.problems.append(f"bytes beside the memory at {address:#x} were written")
        del self.memory[address]

    def _cuMemHostAlloc(self, pointer: int, nbytes: int, flags: int) -> None:
        memory = np.full(nbytes, OLD, np.uint8)
        self._keep.append(memory)
        _put(pointer, memory.ctypes.data)

    def _cuMemsetD8Async(self, address: int, byte: int, nbytes: int, stream: int | None) -> None:
        self._ask(stream, lambda: self.bytes_at(address, nbytes).fill(byte))

    def _cuMemcpyHtoDAsync_v2(self, address: int, source: int, nbytes: int, stream: int | None) -> None:
        # as late as from memory that the GPU reads by itself
        self._ask(stream, lambda: ctypes.memmove(self.bytes_at(address, nbytes).ctypes.data, source, nbytes))

    def _cuMemcpyDtoHAsync_v2(self, target: int, address: int, nbytes: int, stream: int | None) -> None:
        self._ask(stream, lambda: ctypes.memmove(target, self.bytes_at(address, nbytes).ctypes.data, nbytes))

    def _cuMemcpyDtoDAsync_v2(self, target: int, source: int, nbytes: int, stream: int | None) -> None:
        def copy() -> None:
            self.bytes_at(target, nbytes)[...] = self.bytes_at(source, nbytes)

        self._ask(stream, copy)

    def _cuMemsetD8_v2(self, address: int, byte: int, nbytes: int) -> None:
        self._cuMemsetD8Async(address, byte, nbytes, None)
        self._drain_all()

    def _cuMemcpyHtoD_v2(self, address: int, source: int, nbytes: int) -> None:
        self._cuMemcpyHtoDAsync_v2(address, source, nbytes, None)
        self._drain_all()

    def _cuMemcpyDtoH_v2(self, target: int, address: int, nbytes: int) -> None:
        self._drain_all()
        self._cuMemcpyDtoHAsync_v2(target, address, nbytes, None)
        self._drain_all()

    # -- streams -------------------------------------------------------------------------------------------------------

    def _handle(self, kind: str, what: Any, place: int) -> None:
        """Write a handle of something; one of a kind that has to be given back is counted."""
        self._next += 8
        self._known[self._next] = what
        if kind:
            self.handles[kind] += 1
        _put(place, self._next)

    def _of(self, handle: int | None) -> Any:
        if handle not in self._known:
            raise RefusedError(INVALID)
        return self._known[handle]

    def _gone(self, kind: str, handle: int | None) -> None:
        self._of(handle)
        del self._known[handle or 0]
        self.handles[kind] -= 1

    def _cuStreamCreate(self, stream: int, flags: int) -> None:
        self._handle("", "stream", stream)
        self._streams[self._next] = deque()

    def _ask(self, stream: int | None, work: Callable[[], None], is_launch: bool = False) -> None:
        """Have something done later, or recorded."""
        number = _stream(stream)
        if number in self._captured:
            captured = self._captured[number]
            if captured is None or not is_launch:
                self._captured[number] = None
                raise RefusedError(CAPTURED if captured is not None else INVALIDATED)
            captured.append(work)
            return
        waiting = self._streams.get(number)
        if waiting is None:
            raise RefusedError(INVALID)
        waiting.append(work)
        while len(waiting) > self.patience:
            self._do(waiting.popleft())

    def _do(self, work: Callable[[], None]) -> None:
        if self.failed:
            return
        try:
            work()
        except RefusedError as error:
            self.failed = error.code
        except Exception:
            self.problems.append(traceback.format_exc())
            self.failed = UNKNOWN

    def _drain(self, stream: int) -> None:
        while self._streams[stream]:
            self._do(self._streams[stream].popleft())

    def _drain_all(self) -> None:
        for stream in self._streams:
            self._drain(stream)

    def _cuStreamSynchronize(self, stream: int | None) -> None:
        if _stream(stream) in self._captured:
            raise RefusedError(CAPTURED)
        self._drain(_stream(stream))

    def _cuEventCreate(self, event: int, flags: int) -> None:
        self._handle("event", [None, None], event)

    def _cuEventRecord(self, event: int, stream: int | None) -> None:
        known, done = self._of(event), threading.Event()
        known[:] = done, _stream(stream)
        self._ask(stream, done.set)

    def _cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        done, other = self._of(event)

        def wait() -> None:
            while done is not None and not done.is_set():
                self._do(self._streams[other].popleft())

        self._ask(stream, wait)

    def _cuEventSynchronize(self, event: int) -> None:
        self._drain_all()

    def _cuEventElapsedTime(self, took: int, first: int, second: int) -> None:
        _put(took, 1.0, c_float)

    def _cuEventDestroy_v2(self, event: int) -> None:
        self._gone("event", event)

    # -- kernels -------------------------------------------------------------------------------------------------------

    def _cuModuleLoadData(self, module: int, image: int) -> None:
        binary = _image(image)
        if binary is None:
            raise RefusedError(BAD_IMAGE)
        self._handle("module", binary, module)

    def _cuModuleUnload(self, module: int) -> None:
        self._drain_all()
        self._gone("module", module)

    def _cuModuleGetFunction(self, function: int, module: int, symbol: bytes) -> None:
        binary, name = self._of(module), symbol.decode()
        if f".nv.info.{name}" not in sections(binary):
            raise RefusedError(NOT_FOUND)
        kernel = self.kernels(name, binary)
        places, threads = parameter_places(binary), required_threads(sections(binary)[f".nv.info.{name}"])
        self._handle("", {"name": name, "run": kernel, "places": places, "threads": threads, "shared": SHARED_UNASKED,
                          "module": module}, function)  # fmt: skip

    def _cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> None:
        if attribute != 8 or value > MOST_SHARED:
            raise RefusedError(INVALID)
        self._of(function)["shared"] = value

    def _cuLaunchKernel(self, function: int, *rest: Any) -> None:
        grid, block, (shared, stream, parameters, extra) = rest[:3], rest[3:6], rest[6:]
        known = self._of(function)
        is_wrong = min(grid) < 1 or any(each > most for each, most in zip(grid, MOST_PROGRAMS, strict=True))
        if is_wrong or shared > known["shared"] or extra or known["module"] not in self._known:
            raise RefusedError(INVALID)
        if block != known["threads"]:
            raise RefusedError(INVALID)
        pointers = (c_void_p * len(known["places"])).from_address(parameters)
        values = [ctypes.string_at(at, size) for at, (_, size) in zip(pointers, known["places"], strict=True)]

        def run() -> None:
            self.launched.append(known["name"])
            known["run"](self, values, grid)

        self._ask(stream, run, is_launch=True)

    # -- graphs --------------------------------------------------------------------------------------------------------

    def _cuStreamBeginCapture_v2(self, stream: int, mode: int) -> None:
        if stream in self._captured or mode not in (0, 1, 2):
            raise RefusedError(INVALID)
        self._captured[stream] = []

    def _cuStreamEndCapture(self, stream: int, graph: int) -> None:
        _put(graph, 0)
        if stream not in self._captured:
            raise RefusedError(INVALID)
        captured = self._captured.pop(stream)
        if captured is None:
            raise RefusedError(INVALIDATED)
        self._handle("graph", captured, graph)

    def _cuGraphInstantiateWithFlags(self, instance: int, graph: int, flags: int) -> None:
        self._handle("instance", self._of(graph), instance)

    def _cuGraphLaunch(self, instance: int, stream: int | None) -> None:
        launches = self._of(instance)
        self._ask(stream, lambda: [each() for each in launches] and None)

    def _cuGraphDestroy(self, graph: int) -> None:
        self._gone("graph", graph)

    def _cuGraphExecDestroy(self, instance: int) -> None:
        self._gone("instance", instance)

    def _cuTensorMapEncodeTiled(
        self, encoded: int, element: int, rank: int, pointer: int, shape: int, strides: int, box: int, steps: int,
        interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> None:  # fmt: skip
        extents, sides = (kind.from_address(at) for kind, at in ((c_uint64 * rank, shape), (c_uint * rank, box)))
        (stride,) = (c_uint64 * 1).from_address(strides)
        if (
            encoded % 64
            or pointer % 16
            or stride % 16
            or not all(extents)
            or not all(0 < side <= 256 for side in sides)
        ):
            raise RefusedError(INVALID)
        fields = struct.pack("<QQ", pointer, stride) + struct.pack(f"<{rank}Q", *extents)
        ctypes.memmove(encoded, fields.ljust(128, b"\0"), 128)


def required_threads(info: bytes) -> tuple[int, int, int]:
    """Return the threads of a program that a binary asks for (EIATTR_REQNTID)."""
    at = 0
    while at < len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        if form == 4 and attribute == 0x10:
            x, y, z = struct.unpack_from("<III", info, at + 4)
            return x, y, z
        at += 4 + (size if form == 4 else 0)
    raise RefusedError(BAD_IMAGE)


def _stream(handle: int | None) -> int:
    """Return the number of a stream: the default one has several handles."""
    return 0 if handle in (None, 1, 2) else handle or 0


def _put(place: int, value: Any, kind: Any = c_uint64) -> None:
    kind.from_address(place).value = value


def _image(address: int) -> bytes | None:
    """Return the ELF file at an address: it says itself where it ends; None if there is none."""
    if ctypes.string_at(address, 5) != b"\x7fELF\x02":
        return None
    header = ctypes.string_at(address, 64)
    programs, start = struct.unpack_from("<QQ", header, 32)
    program_size, program_count, size, count = struct.unpack_from("<HHHH", header, 54)
    return ctypes.string_at(address, max(start + size * count, programs + program_size * program_count))


def tiny_cubin(symbol: str, parameters: Sequence[tuple[int, int]], threads: int = 128) -> bytes:
    """Return a binary that says of a kernel what the driver reads, and has no code.

    Args:
        symbol: The kernel.
        parameters: Offset and size of each of its parameters.
        threads: Threads of a program.
    """
    info = struct.pack("<BBHIII", 4, 0x10, 12, threads, 1, 1)
    for number, (offset, nbytes) in enumerate(parameters):
        info += struct.pack("<BBHIHHI", 4, 0x17, 12, 0, number, offset, nbytes << 18)
    names = b"\0.shstrtab\0" + f".nv.info.{symbol}".encode() + b"\0"
    body = names + info
    tables = [(0, 0, 0), (1, 64, len(names)), (11, 64 + len(names), len(info))]
    headers = b"".join(struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, at, size, 0, 0, 1, 0) for name, at, size in tables)
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(body), 0, 64, 56, 0, 64, len(tables), 1)
    return header + body + headers


@contextmanager
def problems_of(driver: FakeDriver) -> Iterator[FakeDriver]:
    """Fail at the block's end if anything went wrong inside the driver."""
    yield driver
    assert not driver.problems, "\n".join(driver.problems)
