"""Checks of a record before it runs: views in buffers, buffers in memory, values written before they are read.

Kernels check nothing while they run, so this is where a record that was read, or just made, is checked. All numbers are
looked at with array operations; those that could leave 64 bits in a sum or a product are refused first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from opbuild.graph.types import MOST_DIMENSIONS, MOST_ELEMENTS, Array
from opbuild.platform.locks import lazy_property
from opbuild.program import BufferKind, HostCall
from opbuild.runtime.record import ALIGNMENT, CHECKS, HOST, CallKind, DimsTable, Ports, itemsize
from opbuild.target.level import CPU
from opbuild.text.plural import counted

if TYPE_CHECKING:
    from opbuild.runtime.record import Record

INT32_MAX = 2**31 - 1
"""Extents and strides travel in 32 bits."""
MOST = 2**56
"""Elements and bytes; more are in no memory, and sums of a few products of so many are exact."""
MIN = -(2**63)
MOST_VIEWED = 64
"""Dimensions of a view: those of a tensor, each of which may be cut into blocks."""

_Fault = tuple[Array, Callable[[int], str]]
"""What is wrong, and what is said of the first that is."""


def problem(record: Record) -> str | None:
    """Return the reason that a record cannot be run safely, or None: views in buffers, buffers in memory, writes."""
    checked = Soundness(record)
    return checked.structure() or checked.numbers(record)


class Soundness:
    """The checks of a record, and of all with the same calls and other numbers.

    Args:
        record: One of them; its numbers may be places.
    """

    def __init__(self, record: Record) -> None:
        steps, self._record = record.steps, record
        several = steps.of_arguments([[kind.writes > 1] * kind.arguments for kind in steps.kinds])
        columns = [steps.step, steps.buffer, steps.wrote, several]
        at_host = np.flatnonzero(steps.kind == HOST).tolist()
        rows = [
            (step, view.buffer, writes, False)
            for step, call in zip(at_host, steps.hosts, strict=True)
            for writes, views in ((False, call.inputs), (True, call.outputs))
            for view in views
            if view is not None
        ]
        if rows:
            columns = [*map(np.append, columns, np.array(rows, np.int64).T)]
        self._step, self._buffer, wrote, several = columns
        self._writes, self._shares = wrote != 0, several != 0
        self._unwritten = np.zeros(0, np.int64)
        self._temporary, self._constant = record.buffers.is_of("temporary"), record.buffers.is_of("constant")
        checks = [number for number, kind in enumerate(steps.kinds) if kind.symbol in CHECKS.values()]
        self._checked = np.flatnonzero(np.isin(steps.called, checks)).tolist() if checks else []

    def structure(self) -> str | None:
        """Return the fault that a record has whatever its numbers are, or None."""
        record = self._record
        for kind, ports in (("input", record.inputs), ("output", record.outputs)):
            for place in range(len(ports)):
                if wrong := _wrong_port(ports, kind, place, record):
                    return f"{ports.names[place]} {wrong}"
        wrong = self._misplaced() or self._misnamed() or _mistyped(record) or self._unchecked()
        return wrong or (_misplaced_call(record) if record.buffers.devices else None) or self._returned()

    def numbers(self, record: Record) -> str | None:
        """Return the fault in the numbers of a record with these calls, or None."""
        if not 0 <= record.zeroed <= record.arena_size <= MOST:
            return f"{record.zeroed} bytes of an arena of {record.arena_size} are to be zero"
        for name, (size, zeroed) in record.arenas.items():
            if not 0 <= zeroed <= size <= MOST:
                return f"{zeroed} bytes of an arena of {size} on {name} are to be zero"
        for call in record.steps.hosts:
            if not _fits_types(call):
                return f"{call.node.name}: a view does not fit the type of its value"
            if call.is_copy and not _is_dense_copy(call):
                return f"{call.node.name}: its views are not dense"
        if not self._is_plain(record):
            wrong = self._unplaced_buffer(record) or self._overreaching_view(record)
            if wrong:
                return wrong
        return self._scattered(record)

    # -- whatever the numbers are -------------------------------------------------------------------------------------

    def _misplaced(self) -> str | None:
        """Return the buffer that is none of the constants, or none of the arrays that the caller gives."""
        buffers, record = self._record.buffers, self._record
        place, count = buffers.place, len(record.constants)
        if record.symbolic is not None:
            count += len(record.symbolic.tables)
        constant = self._constant
        wrong = _first(
            [
                ((place < 0) | (place > MOST), lambda i: f"its place is {place[i]}"),
                (constant & (place >= count), lambda i: f"there is no constant {place[i]}"),
            ],
            lambda i: f"buffer {i}",
        )
        return wrong or _missing_array(record)

    def _misnamed(self) -> str | None:
        """Return the view that names no buffer, or is written although it is not the network's memory.

        An input is written only where it is returned; that an output's buffer is no constant's is known.
        """
        record, count = self._record, len(self._record.buffers)
        unknown = (self._buffer < 0) | (self._buffer >= count)
        is_given = np.append(record.buffers.is_of("input", "constant"), False)
        is_given[record.outputs.buffer] = False
        buffer = np.where(unknown, count, self._buffer)
        return _first(
            [
                (unknown, lambda i: f"a view names buffer {self._buffer[i]}"),
                (self._writes & is_given[buffer], lambda _: "it would write to an input or a constant"),
            ],
            self._nodes,
        )

    def _unchecked(self) -> str | None:
        """Return the indices that cannot be looked at."""
        record, steps = self._record, self._record.steps
        for call in self._checked:
            if not _can_check(steps.kinds[steps.called[call]], int(steps.ends[call]), record):
                return f"{_nodes(int(steps.kernels[call]), record)}: indices are not looked at as they are"
        return None

    def _returned(self) -> str | None:
        """Return the fault of an output that is none of its own, and note buffers read before they are written."""
        record, wrote = self._record, self._writes
        buffers = record.buffers
        first = np.full(len(buffers), len(record.steps))
        np.minimum.at(first, self._buffer[wrote], self._step[wrote])
        reads = ~wrote
        if self._shares.any():
            own = self._step * len(buffers) + self._buffer
            reads &= ~(self._shares & np.isin(own, own[wrote]))
        made = buffers.is_of("temporary", "output")[self._buffer] & (first[self._buffer] >= self._step)
        self._unwritten = np.flatnonzero(reads & made)
        shared = len(record.outputs) - len({*record.outputs.buffer.tolist()})
        return "two outputs are one buffer" if shared else None

    def _nodes(self, index: int) -> str:
        return _nodes(int(self._step[index]), self._record)

    # -- the numbers --------------------------------------------------------------------------------------------------

    @lazy_property
    def _memory(self) -> tuple[Array, Array, Array]:
        """The buffers that are temporaries, those that are constants, and the constant of each of these."""
        constant = np.flatnonzero(self._constant)
        return np.flatnonzero(self._temporary), constant, self._record.buffers.place[constant]

    def _is_plain(self, record: Record) -> bool:
        """Return whether all numbers are as they are in most records, which takes a look at few of them.

        Views have elements, of which the first is the one at their offsets, and no number is large: then none of what
        ``_unplaced_buffer`` and ``_overreaching_view`` look at is wrong. False says nothing.
        """
        buffers, steps = record.buffers, record.steps
        if steps.hosts or buffers.devices or not len(steps.dims) or len(self._unwritten):
            return False
        temporary, constant, own = self._memory
        nbytes, place = buffers.size * buffers.itemsize, buffers.place[temporary]
        is_placed = place.min(initial=0) >= 0 <= buffers.size.min(initial=0) and not (place % ALIGNMENT).any()
        fits = max(buffers.size.max(initial=0), place.max(initial=0)) <= MOST
        if not is_placed or not fits or (place > record.arena_size - nbytes[temporary]).any():
            return False
        if not np.array_equal(record.constants.nbytes[own], nbytes[constant]):
            return False
        return self._has_plain_views(record) and not (
            _unfit_port(record.inputs, record) or _unfit_port(record.outputs, record)
        )

    def _has_plain_views(self, record: Record) -> bool:
        steps = record.steps
        pairs, first = steps.dims.pairs, steps.dims.first
        (extent, stride), (most, longest) = pairs.min(0).tolist(), pairs.max(0).tolist()
        if extent < 1 or stride < 0 or steps.dims.rank.max() > MOST_VIEWED:
            return False
        if max(most * longest * MOST_VIEWED, steps.offset.max(initial=0)) > MOST or max(most, longest) > INT32_MAX:
            return False
        extents, strides = pairs.T
        last = steps.offset + np.add.reduceat((extents - 1) * strides, first)[steps.shape]
        if steps.offset.min(initial=0) < 0 or (last >= record.buffers.size[steps.buffer]).any():
            return False
        each = np.multiply.reduceat(np.where(strides > 0, extents, 1).astype(np.float64), first)
        return self._unwritten_output(record.outputs, np.minimum(each, MOST)[steps.shape]) is None

    def _unplaced_buffer(self, record: Record) -> str | None:
        """Return the buffer that has no memory, or the port that is not as large as its own."""
        buffers, arena = record.buffers, _arenas(record)
        size, place = buffers.size, buffers.place
        nbytes = size * buffers.itemsize
        temporary, constant = self._temporary, self._constant
        there = np.append(record.constants.nbytes, 0)[np.where(constant, place, 0)]
        return (
            _first(
                [
                    ((size < 0) | (size > MOST), lambda i: f"its size is {size[i]}"),
                    ((place < 0) | (place > MOST), lambda i: f"its place is {place[i]}"),
                    (
                        temporary & (nbytes > 0) & (place > arena - nbytes),
                        lambda i: f"{nbytes[i]} bytes at {place[i]} are outside the arena of {arena[i]}",
                    ),
                    (temporary & (place % ALIGNMENT != 0), lambda i: f"it begins at byte {place[i]}"),
                    (constant & (there != nbytes), lambda i: f"it has {nbytes[i]} bytes, its constant {there[i]}"),
                ],
                lambda i: f"buffer {i}",
            )
            or _unfit_port(record.inputs, record)
            or _unfit_port(record.outputs, record)
        )

    def _overreaching_view(self, record: Record) -> str | None:
        """Return the view that reaches outside its buffer, or reads or returns unwritten elements.

        Elements are counted, not looked at one by one: an element that is written twice may hide one that is left out.
        """
        shape, offset, dims = self._views(record)
        low, high, elements, wrong = _reaches(dims)
        if wrong:
            return wrong
        low, high, elements = low[shape], high[shape], elements[shape]
        size, is_empty = record.buffers.size[self._buffer], low > high
        offset = np.clip(offset, -MOST, MOST)
        first, last = offset + low, offset + high
        said = _first(
            [
                (
                    is_empty & ((offset < 0) | (offset > size)),
                    lambda i: f"an empty view begins at element {offset[i]} of {size[i]}",
                ),
                (
                    ~is_empty & ((first < 0) | (last >= size)),
                    lambda i: f"a view covers elements {first[i]} to {last[i]} of a buffer of {size[i]}",
                ),
            ],
            self._nodes,
        )
        for index in self._unwritten.tolist():
            if elements[index] and not said:
                said = f"{self._nodes(index)}: it reads buffer {self._buffer[index]}, which nothing wrote before"
        return said or self._unwritten_output(record.outputs, elements)

    def _scattered(self, record: Record) -> str | None:
        """Return the indices looked at that do not lie one after the other."""
        steps = record.steps
        for call in self._checked:
            extent, stride = steps.dims.pairs[steps.dims.first[steps.shape[steps.ends[call] - 2]]].tolist()
            if stride != 1 and extent > 1:
                return f"{_nodes(int(steps.kernels[call]), record)}: indices are not looked at as they lie"
        return None

    def _views(self, record: Record) -> tuple[Array, Array, DimsTable]:
        """Return for each view the row of its extents and strides and its first element, and those rows."""
        steps = record.steps
        views = [view for call in steps.hosts for view in (*call.inputs, *call.outputs) if view is not None]
        if not views:
            return steps.shape, steps.offset, steps.dims
        offsets = np.array([view.offset for view in views], np.int64)
        places = np.arange(len(steps.dims), len(steps.dims) + len(views))
        dims = steps.dims.followed_by(DimsTable.of(view.dims for view in views))
        return np.append(steps.shape, places), np.append(steps.offset, offsets), dims

    @lazy_property
    def _into_outputs(self) -> Array:
        """The views by which buffers of outputs are written."""
        return np.flatnonzero(self._writes & np.isin(self._buffer, self._record.outputs.buffer))

    def _unwritten_output(self, outputs: Ports, elements: Array) -> str | None:
        """Return the output that is not written whole."""
        wrote, count = self._into_outputs, len(self._record.buffers)
        written = np.bincount(self._buffer[wrote], elements[wrote], count)[outputs.buffer]
        wrong = np.flatnonzero(written < outputs.sizes)
        if not len(wrong):
            return None
        first = int(wrong[0])
        port = outputs[first]
        return f"{port.name} has {port.type.size} elements, {written[first]:.0f} of them are written"


def _first(faults: Sequence[_Fault], named: Callable[[int], str]) -> str | None:
    """Return the message for the first item that has the first fault that any has."""
    for wrong, said in faults:
        if wrong.any():
            index = int(wrong.argmax())
            return f"{named(index)}: {said(index)}"
    return None


def _arenas(record: Record) -> Array:
    """Return for each buffer the size of the arena of its device."""
    sizes = [record.arena_size, *(record.arenas.get(name, (0, 0))[0] for name in record.buffers.devices)]
    return np.array(sizes, np.int64)[record.buffers.device]


def _misplaced_call(record: Record) -> str | None:
    """Return the call that has operands on several devices, or is run where they are not.

    The host's memory is the CPU's. A copy is between it and another device.
    """
    buffers, steps = record.buffers, record.steps
    if len(steps.buffer):
        device = buffers.device[steps.buffer]
        first = device[steps.ends - np.diff(steps.ends, prepend=0)]
        wrong = device != np.repeat(first, np.diff(steps.ends, prepend=0))
        checks = np.array([kind.symbol in CHECKS.values() for kind in steps.kinds], np.bool_)[steps.called]
        if wrong.any():
            return f"{_nodes(int(steps.step[wrong.argmax()]), record)}: a kernel has operands on several devices"
        if (checks & (first != 0)).any():
            return "indices are looked at on a device that does not look"
        if len({*zip(steps.called.tolist(), first.tolist(), strict=True)}) != len({*steps.called.tolist()}):
            return "calls of one kernel are on several devices"
    for call in steps.hosts:
        own = [buffers[view.buffer] for side in (call.inputs, call.outputs) for view in side if view is not None]
        away = sum(each.device != CPU for each in own)
        is_copied = len(own) == 2 and len(call.inputs) == 1 and len({each.dtype for each in own}) == 1
        if not (is_copied and away == 1) if call.is_copy else away:
            return f"{call.node.name}: it is evaluated on the host, and has values elsewhere"
    return None


def _is_dense_copy(call: HostCall) -> bool:
    """Return whether a copy between devices is of as many elements of a type, one after the other."""
    views = [view for view in (*call.inputs, *call.outputs) if view is not None]
    types = [each for each in (*call.input_types, *call.output_types) if each is not None]
    dims = {view.dims for view in views}
    return len(views) == 2 and len({each.dtype for each in types}) == 1 == len(dims) and dims == {((types[0].size, 1),)}


def _unfit_port(ports: Ports, record: Record) -> str | None:
    """Return the port that cannot be, or is not as large as its buffer."""
    own = record.buffers.size[ports.buffer]
    wrong = (ports.sizes != own) | (ports.bounds > MOST_ELEMENTS) | (ports.rank > MOST_DIMENSIONS)
    if not wrong.any() and ports.extents.min(initial=0) >= 0:
        return None
    for port, size in zip(ports, own.tolist(), strict=True):
        if impossible := port.type.problem:
            return f"{port.name} cannot be: {impossible}"
        if port.type.size != size:
            return f"{port.name} is {port.type}, its buffer has {size} elements of {port.type.dtype}"
    return None


def _missing_array(record: Record) -> str | None:
    """Return the buffer of the caller's that is none of the arrays that the caller gives."""
    sides: tuple[tuple[BufferKind, Ports], ...] = (("input", record.inputs), ("output", record.outputs))
    for kind, ports in sides:
        for index in np.flatnonzero(record.buffers.is_of(kind)).tolist():
            place = int(record.buffers.place[index])
            if not 0 <= place < len(ports) or ports.buffer[place] != index:
                return f"buffer {index}: it is not the one of {kind} {place}"
    return None


