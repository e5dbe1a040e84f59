"""Offline models: a built network, for one or several input signatures, in one file (``offline.format``)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from opbuild.dtypes import CODED, itemsize
from opbuild.errors import InvalidModelError, OpbuildError
from opbuild.events import Watch, unwatched
from opbuild.frontend.input_shape import format_input_shape
from opbuild.graph.types import DTYPES, Array, TensorType
from opbuild.offline.format import (
    ABOUT,
    GRAPH,
    LIBRARY,
    MACHINE,
    PLAN,
    PROGRAM,
    WEIGHTS,
    Container,
    Section,
    open_container,
    write_container,
)
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.trust import PRIVATE, Trust, parse_json
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass, field
from opbuild.program import BufferKind, Port
from opbuild.runtime.binding import Shapes
from opbuild.runtime.devices.cpu.library import element_type
from opbuild.runtime.endpoint import Endpoint, common
from opbuild.runtime.record import ALIGNMENT, Constant, ConstantPieces, KernelStep, Places, Record
from opbuild.runtime.record_json import from_json, to_json
from opbuild.target.host import needed_of_machine, parse_level
from opbuild.target.level import Level
from opbuild.text.canonical import canonical_json

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

    Its constants lie in one section, at their offsets.
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


UNSOUND = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""What values raise that a file says and that are not what they should be."""


