"""Record: everything needed to run a built network but its code and its constants' bytes; plain data, JSON and back.

A network that was just built and one that starts from its stored image run from the same record, so both are checked
by the same code: every view lies inside its buffer, every kernel may run on its views. Reading JSON trusts nothing:
whatever is not exactly a record is a ``ValueError``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from functools import cache, lru_cache
from math import prod
from typing import Any, get_args

from opbuild import dtypes
from opbuild.graph.cut import Cut, cut_from_json, cut_to_json
from opbuild.graph.types import DTYPES, TensorType
from opbuild.platform.records import NamedTuple, dataclass
from opbuild.program import BufferKind, HostCall, Port, View

ALIGNMENT = 64
"""Bytes; every buffer begins on a cache line."""
CHECKED_ORDER = "check_flag"
"""The note of a record that lists the kernels to be checked by ``runtime.order_check``."""
KERNELS = "kernels"
"""The note of a record that has the family and the variant of each kernel, by symbol."""
INT32_MAX = 2**31 - 1
"""Extents and strides travel in 32 bits."""
itemsize = cache(dtypes.itemsize)
_KINDS, _TYPES = frozenset(get_args(BufferKind)), frozenset(DTYPES)

Dims = tuple[tuple[int, int], ...]
"""Extents and strides of a view, as ``View.dims``."""


class Storage(NamedTuple):
    """One buffer of a built network.

    Attributes:
        kind: Whose memory it is, as in ``program.Buffer``.
        dtype: Element type, a numpy name.
        size: Number of elements.
        place: For a temporary its first byte in the arena; for a constant its index in ``Record.constants``; for an
            input or output its index among them.
    """

    kind: BufferKind
    dtype: str
    size: int
    place: int

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.size * itemsize(self.dtype)


class KernelStep(NamedTuple):
    """One call of a kernel.

    Attributes:
        symbol: The kernel in the network's library.
        views: A view for each argument.
        nodes: Names of the model's nodes that it computes.
        dtypes: Element types of the arguments, where some are not those of their buffers (kernels that only move
            elements take them as unsigned integers); else empty. Only kernels with checks look at them.
        work: Nanoseconds that it takes on one core, roughly.
        writes: How many of the arguments, the last ones, it writes.
    """

    symbol: str
    views: tuple[View, ...]
    nodes: tuple[str, ...]
    dtypes: tuple[str, ...] = ()
    work: int = 0
    writes: int = 1

    @property
    def read(self) -> tuple[View, ...]:
        """The views that it only reads; one in memory that it writes too holds something after its own first write."""
        own = {view.buffer for view in self.wrote} if self.writes > 1 else ()
        return tuple(view for view in self.views[: -self.writes] if view.buffer not in own) if own else self.views[:-1]

    @property
    def wrote(self) -> tuple[View, ...]:
        """The views that it writes."""
        return self.views[-self.writes :]

    def argument_types(self, buffers: Sequence[Storage]) -> tuple[str, ...]:
        """Return the element types of the arguments."""
        return self.dtypes or tuple([buffers[view.buffer].dtype for view in self.views])


class Constant(NamedTuple):
    """Where the bytes of a constant are.

    Attributes:
        nbytes: Size in bytes.
        digest: BLAKE3 of the bytes, for a constant that has a file of its own, shared with other networks; else empty.
        offset: First byte in the image's own file of small constants; 0 with ``digest``.
    """

    nbytes: int
    digest: str
    offset: int


@dataclass(frozen=True, eq=False)
class Record:
    """A built network for one input signature.

    Attributes:
        name: The network's name.
        buffers: All buffers.
        steps: Kernel and host calls in execution order.
        inputs: Input ports in order.
        outputs: Output ports in order.
        arena_size: Bytes of the arena that holds the temporaries.
        constants: Where constants are; buffers refer to them by index.
        notes: JSON values for the report.
        cut: What comes after it, if it is a part of a network; None: it is a whole one.
        zeroed: Bytes at the beginning of the arena that hold padding, which must be zero before the first call.
    """

    name: str
    buffers: tuple[Storage, ...]
    steps: tuple[KernelStep | HostCall, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    arena_size: int
    constants: tuple[Constant, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)
    cut: Cut | None = None
    zeroed: int = 0


def problem(record: Record) -> str | None:
    """Return why a record can not be run safely, or None: views in buffers, buffers in memory, values written."""
    if not 0 <= record.zeroed <= record.arena_size:
        return f"{record.zeroed} bytes of an arena of {record.arena_size} are to be zero"
    for index, buffer in enumerate(record.buffers):
        if wrong := _misplaced(index, buffer, record):
            return f"buffer {index}: {wrong}"
    for kind, ports in (("input", record.inputs), ("output", record.outputs)):
        for port in ports:
            if wrong := _wrong_port(port, kind, record.buffers):
                return f"{port.name} {wrong}"
    returned = frozenset(port.buffer for port in record.outputs)
    for step in record.steps:
        if wrong := _wrong_step(step, record.buffers, returned):
            return wrong
    return _unwritten(record)


def _wrong_step(step: KernelStep | HostCall, buffers: Sequence[Storage], returned: Collection[int]) -> str | None:
    """Return why a step can not be run safely on its own; an input is written only where it is returned."""
    for view in step.views if isinstance(step, KernelStep) else (*step.inputs, *step.outputs):
        if view is not None and (wrong := _outside(view, buffers)):
            return f"{', '.join(step.nodes)}: {wrong}"
    for view in step.wrote if isinstance(step, KernelStep) else step.outputs:
        if view is not None and buffers[view.buffer].kind in ("input", "constant") and view.buffer not in returned:
            return f"{', '.join(step.nodes)}: it would write to an input or a constant"
    if isinstance(step, HostCall) and not _fits_types(step):
        return f"{step.node.name}: a view does not fit the type of its value"
    return None


def _unwritten(record: Record) -> str | None:
    """Return which value is read or returned although nothing wrote it: it would be whatever memory held.

    Elements are counted, not looked at one by one: an element that is written twice may hide one that is left out.
    """
    written: dict[int, int] = {}
    for step in record.steps:
        read, wrote = (step.read, step.wrote) if isinstance(step, KernelStep) else (step.inputs, step.outputs)
        for view in read:
            if view is None or view.buffer in written or not _elements(view.dims):
                continue
            if record.buffers[view.buffer].kind in ("temporary", "output"):
                return f"{', '.join(step.nodes)}: it reads buffer {view.buffer}, which nothing wrote before"
        for view in wrote:
            if view is not None:
                written[view.buffer] = written.get(view.buffer, 0) + _elements(view.dims)
    for port in record.outputs:
        if written.get(port.buffer, 0) < port.type.size:
            return f"{port.name} has {port.type.size} elements, {written.get(port.buffer, 0)} of them are written"
    shared = len(record.outputs) - len({port.buffer for port in record.outputs})
    return "two outputs are one buffer" if shared else None


@lru_cache(maxsize=4096)
def _elements(dims: Dims) -> int:
    return prod(extent for extent, stride in dims if stride or not extent)


def _wrong_port(port: Port, kind: str, buffers: Sequence[Storage]) -> str | None:
    """Return why a port's buffer is not the array that the caller gives for it."""
    if not 0 <= port.buffer < len(buffers):
        return f"names buffer {port.buffer}"
    buffer = buffers[port.buffer]
    if buffer.kind != kind and (kind, buffer.kind) != ("output", "input"):
        return f"is an {kind}, its buffer of kind {buffer.kind}"
    if (buffer.dtype, buffer.size) != (port.type.dtype, port.type.size):
        return f"is {port.type}, its buffer has {buffer.size} elements of {buffer.dtype}"
    return None


