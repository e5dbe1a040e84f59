"""The CPU: a network's shared library, loaded from memory, its kernels' arguments and calls, and the pool of threads.

The library is loaded from the bytes that were checked, through an anonymous file in memory: what was verified is what
runs, a file that another process replaces or truncates cannot harm a running network, nothing has to be written
where the store is read-only, and each network gets its own copy, so that its number of threads is its own
(``docs/design/start_times.md``). The threads themselves are the process's (``native/opbuild_pool.c``).

Arguments are ``halide_buffer_t`` of HalideRuntime.h, laid out with numpy: one array holds the headers of all arguments
of all calls and another the dimensions they point to, so that a whole network's are made and moved with a few array
operations.
"""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import errno
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from ctypes import c_size_t
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from opbuild.dtypes import ADDED, CODED
from opbuild.errors import LinkError
from opbuild.graph.types import Array
from opbuild.platform.finalizers import Finalizer, WeakValues
from opbuild.platform.limits import hint_for
from opbuild.platform.locks import libc
from opbuild.platform.paths import Path
from opbuild.runtime.devices.device import Callee, KernelCalls, Step, remember_error
from opbuild.runtime.record import CHECKS, DimsTable

_MESSAGE_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int)  # of any library: ``CDLL`` has a class for each, which is a cycle
_EXCHANGE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_KERNEL = "__kernel0"
MOST_OPERANDS = 13
"""What ``call.c`` passes to a kernel behind the number of its tasks."""

_SUPPORT = Path(__file__).parent.parent.parent.parent / "native" / "support"
"""Not by ``importlib.resources``, whose import takes a tenth of the start of a stored network."""


class Library:
    """A loaded shared library of kernels.

    It stays loaded as long as this object lives; then it is unloaded, and threads that only it needed end.

    Args:
        data: The library's bytes.
        num_threads: Threads that its parallel kernels use, the caller's among them.

    Raises:
        LinkError: If it cannot be loaded, e.g. because a symbol is missing.
    """

    def __init__(self, data: bytes, num_threads: int) -> None:
        show_mathematics()
        self._handle, descriptor = _load(data)
        self.num_threads = num_threads
        self._runtime("halide_set_num_threads", num_threads)
        self._runtime("halide_set_error_handler", _handler)
        self._runtime("halide_set_custom_print", _printer)
        leave = self._share_threads() or self._function("halide_shutdown_thread_pool")
        self._finalizer = Finalizer(
            self,
            *([leave] if leave is not None else []),
            partial(_ctypes.dlclose, self._handle),
            *([partial(os.close, descriptor)] if descriptor >= 0 else []),
        )

    def _share_threads(self) -> Callable[[], Any] | None:
        """Let kernels use the process's threads; return a function that ends that. None: none, or its compiler's."""
        use_pool = self._function("opbuild_use_pool")
        if use_pool is None and self.has_tasks:
            _with_own_threads[id(self)] = self
        if use_pool is None or self.num_threads == 1:
            return None
        pool = load_pool()
        pool.opbuild_pool_open(self.num_threads)
        use_pool(pool.opbuild_pool_run, self.num_threads)
        return partial(pool.opbuild_pool_close, self.num_threads)

    def _forget_threads(self) -> None:
        """Run tasks one after the other in the child of a fork: threads of the library's own stayed in the parent."""
        self._finalizer.detach()  # it would wait for them
        self._runtime("halide_set_custom_do_par_for", _in_order)

    def kernel(self, symbol: str) -> Callable[..., int]:
        """Return a kernel; called with pointers to its buffers it returns 0 or an error code.

        Raises:
            LinkError: If the library has no such symbol, or it is no kernel's: what is linked finds ``system``, too.
        """
        function = self._function(symbol) if symbol.endswith(_KERNEL) or symbol in CHECKS.values() else None
        if function is None:
            raise LinkError(f"the network's library has no kernel {symbol!r:.200}", "build the network again")
        return function

    @property
    def call(self) -> Callable[..., int] | None:
        """The function that calls a kernel on a stack of its own, given the addresses of kernel, tasks and operands.

        It reads ``MOST_OPERANDS`` of them, whatever the kernel takes. None if kernels are better called themselves: one
        that runs in several threads sees to its tasks' stacks.
        """
        return self._function("opbuild_call") if self.num_threads == 1 else None

    @property
    def has_tasks(self) -> bool:
        """Whether any kernel may run tasks in several threads."""
        return self._function("halide_set_custom_do_par_for") is not None

    @contextlib.contextmanager
    def reversed_tasks(self) -> Iterator[None]:
        """Let kernels run their tasks one after the other, the last one first; all threads of this library."""
        exchange = _EXCHANGE(_ctypes.dlsym(self._handle, "halide_set_custom_do_par_for"))
        before = exchange(ctypes.cast(_reversed, ctypes.c_void_p))
        try:
            yield
        finally:
            exchange(before)

    def _runtime(self, symbol: str, *args: Any) -> None:
        """Call a function of the compiler's runtime, if any kernel needed it to be linked in."""
        function = self._function(symbol)
        if function is not None:
            function(*args)

    def _function(self, symbol: str) -> Callable[..., int] | None:
        try:
            return _FUNCTION(_ctypes.dlsym(self._handle, symbol))
        except (OSError, ValueError):  # of a name with a zero in it
            return None


