"""Hand-made programs and kernels for tests of the runtime: a few lines of Halide each, compiled once a test run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from opbuild.graph.types import Array, TensorType
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.offline.file import PackedWeights, write_offline
from opbuild.platform.files.trust import PRIVATE, Trust
from opbuild.program import Buffer, BufferKind, KernelCall, Port, Program, View
from opbuild.report import Report
from opbuild.runtime.assembly import make_record
from opbuild.runtime.binding import Binding
from opbuild.runtime.devices.cpu.library import Library
from opbuild.runtime.devices.cpu.link import link, support_parts
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.executor import Evaluate, Executor
from opbuild.runtime.memory_plan import plan
from opbuild.runtime.network import Network
from opbuild.runtime.record import Record
from opbuild.runtime.stored_network import StoredNetworks
from opbuild.runtime.weights import PackedConstants, Packer, pack_constants
from opbuild.store.networks import networks_in
from opbuild.store.weights import weights_in
from opbuild.target.host import host_level
from opbuild.target.level import CPU, Level
from opbuild.target.machine import WAKING


def vector(name: str, dtype: str = "float32", least: int = 0) -> Operand:
    """A one-dimensional operand of free extent and stride 1."""
    return Operand(name, dtype, (Dim(stride=1, min=least),))


ADD = OpDesc(("Add",), "test", (vector("x"), vector("y")), (vector("out"),))
SQUARE = OpDesc(("Square",), "test", (vector("x"),), (vector("out"),))
PARALLEL = OpDesc(("Exp",), "test", (vector("x", least=8),), (vector("out", least=8),))
"""Runs in parallel, and so needs what networks are linked with."""

SUPPORT = list(support_parts(host_level().triple).values())

SYMBOLS = {ADD: "add__kernel0", SQUARE: "square__kernel0", PARALLEL: "parallel__kernel0"}


@cache
def kernel_object(desc: OpDesc) -> bytes:
    """Return the object file of one of the descriptors above."""
    import halide as hl

    i, out = hl.Var("i"), hl.Func("out")
    tasks = hl.Param(hl.Int(32), "tasks")
    x, y = hl.ImageParam(hl.Float(32), 1, "x"), hl.ImageParam(hl.Float(32), 1, "y")
    if desc == ADD:
        out[i] = x[i] + y[i]
        arguments = [tasks, x, y]
    elif desc == SQUARE:
        out[i] = x[i] * x[i]
        arguments = [tasks, x]
    else:
        out[i] = x[i] * hl.f32(2) + hl.f32(1)
        out.split(i, hl.Var("o"), i, 8, hl.TailStrategy.GuardWithIf).parallel(hl.Var("o"))
        arguments = [tasks, x]
    target = hl.Target("host-no_runtime-no_asserts-no_bounds_query")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.o"
        out.compile_to({hl.OutputFileType.object: str(path)}, arguments, SYMBOLS[desc], target)
        return path.read_bytes()


def dense(buffer: int, size: int) -> View:
    """A view of a whole one-dimensional buffer."""
    return View(buffer, 0, ((size, 1),))


def chain(size: int = 32, weights: Array | None = None) -> Program:
    """``out = (x + w)^2 + w`` with ``w`` constant."""
    values = np.arange(size, dtype=np.float32) if weights is None else weights
    shape = (size,)
    buffers = (
        Buffer("input", "float32", size),
        Buffer(
            "constant", "float32", size, pack=lambda: values, source=lambda: ("w", values.tobytes().hex()[:64], size)
        ),
        Buffer("temporary", "float32", size),
        Buffer("temporary", "float32", size),
        Buffer("output", "float32", size),
    )
    calls = (
        KernelCall(ADD, (dense(0, size), dense(1, size), dense(2, size)), ("first",)),
        KernelCall(SQUARE, (dense(2, size), dense(3, size)), ("second",)),
        KernelCall(ADD, (dense(3, size), dense(1, size), dense(4, size)), ("third",)),
    )
    ports = Port("x", TensorType("float32", shape), 0), Port("out", TensorType("float32", shape), 4)
    return Program("chain", buffers, calls, ports[:1], ports[1:])


def expected_chain(x: Array, weights: Array | None = None) -> Array:
    """What ``chain`` computes."""
    w = np.arange(x.size, dtype=np.float32) if weights is None else weights
    return np.asarray((x + w) ** 2 + w)


def parallel_program(size: int = 4096) -> Program:
    """``out = 2 x + 1``, in parallel."""
    buffers = (Buffer("input", "float32", size), Buffer("output", "float32", size))
    ports = (Port("x", TensorType("float32", (size,)), 0), Port("out", TensorType("float32", (size,)), 1))
    call = KernelCall(PARALLEL, (dense(0, size), dense(1, size)), ("only",), WAKING)
    return Program("parallel", buffers, (call,), ports[:1], ports[1:])


@dataclass(frozen=True)
class Built:
    """A program that was built."""

    record: Record
    library: bytes
    constants: PackedConstants
    executor: Executor


def build(
    program: Program, packer: Packer | None = None, *, threads: int = 2, evaluate: Evaluate | None = None
) -> Built:
    """Take a program of the kernels above through packing, planning, linking and loading."""
    needed = list(program.descriptors())
    objects = [kernel_object(desc) for desc in needed]
    library = link([*objects, *(SUPPORT if PARALLEL in needed else [])]) if objects else b""
    constants = pack_constants(program, packer or Packer())
    record = make_record(
        program,
        SYMBOLS,
        plan(program),
        constant_of=constants.positions,
        constants=constants.places,
        notes={"operators": [], "lowering": {}},
    )
    loaded = {CPU: Library(library, threads)} if objects else {}
    return Built(record, library, constants, Executor(record, loaded, constants.arrays, evaluate))


def write_chain(path: Path, sizes: Sequence[int] = (64,), level: Level | None = None) -> Path:
    """Write an offline model of ``chain`` for one or several sizes, and return its path.

    The weights of a size are equal wherever it stands.
    """
    weights = PackedWeights()
    each = [build(chain(size)) for size in sizes]
    write_offline(
        path,
        name="chain",
        level=level or host_level(),
        records=[replace(built.record, constants=weights.place(built.constants.arrays)) for built in each],
        library=each[0].library,
        weights=weights,
        build={"model": "m", "operators": []},
    )
    return path


def image_store(folder: Path, salt: str = "", *, trust: Trust = PRIVATE, copies: bool = False) -> StoredNetworks:
    """Return the images of a folder."""
    networks = networks_in(folder, trust=trust, copies=copies)
    weights = weights_in(folder / "weights", trust=trust, copies=copies)
    return StoredNetworks(networks, weights, lambda: salt, copies=copies)


def counting(function: Callable[..., Any]) -> tuple[Callable[..., Any], list[Any]]:
    """Return a function that does the same and the list of its calls' first arguments."""
    calls: list[Any] = []

    def counted(*args: Any) -> Any:
        calls.append(args[0])
        return function(*args)

    return counted, calls


def two_in_two_out() -> Network:
    """``sum = a + b`` and ``again = sum + b`` on 8 elements."""
    kinds: tuple[BufferKind, ...] = ("input", "input", "output", "output")
    buffers = tuple(Buffer(kind, "float32", 8) for kind in kinds)
    type_ = TensorType("float32", (2, 4))
    calls = (
        KernelCall(ADD, (dense(0, 8), dense(1, 8), dense(2, 8)), ("one",)),
        KernelCall(ADD, (dense(2, 8), dense(1, 8), dense(3, 8)), ("two",)),
    )
    ports = [Port(name, type_, index) for index, name in enumerate(("a", "b", "sum", "again"))]
    executor = build(Program("two", buffers, calls, tuple(ports[:2]), tuple(ports[2:]))).executor
    inputs, binding = [Endpoint("a", type_), Endpoint("b", type_)], Binding(executor, Report("two"))
    return Network("two", inputs, ["sum", "again"], lambda _: binding, first=binding)