def _fits_types(call: HostCall) -> bool:
    """Return whether a host call has a type for each view, with as many elements."""
    if len(call.inputs) != len(call.input_types) or len(call.outputs) != len(call.output_types):
        return False
    views, types = (*call.inputs, *call.outputs), (*call.input_types, *call.output_types)
    return all(
        view is None or (type_ is not None and prod(extent for extent, _ in view.dims) == type_.size)
        for view, type_ in zip(views, types, strict=True)
    )


def _misplaced(index: int, buffer: Storage, record: Record) -> str | None:
    """Return why a buffer has no memory of its own kind."""
    if buffer.size < 0:
        return f"its size is {buffer.size}"
    if buffer.kind == "temporary":
        if not 0 <= buffer.place <= record.arena_size - buffer.nbytes and buffer.nbytes:
            return f"{buffer.nbytes} bytes at {buffer.place} are outside the arena of {record.arena_size}"
        return f"it begins at byte {buffer.place}" if buffer.place % ALIGNMENT else None
    if buffer.kind == "constant":
        if not 0 <= buffer.place < len(record.constants):
            return f"there is no constant {buffer.place}"
        if record.constants[buffer.place].nbytes != buffer.nbytes:
            return f"it has {buffer.nbytes} bytes, its constant {record.constants[buffer.place].nbytes}"
        return None
    ports = record.inputs if buffer.kind == "input" else record.outputs
    if 0 <= buffer.place < len(ports) and ports[buffer.place].buffer == index:
        return None
    return f"it is not the one of {buffer.kind} {buffer.place}"