def _wrong_port(ports: Ports, kind: str, place: int, record: Record) -> str | None:
    """Return the reason that a port's buffer is not the array that the caller gives for it."""
    buffer, buffers = int(ports.buffer[place]), record.buffers
    if not 0 <= buffer < len(buffers):
        return f"names buffer {buffer}"
    own, dtype, device = buffers.sorts[buffers.sort[buffer]]
    if device != CPU:
        return f"lies on {device}"
    if own != kind and (kind, own) != ("output", "input"):
        return f"is an {kind}, its buffer of kind {own}"
    if dtype != ports.dtypes[place]:
        return f"is {ports.dtypes[place]}, its buffer has elements of {dtype}"
    if own == kind and buffers.place[buffer] != place:
        return f"has the buffer of {kind} {buffers.place[buffer]}"
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


def _mistyped(record: Record) -> str | None:
    """Return the kernel that takes elements for others."""
    buffers, steps = record.buffers, record.steps
    held = buffers.itemsize[steps.buffer]
    if any(kind.dtypes for kind in steps.kinds):
        taken = steps.of_arguments([[*map(itemsize, kind.dtypes)] or [0] * kind.arguments for kind in steps.kinds])
        wrong = (taken != 0) & (taken != held)
        if wrong.any():
            index = int(wrong.argmax())
            where = _nodes(int(steps.step[index]), record)
            return f"{where}: a kernel takes elements of {taken[index]} bytes, its buffer has some of {held[index]}"
    return None


