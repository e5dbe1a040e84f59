"""Runs one kernel on numpy arrays: compile a descriptor in a forked child, link it, call it through ctypes.

Kernels are compiled without any check of their own, so a mistake writes where it should not and stays silent. Outputs
are therefore made with ``guarded``: an array inside a larger memory that is filled with a canary value, and
``check_canaries`` fails if any element around the array changed. ``run_desc`` also asserts that the descriptor says the
arrays are legal. ``run_program`` does the same for a lowered network.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import halide as hl
import numpy as np
import numpy.typing as npt

from opbuild.backend.halide.driver import HalideCompiler
from opbuild.backend.halide.emission import halide_target
from opbuild.backend.halide.target import spelled
from opbuild.families.catalogue import find
from opbuild.kernel.opdesc import OpDesc
from opbuild.program import HostCall, KernelCall, Program, View
from opbuild.runtime.devices.cpu.library import load_pool
from opbuild.runtime.devices.cpu.link import support_parts
from opbuild.target.host import host_level
from opbuild.target.level import Level
from support import kept_kernels
from support.kept_kernels import Make

Array = npt.NDArray[Any]
TASKS = (1, 7, 2)
"""Into how many tasks each kernel is divided, one after the other: all must give the same bytes."""
MARGIN = 4096
"""Canaries on each side of a guarded array, in elements: more than any tile of a schedule."""


@dataclass(frozen=True, eq=False)
class Guarded:
    """An array inside a memory full of canaries.

    Attributes:
        view: The array itself; row-major, so its last axis is a descriptor's first dimension.
        memory: All of the memory, one-dimensional.
        around: Which elements of ``memory`` do not belong to ``view``.
    """

    view: Array
    memory: Array
    around: npt.NDArray[np.bool_]


def guarded(shape: Sequence[int], dtype: str = "float32", strides: Sequence[int] | None = None) -> Guarded:
    """Make an array surrounded by canaries, its own elements holding canaries too.

    Args:
        shape: Row-major shape.
        dtype: Element type.
        strides: In elements, row-major; dense if None. Gaps that they leave between rows are canaries.
    """
    shape = tuple(shape)
    kind = np.dtype(dtype)
    if strides is None:
        strides = [int(np.prod(shape[axis + 1 :], dtype=int)) for axis in range(len(shape))]
    span = (
        1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)) if 0 not in shape else 0
    )
    memory = np.full(span + 2 * MARGIN, _canary(kind), kind)
    view = _window(memory, shape, strides)
    around = np.ones(memory.size, bool)
    _window(around, shape, strides)[...] = False
    return Guarded(view, memory, around)


def guarded_like(array: Array, strides: Sequence[int] | None = None) -> Guarded:
    """Make a guarded copy of ``array``."""
    result = guarded(array.shape, str(array.dtype), strides)
    result.view[...] = array
    return result


def check_canaries(*arrays: Guarded) -> None:
    """Assert that nothing around the arrays was written."""
    for array in arrays:
        canary = _canary(array.memory.dtype)
        touched = np.flatnonzero(array.around & (array.memory != canary)) - MARGIN
        assert not touched.size, f"{touched.size} elements outside the array were written, at {touched[:8].tolist()}"


def run_desc(
    desc: OpDesc, *operands: Array | Guarded, level: Level | None = None, tasks: Sequence[int] = TASKS
) -> None:
    """Run a descriptor's kernel on arrays given in argument order, inputs first; outputs are written in place.

    Args:
        desc: What to run; it is compiled once a session.
        operands: Row-major arrays of any strides: their last axis is the descriptor's dimension 0.
        level: What it is compiled for; None: this machine's own level.
        tasks: Into how many tasks it is divided, one after the other: all must give the same bytes.
    """
    views = [operand.view if isinstance(operand, Guarded) else operand for operand in operands]
    _call(desc, views, [dims_of(view) for view in views], tasks, level)


def _call(
    desc: OpDesc,
    views: Sequence[Array],
    dims: Sequence[Sequence[tuple[int, int]]],
    counts: Sequence[int],
    level: Level | None = None,
) -> None:
    problem = desc.problem(dims)
    assert problem is None, problem
    for view, operand in zip(views, desc.operands, strict=True):
        assert view.dtype == np.dtype(operand.dtype), f"{operand.name} is {view.dtype}"
    buffers = [HalideBuffer.of(view, given) for view, given in zip(views, dims, strict=True)]
    call = kernel(desc, level=level)
    outputs, first = views[len(desc.inputs) :], list[bytes]()
    begins = [view.copy() if find(desc.family).updates else _canary(view.dtype) for view in outputs]
    for tasks in counts:
        for view, begin in zip(outputs, begins, strict=True):
            view[...] = begin
        status = call(tasks, *(ctypes.byref(buffer) for buffer in buffers))
        assert status == 0, f"the kernel returned {status}: {_said[-1:]}"
        found = [view.tobytes() for view in outputs]
        first = first or found
        assert found == first, f"{desc.family} computes something else in {tasks} tasks than in {counts[0]}"


def run_program(
    program: Program, inputs: Mapping[str, Array], counts: Sequence[int] = TASKS, level: Level | None = None
) -> dict[str, Array]:
    """Run a program of kernel calls, each in ``counts`` tasks, every buffer in memory of its own between canaries.

    Temporaries start as NaN (floats), so that a read of what nobody wrote shows; those that keep zeros around planes
    start as zeros, and after the run the zeros are checked. Kernels are compiled for this machine's level unless
    another is given, for which the program was lowered. Indices out of range reach the kernels.
    """
    names = {port.buffer: port.name for port in program.inputs}
    memory = []
    for index, buffer in enumerate(program.buffers):
        slot = guarded((buffer.size,), buffer.dtype)
        if index in names:
            slot.view[...] = np.asarray(inputs[names[index]]).reshape(-1)
        elif buffer.kind == "constant":
            assert buffer.pack is not None
            slot.view[...] = np.asarray(buffer.pack()).reshape(-1)
        elif buffer.zeroed is not None:
            slot.view[...] = 0
        elif slot.view.dtype.kind == "f":
            slot.view[...] = np.nan
        memory.append(slot)
    before = [slot.view.copy() for slot in memory]
    for call in program.calls:
        if isinstance(call, HostCall) and call.is_check:  # kernels keep to memory without it
            continue
        assert isinstance(call, KernelCall), f"{call.nodes} runs on the host: {dict(program.notes)}"
        operands = zip(call.views, call.desc.operands, strict=True)
        arrays = [_view_array(memory[view.buffer], view, operand.dtype) for view, operand in operands]
        _call(call.desc, arrays, [view.dims for view in call.views], counts, level)
    check_canaries(*memory)
    for index, buffer in enumerate(program.buffers):
        if buffer.kind in ("input", "constant"):
            assert memory[index].view.tobytes() == before[index].tobytes(), "a kernel changed its input"
        if buffer.zeroed is not None:
            _check_halo(memory[index].view, buffer.zeroed)
    return {port.name: memory[port.buffer].view.reshape(port.type.shape) for port in program.outputs}


def _view_array(slot: Guarded, view: View, dtype: str) -> Array:
    shape = tuple(extent for extent, _ in reversed(view.dims))
    strides = tuple(stride * slot.memory.itemsize for _, stride in reversed(view.dims))
    array = np.lib.stride_tricks.as_strided(slot.memory[MARGIN + view.offset :], shape, strides)
    # Kernels that only move elements see them as unsigned integers of their size.
    return array.view(dtype) if dtype.startswith("uint") and array.itemsize == np.dtype(dtype).itemsize else array


def _check_halo(contents: Array, geometry: Any) -> None:
    _, _, (n, c1, h, w), (left, top, right, bottom) = geometry
    planes = contents.reshape(n * c1, h + top + bottom, w + left + right, 16).copy()
    planes[:, top : top + h, left : left + w] = 0
    assert not planes.any(), "a kernel wrote into the zeros around a plane"


def dims_of(array: Array) -> list[tuple[int, int]]:
    """Return ``(extent, stride)`` pairs in elements, innermost first, also where numpy's strides mean nothing."""
    if not array.flags.c_contiguous:
        return [(e, s // array.itemsize) for e, s in zip(array.shape[::-1], array.strides[::-1], strict=True)]
    dims, step = [], 1
    for extent in reversed(array.shape):
        dims.append((extent, step))
        step *= max(extent, 1)
    return dims


class _HalideDimension(ctypes.Structure):
    _fields_ = (
        ("min", ctypes.c_int32),
        ("extent", ctypes.c_int32),
        ("stride", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
    )


class HalideBuffer(ctypes.Structure):
    """``halide_buffer_t``."""

    _fields_ = (
        ("device", ctypes.c_uint64),
        ("device_interface", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("dimensions", ctypes.c_int32),
        ("dim", ctypes.POINTER(_HalideDimension)),
        ("padding", ctypes.c_void_p),
    )

    @staticmethod
    def of(array: Array, dims: Sequence[tuple[int, int]]) -> HalideBuffer:
        """Describe an array, which must outlive the result, by its ``(extent, stride)`` pairs, innermost first."""
        table = (_HalideDimension * max(len(dims), 1))(*(_HalideDimension(0, e, s, 0) for e, s in dims))
        code = 3 if array.dtype.name == "bfloat16" else {"i": 0, "u": 1, "b": 1, "f": 2}[array.dtype.kind]
        buffer = HalideBuffer(0, None, array.ctypes.data, 0, code, array.itemsize * 8, 1, len(dims), table, None)
        buffer.table = table
        return buffer


@cache
def kernel(desc: OpDesc, make: Make = HalideCompiler.compile, level: Level | None = None) -> Any:
    """Return the callable of a descriptor's kernel, compiled by ``make`` for a level and linked where none is kept."""
    _support()
    if make != HalideCompiler.compile:
        _runtime()
    level = level or host_level()
    symbol = f"kernel_{kept_kernels.name_of(desc, level, make)}"
    path = kept_kernels.FOLDER / f"{symbol}.so"
    if kept_kernels.kept(path) is None:
        made = _folder() / f"{symbol}.o"
        entry = kept_kernels.shipped(kept_kernels.key_of(desc, level)) if make == HalideCompiler.compile else None
        if entry is None:
            _compile(desc, symbol, made, make, level)
        else:
            made.write_bytes(entry.object)
        library = _linked(made, *([] if entry is None else [f"--defsym={symbol}={entry.symbol}"]))
        kept_kernels.keep(path, library.read_bytes())
        path = library
    _libraries.append(_load(path))
    return getattr(_libraries[-1], symbol)


_libraries: list[Any] = []


@cache
def _folder() -> Path:
    holder = tempfile.TemporaryDirectory(prefix="opbuild-kernels-")
    _holders.append(holder)
    return Path(holder.name)


_holders: list[Any] = []


@cache
def _support() -> None:
    """Load what networks are linked with."""
    for name, part in support_parts(host_level().triple).items():
        path = _folder() / f"{name}.o"
        path.write_bytes(part)
        _libraries.append(_link(path))
        if name == "tasks":
            load_pool().opbuild_pool_open(max(TASKS))
            _libraries[-1].opbuild_use_pool(load_pool().opbuild_pool_run, max(TASKS))


@cache
def _runtime() -> None:
    """Load the compiler's own runtime library, which kernels with checks call."""
    path = _folder() / "runtime.o"
    hl.compile_standalone_runtime(str(path), halide_target(spelled(host_level())))
    _libraries.append(_link(path))
    _libraries[-1].halide_set_error_handler(_keep_error)


_said: list[str] = []
"""What kernels with checks said; Halide's own handler would end the process."""


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
def _keep_error(_context: int | None, message: bytes) -> None:
    _said.append(message.decode())


def _link(path: Path) -> Any:
    return _load(_linked(path))


def _linked(path: Path, *options: str) -> Path:
    library = path.with_suffix(".so")
    subprocess.run(["ld", "-shared", *options, "-o", str(library), str(path)], check=True)
    return library


def _load(library: Path) -> Any:
    return ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def _compile(desc: OpDesc, symbol: str, path: Path, make: Make, level: Level) -> None:
    """Compile in a child: a crash of the compiler becomes an error here."""
    child = _child()
    try:
        child.send((make, desc.components(), symbol, path, level))
        error = child.recv()
    except (EOFError, OSError):
        _child.cache_clear()
        raise AssertionError(f"{desc.op_type}: the compiler died") from None
    assert not error, f"{desc.op_type} cannot be compiled: {error}"


@cache
def _child() -> Connection:
    """Start a child that compiles one kernel after the other, and return the way to it.

    It is forked once for all kernels: a process in which other tests have loaded torch takes as long to fork as a small
    kernel to compile.
    """
    here, there = Pipe()
    if os.fork() == 0:
        here.close()
        try:
            _serve(there)
        finally:
            os._exit(0)
    there.close()
    return here


def forget_child() -> None:
    """Have a new child compile from now on, which knows what this process knows now."""
    _child.cache_clear()


def _serve(requests: Connection) -> None:
    """Compile what is asked for until nobody asks any more."""
    while True:
        make, parts, symbol, path, level = requests.recv()
        try:
            path.write_bytes(make(OpDesc.from_components(parts), symbol, level))
            requests.send("")
        except BaseException as reason:
            requests.send(f"{type(reason).__name__}: {reason}")


def _canary(kind: np.dtype[Any]) -> Any:
    if kind.kind == "b":
        return True
    return kind.type(77) if kind.kind in "iu" else kind.type(7.75e3)


def _window(memory: Array, shape: Sequence[int], strides: Sequence[int]) -> Array:
    start = MARGIN
    steps = [stride * memory.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(memory[start:], tuple(shape), tuple(steps))