def _handle_error(_context: int | None, message: bytes | None) -> None:
    """Keep the message of Halide's runtime; its own handler would end the process."""
    remember_error((message or b"").decode(errors="replace").strip())


_handler = _MESSAGE_HANDLER(_handle_error)


def _print(_context: int | None, text: bytes | None) -> None:
    """Write the output of kernels in debugging to the standard error; the standard output is the program's."""
    with contextlib.suppress(OSError):
        os.write(2, text or b"")


_printer = _MESSAGE_HANDLER(_print)


def _run(context: int | None, task: Callable[..., int], indices: Iterable[int], closure: int | None) -> int:
    """Run a kernel's tasks one after the other; return the first error."""
    return next((status for index in indices if (status := task(context, index, closure))), 0)


_TASK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_DO_PAR_FOR = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, _TASK, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
_in_order = _DO_PAR_FOR(
    lambda context, task, least, size, closure: _run(context, task, range(least, least + size), closure)
)
_reversed = _DO_PAR_FOR(
    lambda context, task, least, size, closure: _run(context, task, reversed(range(least, least + size)), closure)
)
"""They stand in for ``halide_do_par_for``."""

_with_own_threads = WeakValues[int, Library]()
"""Libraries with the compiler's own pool of threads, which does not survive a fork."""


def _forget_parents_threads() -> None:
    for _, library in _with_own_threads.items():
        library._forget_threads()


os.register_at_fork(after_in_child=_forget_parents_threads)


@lru_cache(maxsize=1)
def load_pool() -> ctypes.CDLL:
    """Return the library of the pool, which is never unloaded; its threads start with the first parallel loop.

    Raises:
        LinkError: If it cannot be loaded.
    """
    # By its path: the loader opens a file once, so that a second copy of this module has the same pool.
    try:
        return ctypes.CDLL(str(_SUPPORT / f"pool_{platform.machine()}.so"))
    except OSError as error:
        raise LinkError(f"the pool of threads cannot be loaded: {error}", "install opbuild again") from error


def _load(data: bytes) -> tuple[int, int]:
    """Open the library and return its handle and descriptor.

    The descriptor must stay open: the loader recognises libraries by path, and paths have it.
    """
    problem: OSError | None = None
    for open_file in (_memory_file, _temporary_file, _shared_memory_file):
        try:
            path, descriptor = open_file(data)
        except OSError as error:
            problem = error.with_traceback(None)  # it has this frame: a cycle
            continue
        try:
            return _ctypes.dlopen(path, os.RTLD_NOW | os.RTLD_LOCAL), descriptor
        except OSError as error:
            problem = error.with_traceback(None)  # it has this frame: a cycle
            if descriptor >= 0:
                os.close(descriptor)
        finally:
            if descriptor < 0:
                Path(path).unlink(missing_ok=True)
    raise LinkError(
        f"the network's library cannot be loaded: {problem}",
        hint_for(problem)
        or "build the network again; if code may not be run from files in memory or in the temporary folder (noexec), "
        "point TMPDIR at a folder where it may",
    ) from problem