def _can_check(kind: CallKind, end: int, record: Record) -> bool:
    """Return whether the check of indices can read its arguments, which end at a place among all."""
    if (kind.arguments, kind.writes) != (2, 0):
        return False
    buffers, steps = record.buffers, record.steps
    dims, (indices, bounds) = steps.dims, steps.shape[end - 2 : end].tolist()
    dtype = kind.dtypes[0] if kind.dtypes else buffers.sorts[buffers.sort[steps.buffer[end - 2]]].dtype
    return dtype in ("int32", "int64") and dims.rank[indices] == 1 and bool(dims.rank[bounds] >= 1)


def _reaches(dims: DimsTable) -> tuple[Array, Array, Array, str | None]:
    """Return the first and last element of views relative to their offsets, and how many elements they are.

    Empty ones have the first behind the last. The last is what is wrong with one of them.
    """
    none = np.zeros(0, np.int64)
    if not len(dims):
        return none, none, none, None
    if dims.rank.max() > MOST_VIEWED:
        return none, none, none, f"a view has {counted(int(dims.rank.max()), 'dimension')}"
    (extents, strides), first = dims.pairs.T, dims.first
    if extents.min() < 0 or extents.max() > INT32_MAX or np.abs(strides).max() > INT32_MAX or strides.min() == MIN:
        wrong = (extents < 0) | (extents > INT32_MAX) | (strides < -INT32_MAX) | (strides > INT32_MAX)
        index = int(wrong.argmax())
        return none, none, none, f"a view has extent {extents[index]} and stride {strides[index]}"
    reach = (extents - 1) * strides
    is_empty = np.minimum.reduceat(extents, first) == 0
    covered = np.where(is_empty, 0.0, np.add.reduceat(np.abs(reach).astype(np.float64), first))
    if covered.max() > MOST:
        return none, none, none, f"a view covers {covered.max() + 1:.0f} elements"
    low, high = (np.where(is_empty, 0, np.add.reduceat(side(reach, 0), first)) for side in (np.minimum, np.maximum))
    each = np.where((strides != 0) | (extents == 0), extents, 1).astype(np.float64)
    elements = np.minimum(np.multiply.reduceat(each, first), MOST)
    return low + is_empty, high, elements, None


def _nodes(step: int, record: Record) -> str:
    return ", ".join(record.steps[step].nodes)