def _outside(view: View, buffers: Sequence[Storage]) -> str | None:
    """Return why a view reaches outside its buffer, or None."""
    index, offset, dims = view
    if not 0 <= index < len(buffers):
        return f"a view names buffer {index}"
    reach = _reach(dims)
    if isinstance(reach, str):
        return reach
    size = buffers[index].size
    if reach is None:
        return None if 0 <= offset <= size else f"an empty view begins at element {offset} of {size}"
    low, high = offset + reach[0], offset + reach[1]
    return None if low >= 0 and high < size else f"a view covers elements {low} to {high} of a buffer of {size}"


@lru_cache(maxsize=4096)
def _reach(dims: Dims) -> tuple[int, int] | str | None:
    """Return the first and the last element of a view relative to its offset, None if it is empty; or what is wrong."""
    low = high = 0
    for extent, stride in dims:
        if not (0 <= extent <= INT32_MAX and -INT32_MAX <= stride <= INT32_MAX):
            return f"a view has extent {extent} and stride {stride}"
        reach = (extent - 1) * stride
        low, high = (low + reach, high) if reach < 0 else (low, high + reach)
    return (low, high) if all(extent for extent, _ in dims) else None


def type_to_json(type_: TensorType) -> list[Any]:
    """Return a type as JSON."""
    return [type_.dtype, list(type_.shape)]


def type_from_json(parts: Any) -> TensorType:
    """Return the type that ``type_to_json`` wrote."""
    return TensorType(str(parts[0]), tuple(int(extent) for extent in parts[1]))


def to_json(record: Record) -> dict[str, Any]:
    """Return a record as JSON values.

    Raises:
        ValueError: If a host call's node has an attribute that JSON can not hold, so that the network has no stored
            image.
    """
    table: dict[Dims, int] = {}
    steps = [_step_to_json(step, table) for step in record.steps]
    return {
        "name": record.name,
        "arena_size": record.arena_size,
        "zeroed": record.zeroed,
        "buffers": [[buffer.kind, buffer.dtype, buffer.size, buffer.place] for buffer in record.buffers],
        "dims": [[list(dim) for dim in dims] for dims in table],
        "steps": steps,
        "inputs": [_port_to_json(port) for port in record.inputs],
        "outputs": [_port_to_json(port) for port in record.outputs],
        "constants": [[constant.nbytes, constant.digest, constant.offset] for constant in record.constants],
        "notes": dict(record.notes),
        **({} if record.cut is None else {"cut": cut_to_json(record.cut)}),
    }


def from_json(parts: Any) -> Record:
    """Return the record that ``to_json`` wrote.

    Raises:
        ValueError: If it is not a record that can be run safely.
    """
    try:
        table = dict(enumerate(map(_dims, parts.get("dims", ()))))
        record = Record(
            name=str(parts["name"]),
            buffers=tuple(_storage(*buffer) for buffer in parts["buffers"]),
            steps=tuple([_step_from_json(step, table) for step in parts["steps"]]),
            inputs=tuple(_port_from_json(*port) for port in parts["inputs"]),
            outputs=tuple(_port_from_json(*port) for port in parts["outputs"]),
            arena_size=int(parts["arena_size"]),
            constants=tuple(_constant(*constant) for constant in parts["constants"]),
            notes=dict(parts["notes"]),
            cut=cut_from_json(parts["cut"]) if "cut" in parts else None,
            zeroed=int(parts.get("zeroed", parts["arena_size"])),
        )
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(f"not a record: {error!r}") from error
    wrong = problem(record)
    if wrong:
        raise ValueError(wrong)
    return record


