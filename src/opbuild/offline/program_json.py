"""The record of one input signature as tables that a C program reads in place: ``native/opbuild_tables.h``.

    uint32[8]  numbers of inputs, outputs, buffers, steps, arguments, dimensions, extents, and bytes of text
    uint64     bytes of the arena
    uint32     text: why C cannot run it, empty if it can
    uint32     0
    ports      inputs, then outputs: uint32 name (text), buffer, type, rank, first extent, 0; uint64 bytes
    buffers    uint32 kind (0 input, 1 output, 2 constant, 3 temporary), 0; uint64 bytes;
               uint64 place: index of the port, byte in the section of weights, byte in the arena
    steps      uint32 symbol (text), first argument, number of arguments, nodes (text), nanoseconds of work,
               how many arguments it writes, the last ones; their arguments follow each other
    arguments  uint32 buffer, type, rank, first dimension; int64 first byte in the buffer
    dimensions int32 extent, int32 stride in elements, innermost first
    extents    int64
    text       strings that end with a zero byte; 0 is the empty one

A type is ``code + 256 * bits`` with Halide's codes: 0 signed, 1 unsigned, 2 floating, 3 bfloat. In it a port has
65536 times its number, from 1, if it is one of ``dtypes.CODED``: bytes that are codes of numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from opbuild.dtypes import CODED, itemsize
from opbuild.graph.types import Array
from opbuild.program import BufferKind, Port
from opbuild.runtime.devices.cpu.library import element_type
from opbuild.runtime.record import KernelStep, Record

MOST_ARGUMENTS = 32
"""Arguments of one kernel that the C library can pass."""

UINT32_MAX = 2**32 - 1
_KINDS: tuple[BufferKind, ...] = ("input", "output", "constant", "temporary")
_HEAD = np.dtype([("counts", "<u4", 8), ("arena", "<u8"), ("problem", "<u4"), ("zero", "<u4")])
_PORT = np.dtype([(name, "<u4") for name in ("name", "buffer", "type", "rank", "first", "zero")] + [("nbytes", "<u8")])
_BUFFER = np.dtype([("kind", "<u4"), ("zero", "<u4"), ("nbytes", "<u8"), ("place", "<u8")])
_STEP = np.dtype([(name, "<u4") for name in ("symbol", "first", "count", "nodes", "work", "writes")])
_ARGUMENT = np.dtype([(name, "<u4") for name in ("buffer", "type", "rank", "first")] + [("offset", "<i8")])


def tables(record: Record) -> bytes:
    """Return a record as tables for C; if C cannot run it, as far as its inputs and outputs, with the reason.

    Args:
        record: What runs; its constants lie in one section, at their offsets.
    """
    text, problem = _StringTable(), why_not_in_c(record)
    steps = [step for step in record.steps if isinstance(step, KernelStep) and not problem]
    views = [view for step in steps for view in step.views]
    ports = (*record.inputs, *record.outputs)
    kinds = [_type_number(dtype) for step in steps for dtype in step.argument_types(record.buffers)]
    sizes = [itemsize(buffer.dtype) for buffer in record.buffers]
    firsts = _starts(len(view.dims) for view in views)
    arrays = (
        np.array(_port_rows(ports, text), _PORT),
        np.array([(_KINDS.index(b.kind), 0, b.nbytes, _place(b.place, b.kind, record)) for b in record.buffers],
                 _BUFFER),
        np.array(
            [
                (text.add(step.symbol), first, len(step.views), text.add(", ".join(step.nodes)),
                 min(step.work, UINT32_MAX), step.writes)
                for step, first in zip(steps, _starts(len(step.views) for step in steps), strict=True)
            ],
            _STEP,
        ),
        np.array(
            [
                (view.buffer, kind, len(view.dims), first, view.offset * sizes[view.buffer])
                for view, kind, first in zip(views, kinds, firsts, strict=True)
            ],
            _ARGUMENT,
        ),
        np.array([dim for view in views for dim in view.dims], "<i4").reshape(-1, 2),
        np.array([extent for port in ports for extent in port.type.shape], "<i8"),
    )  # fmt: skip
    counts = [len(record.inputs), len(record.outputs), *(len(array) for array in arrays[1:])]
    head = np.zeros(1, _HEAD)
    head["arena"], head["problem"] = record.arena_size, text.add(problem)
    head["counts"] = [*counts, len(text.data)]
    return b"".join([head.tobytes(), *(array.tobytes() for array in arrays), bytes(text.data)])


def why_not_in_c(record: Record) -> str:
    """Return the reason that a record cannot be run from C, or the empty text."""
    if record.follows is not None:
        return (
            f"shapes depend on data or values ({record.follows.op_type} {record.follows.node}): it runs in Python only"
        )
    host = sorted({f"{step.node.op_type} ({step.node.name})" for step in record.steps.hosts})
    if host:
        return f"these operators have no kernel and run in Python only: {', '.join(host)}"
    if {port.buffer for port in record.inputs} & {port.buffer for port in record.outputs}:
        return "it replaces inputs: it runs in Python only"
    most = max((kind.arguments for kind in record.steps.kinds), default=0)
    return f"a kernel has {most} arguments, the C library passes {MOST_ARGUMENTS}" if most > MOST_ARGUMENTS else ""


class _StringTable:
    """Strings, each once, one after the other."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0")
        self._known = {"": 0}

    def add(self, value: str) -> int:
        if value not in self._known:
            self._known[value] = len(self.data)
            self.data += value.encode(errors="replace").replace(b"\0", b"?") + b"\0"
        return self._known[value]


def _port_rows(ports: Sequence[Port], text: _StringTable) -> list[tuple[int, ...]]:
    firsts = _starts(len(port.type.shape) for port in ports)
    return [
        (text.add(port.name), port.buffer, _port_type(port.type.dtype), len(port.type.shape), first, 0,
         port.type.nbytes)
        for port, first in zip(ports, firsts, strict=True)
    ]  # fmt: skip


def _starts(lengths: Iterable[int]) -> Array:
    """Return the start of each of several runs that follow one another."""
    each = np.array([0, *lengths], np.int64)
    return np.cumsum(each)[:-1]


def _place(place: int, kind: BufferKind, record: Record) -> int:
    return record.constants[place].offset if kind == "constant" else place


def _port_type(dtype: str) -> int:
    return _type_number(dtype) + (65536 * (1 + CODED.index(dtype)) if dtype in CODED else 0)


def _type_number(dtype: str) -> int:
    code, bits = element_type(dtype)
    return code + 256 * bits