def _memory_file(data: bytes) -> tuple[str, int]:
    if not hasattr(os, "memfd_create"):
        raise OSError(errno.ENOSYS, "this system has no files in memory")
    descriptor = os.memfd_create("opbuild-network", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
    except OSError:
        os.close(descriptor)
        raise
    return f"/proc/self/fd/{descriptor}", descriptor


def _temporary_file(data: bytes, folder: str | None = None) -> tuple[str, int]:
    """The file of code where anonymous files may not be executed; it is unlinked as soon as it is loaded."""
    import tempfile

    file = tempfile.NamedTemporaryFile(prefix="opbuild-", suffix=".so", dir=folder, delete=False)  # noqa: SIM115
    try:
        with file:
            file.write(data)
    except OSError:
        Path(file.name).unlink(missing_ok=True)
        raise
    return file.name, -1


def _shared_memory_file(data: bytes) -> tuple[str, int]:
    """The file of code where the temporary folder cannot be written, or nothing in it be executed."""
    return _temporary_file(data, "/dev/shm")  # noqa: S108  a private file is made there


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Let the allocator keep the memory that packing frees.

    glibc gives large blocks back to the system as soon as they are freed, and the next weight would fault in every page
    again: packing those of ResNet-50 takes 13,000 page faults instead of 27,000.
    """
    mallopt = getattr(libc(), "mallopt", None)  # musl has none and needs none
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 64 * 2**20)
        mallopt(_M_TRIM_THRESHOLD, 256 * 2**20)


@lru_cache(maxsize=1)
def show_mathematics() -> None:
    """Make libm's functions visible to kernels."""
    for name in ("libm.so.6", "libm.so"):
        try:
            ctypes.CDLL(name, mode=os.RTLD_GLOBAL)
            break
        except OSError:
            continue


# -- arguments and calls -----------------------------------------------------------------------------------------------

HEADER = np.dtype(
    [
        ("device", "u8"), ("device_interface", "u8"), ("host", "u8"), ("flags", "u8"),
        ("type_code", "u1"), ("type_bits", "u1"), ("type_lanes", "u2"), ("dimensions", "i4"),
        ("dim", "u8"), ("padding", "u8"),
    ]
)  # fmt: skip
"""``halide_buffer_t``, 56 bytes on 64-bit machines; ``host`` is the address of the element with all indices 0."""
DIMENSION = np.dtype([("min", "i4"), ("extent", "i4"), ("stride", "i4"), ("flags", "u4")])
"""``halide_dimension_t``; the stride counts elements."""
HOST_WORD = 2
"""Position of ``host`` in a header read as 64-bit words."""
HEADER_WORDS = HEADER.itemsize // 8

_CODES = {"i": 0, "u": 1, "b": 1, "f": 2}


def make_headers(dims: DimsTable, shape: Array, types: Array) -> Array:
    """Return the headers of views; ``host`` and ``dim`` count from where their data and all dimensions will lie.

    Args:
        dims: The extents and strides that there are.
        shape: For each view the index of its own.
        types: For each view the code and the bits of its elements, ``[views, 2]``.
    """
    headers = np.zeros(len(shape), HEADER)
    headers["type_code"], headers["type_bits"], headers["type_lanes"] = types[:, 0], types[:, 1], 1
    headers["dimensions"], headers["dim"] = dims.rank[shape], dims.first[shape] * DIMENSION.itemsize
    return headers


@cache
def element_type(dtype: str) -> tuple[int, int]:
    """Return Halide's code and bits for a numpy name; bytes that are codes of numbers are unsigned."""
    if dtype in ADDED:
        return (1, 8) if dtype in CODED else (3, 16)
    kind = np.dtype(dtype)
    return _CODES[kind.kind], 1 if kind.kind == "b" else kind.itemsize * 8


_ELEMENTS = object.__basicsize__
"""Where in an array its elements' address is: behind what all objects begin with, as compiled extensions read it."""

_word_at = c_size_t.from_address


def address_of(array: Array) -> int:
    """Return the address of a dense array: in a sixth of the microsecond that ``array.ctypes`` takes."""
    return _word_at(id(array) + _ELEMENTS).value


_probe = np.zeros(1)
if address_of(_probe) != _probe.ctypes.data:
    raise ImportError("arrays of this numpy do not lie as its C interface says")


class CpuCalls:
    """Calls of kernels and their arguments; see ``devices.Prepared``.

    Args:
        calls: The calls.

    Attributes:
        steps: What is called, in order.
        headers: The arguments of all kernels.
        words: The same, as 64-bit numbers: to write one takes half the time that numpy takes.
    """

    def __init__(self, calls: KernelCalls) -> None:
        self._dims = np.zeros(len(calls.dims.pairs), DIMENSION)
        types = np.array([element_type(dtype) for dtype in calls.dtypes], np.uint8).reshape(-1, 2)
        self.headers = make_headers(calls.dims, calls.shape, types[calls.dtype])
        self.headers["dim"] += np.uint64(self._dims.ctypes.data)
        self.words = self.headers.view(np.uint64).data
        self.steps = kernel_steps(calls.callees, calls.called, calls.ends, self.headers)

    def fill(self, addresses: Array, pairs: Array) -> None:
        """Write the numbers of a size."""
        self._dims["extent"], self._dims["stride"] = pairs.T
        self.headers["host"] = addresses

    def places_of(self, arguments: Array) -> Array:
        """Return the places in ``words`` of the addresses of arguments."""
        return arguments * HEADER_WORDS + HOST_WORD

    def step_of(self, first: int, end: int, function: Any, tasks: int) -> Step:
        """Return the step that calls a function as a kernel, with the arguments from one on to before another."""
        return function, (tasks, *references(self.headers[first:end], HEADER.itemsize))


def kernel_steps(callees: Sequence[Callee], called: Array, ends: Array, headers: Array) -> list[Step]:
    """Return the steps that run kernels one after the other: the kernels themselves, or functions that call them.

    Args:
        callees: The kernels.
        called: For each call the index of its kernel.
        ends: For each where its arguments end among all headers; those of the next begin there.
        headers: The arguments.
    """
    through = [callee.module.call for callee in callees]
    arguments = references(headers, HEADER.itemsize)
    blocks = _call_blocks(callees, called, ends, headers) if any(through) else [None] * len(called)
    steps: list[Step] = []
    start = 0
    for number, end, block in zip(called.tolist(), ends.tolist(), blocks, strict=True):
        caller = through[number]
        if caller is not None and end - start <= MOST_OPERANDS:
            steps.append((caller, (block,)))
        else:
            function, _, tasks = callees[number]
            steps.append((function, (tasks, *arguments[start:end])))
        start = end
    return steps


def _call_blocks(callees: Sequence[Callee], called: Array, ends: Array, headers: Array) -> list[Any]:
    """Return for each call the arguments of ``Library.call``; behind them it has those of the next calls."""
    addresses = [ctypes.cast(callee.function, ctypes.c_void_p).value for callee in callees]
    words = np.empty((len(called), 2 + MOST_OPERANDS), np.uint64)
    words[:, 0] = np.array(addresses, np.uint64)[called]
    words[:, 1] = np.array([callee.tasks for callee in callees], np.uint64)[called]
    own = np.concatenate(([0], ends))[:-1, np.newaxis] + np.arange(MOST_OPERANDS)
    words[:, 2:] = headers.ctypes.data + own * HEADER.itemsize
    return references(words, words.strides[0])


def references(array: Array, nbytes: int) -> list[Any]:
    """Return pointers to each so many bytes of an array, which lives as long as they do."""
    # byref is the cheapest argument there is: 150 ns a call with two of them, c_void_p 200
    if not array.nbytes:
        return []
    memory = ctypes.c_char.from_buffer(array.view(np.uint8).data)  # a type of the array's size would be a cycle
    return [ctypes.byref(memory, place) for place in range(0, array.nbytes, nbytes)]