def _storage(kind: Any, dtype: Any, size: Any, place: Any) -> Storage:
    if kind not in _KINDS or dtype not in _TYPES:
        raise ValueError(f"a buffer is of kind {kind!r} and type {dtype!r}")
    return Storage(kind, dtype, int(size), int(place))


def _constant(nbytes: Any, digest: Any, offset: Any) -> Constant:
    if digest and not re.fullmatch(r"[0-9a-f]{64}", digest):  # it becomes the name of a file
        raise ValueError(f"{digest[:80]!r} is not a digest")
    return Constant(int(nbytes), str(digest), int(offset))


def _port_to_json(port: Port) -> list[Any]:
    return [port.name, type_to_json(port.type), port.buffer]


def _port_from_json(name: Any, type_: Any, buffer: Any) -> Port:
    return Port(str(name), type_from_json(type_), int(buffer))


def _view_to_json(view: View | None, table: dict[Dims, int]) -> list[int] | None:
    """Return a view with the place of its extents and strides in a table: a long record has few that differ."""
    return None if view is None else [view.buffer, view.offset, table.setdefault(view.dims, len(table))]


def _view_from_json(parts: Any, table: Mapping[int, Dims]) -> View:
    buffer, offset, dims = parts  # before there was a table each view had its own
    return View(int(buffer), int(offset), table[dims] if isinstance(dims, int) else _dims(dims))


def _dims(parts: Any) -> Dims:
    return tuple((int(extent), int(stride)) for extent, stride in parts)


def _step_to_json(step: KernelStep | HostCall, table: dict[Dims, int]) -> dict[str, Any]:
    if isinstance(step, KernelStep):
        views, types = [_view_to_json(view, table) for view in step.views], {"dtypes": list(step.dtypes)}
        known = {"kernel": step.symbol, "views": views, "nodes": list(step.nodes), "work": step.work}
        return known | (types if step.dtypes else {}) | ({"writes": step.writes} if step.writes != 1 else {})
    from opbuild.graph.node_json import node_to_json  # few networks have steps on the host

    return {
        "host": node_to_json(step.node),
        "inputs": [_view_to_json(view, table) for view in step.inputs],
        "outputs": [_view_to_json(view, table) for view in step.outputs],
        "input_types": [None if type_ is None else type_to_json(type_) for type_ in step.input_types],
        "output_types": [None if type_ is None else type_to_json(type_) for type_ in step.output_types],
        "opset": step.opset,
    }


def _step_from_json(parts: Any, table: Mapping[int, Dims]) -> KernelStep | HostCall:
    if "kernel" in parts:
        views = tuple([_view_from_json(view, table) for view in parts["views"]])
        dtypes = tuple(map(str, parts.get("dtypes", ())))
        if (dtypes and len(dtypes) != len(views)) or not _TYPES.issuperset(dtypes):
            raise ValueError(f"a kernel's arguments have the types {dtypes}")
        nodes, work, writes = tuple(map(str, parts["nodes"])), int(parts.get("work", 0)), int(parts.get("writes", 1))
        if not 1 <= writes <= len(views):
            raise ValueError(f"a kernel of {len(views)} arguments writes {writes}")
        return KernelStep(str(parts["kernel"]), views, nodes, dtypes, max(work, 0), writes)
    from opbuild.graph.node_json import node_from_json

    return HostCall(
        node=node_from_json(parts["host"]),
        inputs=tuple(None if view is None else _view_from_json(view, table) for view in parts["inputs"]),
        outputs=tuple(None if view is None else _view_from_json(view, table) for view in parts["outputs"]),
        input_types=tuple(None if type_ is None else type_from_json(type_) for type_ in parts["input_types"]),
        output_types=tuple(None if type_ is None else type_from_json(type_) for type_ in parts["output_types"]),
        opset=int(parts["opset"]),
    )