@dataclass
class PackedWeights:
    """The section of weights while it is put together.

    Attributes:
        parts: The bytes of each constant, in order; each begins on the next multiple of ``ALIGNMENT``.
    """

    parts: list[Array] = field(default_factory=list)
    _offsets: dict[str, int] = field(default_factory=dict)
    _end: int = 0

    def place(self, arrays: Sequence[Array]) -> Places:
        """Add constants, those that are there already not again, and return where they lie."""
        return Places.of(self._place(array) for array in arrays)

    def _place(self, array: Array) -> Constant:
        digest = blake3_of(array.data)
        if digest not in self._offsets:
            self._offsets[digest] = self._end
            self.parts.append(array)
            self._end = -(-(self._end + array.nbytes) // ALIGNMENT) * ALIGNMENT
        return Constant(array.nbytes, "", self._offsets[digest])


def write_offline(
    path: Path,
    *,
    name: str,
    level: Level,
    records: Sequence[Record],
    library: bytes,
    weights: PackedWeights,
    build: Mapping[str, Any],
    outputs: Sequence[str] = (),
    more: Sequence[Section] = (),
    trust: Trust = PRIVATE,
    watch: Watch = unwatched,
) -> None:
    """Write an offline model, whole or not at all.

    All records have the same inputs but for their shapes. ``outputs`` are the network's, if its records are first
    segments of it, which have others.

    Raises:
        OSError: If it cannot be written.
        ValueError: If a record cannot be stored.
    """
    first = records[0]
    about = {
        "name": name,
        "target": level.name,
        "inputs": [[port.name, port.type.dtype] for port in first.inputs],
        "outputs": list(outputs) or [port.name for port in first.outputs],
        "signatures": [[list(port.type.shape) for port in record.inputs] for record in records],
        "build": dict(build),
    }
    sections = [
        Section(ABOUT, 0, [canonical_json(about).encode()]),
        Section(MACHINE, 0, [" ".join(needed_of_machine(level)).encode()]),
        *(Section(PLAN, i, [canonical_json(to_json(record)).encode()]) for i, record in enumerate(records)),
        *(Section(PROGRAM, i, [tables(record)]) for i, record in enumerate(records)),
        *more,
        Section(LIBRARY, 0, [library]),
        Section(WEIGHTS, 0, _reported_parts([array.data for array in weights.parts], watch)),
    ]
    write_container(path, sections, trust)


@dataclass(frozen=True)
class OfflineModel:
    """An offline model that was read and checked; its weights are mapped or copied.

    Attributes:
        inputs: Name and element type of each input.
    """

    container: Container
    name: str
    level: Level
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[str, ...]
    signatures: tuple[Shapes, ...]
    build: Mapping[str, Any]

    @property
    def served(self) -> list[str]:
        """The input shapes that it serves, as users write them."""
        names = [name for name, _ in self.inputs]
        return [format_input_shape(dict(zip(names, shapes, strict=True))) for shapes in self.signatures]

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The inputs; an extent that differs between signatures is -1."""
        columns = [[shapes[position] for shapes in self.signatures] for position in range(len(self.inputs))]
        return tuple(
            Endpoint(name, common([TensorType(dtype, shape) for shape in shapes]))
            for (name, dtype), shapes in zip(self.inputs, columns, strict=True)
        )

    def output_endpoints(self) -> tuple[Endpoint, ...]:
        """Return the outputs; an extent that differs between signatures is -1."""
        records = [self.record(index) for index in range(len(self.signatures))]
        columns = zip(*(record.outputs for record in records), strict=True)
        return tuple(Endpoint(ports[0].name, common([port.type for port in ports])) for ports in columns)

    @property
    def library(self) -> bytes:
        """The linked kernels, whole; empty if the network has none."""
        library = self.container.section(LIBRARY).tobytes()
        if library and not _is_whole(library):
            raise self._invalid("its library is cut")
        return library

    def record(self, index: int) -> Record:
        """Return the record of a signature."""
        try:
            record = from_json(parse_json(self.container.section(PLAN, index).tobytes()))
        except ValueError as error:
            raise self._invalid(str(error)) from error
        ports = tuple((port.name, port.type.dtype) for port in record.inputs)
        if ports != self.inputs or tuple(port.type.shape for port in record.inputs) != self.signatures[index]:
            raise self._invalid(f"plan {index} has other inputs than the file says")
        if record.follows is not None and not self.container.section(GRAPH).size:
            raise self._invalid(f"plan {index} is a segment of a network that the file does not hold")
        if record.follows is None and tuple(port.name for port in record.outputs) != self.outputs:
            raise self._invalid(f"plan {index} has other outputs than the file says")
        return record

    def constants(self, record: Record) -> ConstantPieces:
        """Return the bytes of a record's constants, where the file was read or mapped."""
        try:
            return ConstantPieces(record.constants, self.container.section(WEIGHTS), {})
        except OSError as error:
            raise self._invalid(str(error)) from error

    def _invalid(self, how: str) -> InvalidModelError:
        return InvalidModelError(f"{str(self.container.path)!r} cannot be used: {how}", "write the file again")


def read_offline(path: Path, *, verify: bool = True, trust: Trust = PRIVATE, copies: bool = False) -> OfflineModel:
    """Read and check an offline model, whatever machine it is for.

    Args:
        path: The file.
        verify: Whether to compare the weights with their digest, which reads them; all else always is.
        trust: Whose file is believed, and what it must be signed with.
        copies: Whether to read the weights into memory of this process instead of mapping them.

    Raises:
        InvalidModelError: If it cannot be read, is none, is damaged or not signed, or others can write to it.
    """
    container = open_container(path, verify=verify, trust=trust, copies=copies)
    try:
        about = parse_json(container.section(ABOUT).tobytes())
        signatures = tuple(tuple(tuple(map(int, shape)) for shape in each) for each in about["signatures"])
        inputs = tuple((str(name), str(dtype)) for name, dtype in about["inputs"])
        if not signatures or any(dtype not in DTYPES for _, dtype in inputs):
            raise ValueError("it serves nothing")
        if len({name for name, _ in inputs}) < len(inputs):
            raise ValueError("two inputs have one name")
        _require_sections(container, len(signatures))
        if any([len(shape) for shape in shapes] != [len(shape) for shape in signatures[0]] for shapes in signatures):
            raise ValueError("its signatures differ in more than extents")
        if len(signatures[0]) != len(inputs):
            raise ValueError("its signatures have other inputs")
        return OfflineModel(
            container=container,
            name=str(about["name"]),
            level=parse_level(str(about["target"])),
            inputs=inputs,
            outputs=tuple(map(str, about["outputs"])),
            signatures=signatures,
            build=_build(about["build"]),
        )
    except (OpbuildError, *UNSOUND) as error:
        raise InvalidModelError(f"{str(path)!r} is no sound offline model: {error!r}", "write it again") from error


def _build(parts: Any) -> dict[str, Any]:
    """Return a file's notes of its build, the names in them as text."""
    build = dict(parts)
    if "operators" in build:
        build["operators"] = [[str(name), [*map(str, nodes)]] for name, nodes in build["operators"]]
    return build


def _require_sections(container: Container, signatures: int) -> None:
    """Refuse a file without sections that the machine needs, or with plans and tables of other signatures."""
    of = {kind: {index for own, index in container.places if own == kind} for kind in (MACHINE, PLAN, PROGRAM)}
    if 0 not in of[MACHINE] or any(of[kind] != set(range(signatures)) for kind in (PLAN, PROGRAM)):
        raise ValueError("it has the sections of other signatures")


_ELF_HEADER, _ELF_SEGMENT = struct.Struct("<32xQ14xHH"), struct.Struct("<I4xQ16xQ16x")
_LOADED = 1


def _is_whole(library: bytes) -> bool:
    """Return whether all that is loaded of a library is there: the system's loader would write behind its end."""
    try:
        start, size, count = _ELF_HEADER.unpack_from(library)
        segments = [_ELF_SEGMENT.unpack_from(library, start + size * index) for index in range(count)]
    except (struct.error, OverflowError):
        return False
    return all(kind != _LOADED or offset + nbytes <= len(library) for kind, offset, nbytes in segments)


def _reported_parts(parts: Sequence[memoryview], watch: Watch) -> Iterator[memoryview]:
    """Yield parts, and tell how many of their bytes are done."""
    done, total = 0, sum(part.nbytes for part in parts)
    for part in parts:
        yield part
        done += part.nbytes
        watch(done, total)
