"""What keeps a record from running safely: views in buffers, buffers in memory, values written before they are read.

Kernels check nothing while they run, so this is where a record that was read, or just made, is checked. All numbers are
looked at with array operations; those that could leave 64 bits in a sum or a product are refused first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from opbuild.graph.types import Array
from opbuild.platform.records import NamedTuple
from opbuild.program import BufferKind, HostCall, Port
from opbuild.runtime.record import ALIGNMENT, CHECKS, HOST, Dims, Kind, Steps, Storages, itemsize
from opbuild.text.plural import counted

if TYPE_CHECKING:
    from opbuild.runtime.record import Record

INT32_MAX = 2**31 - 1
"""Extents and strides travel in 32 bits."""
MOST = 2**56
"""Elements and bytes; more are in no memory, and sums of a few products of so many are exact."""
MOST_VIEWED = 64
"""Dimensions of a view: those of a tensor, each of which may be cut into blocks."""

_Fault = tuple[Array, Callable[[int], str]]
"""What is wrong, and what is said of the first that is."""


def problem(record: Record) -> str | None:
    """Return why a record can not be run safely, or None: views in buffers, buffers in memory, values written."""
    if not 0 <= record.zeroed <= record.arena_size <= MOST:
        return f"{record.zeroed} bytes of an arena of {record.arena_size} are to be zero"
    if wrong := _misplaced(record):
        return wrong
    for kind, ports in (("input", record.inputs), ("output", record.outputs)):
        for place, port in enumerate(ports):
            if wrong := _wrong_port(port, kind, place, record.buffers):
                return f"{port.name} {wrong}"
    for call in record.steps.hosts:
        if not _fits_types(call):
            return f"{call.node.name}: a view does not fit the type of its value"
    views = _Views.of(record.steps)
    return _outside(views, record) or _mistyped(record) or _unwritten(views, record)


def _first(faults: Sequence[_Fault], named: Callable[[int], str]) -> str | None:
    """Return what is said of the first that has the first fault that any has."""
    for wrong, said in faults:
        if wrong.any():
            index = int(wrong.argmax())
            return f"{named(index)}: {said(index)}"
    return None


def _misplaced(record: Record) -> str | None:
    """Return which buffer has no memory of its own kind."""
    buffers, arena, constants = record.buffers, record.arena_size, record.constants
    size, place = buffers.size, buffers.place
    nbytes = size * buffers.itemsize
    temporary, constant = buffers.is_of("temporary"), buffers.is_of("constant")
    there = np.append(constants.nbytes, 0)[np.clip(place, 0, len(constants))]
    return _first(
        [
            ((size < 0) | (size > MOST), lambda i: f"its size is {size[i]}"),
            ((place < 0) | (place > MOST), lambda i: f"its place is {place[i]}"),
            (
                temporary & (nbytes > 0) & (place > arena - nbytes),
                lambda i: f"{nbytes[i]} bytes at {place[i]} are outside the arena of {arena}",
            ),
            (temporary & (place % ALIGNMENT != 0), lambda i: f"it begins at byte {place[i]}"),
            (constant & (place >= len(constants)), lambda i: f"there is no constant {place[i]}"),
            (constant & (there != nbytes), lambda i: f"it has {nbytes[i]} bytes, its constant {there[i]}"),
        ],
        lambda i: f"buffer {i}",
    ) or _not_given(record)


def _not_given(record: Record) -> str | None:
    """Return which buffer of the caller's is none of the arrays that the caller gives."""
    sides: tuple[tuple[BufferKind, tuple[Port, ...]], ...] = (("input", record.inputs), ("output", record.outputs))
    for kind, ports in sides:
        for index in np.flatnonzero(record.buffers.is_of(kind)).tolist():
            place = int(record.buffers.place[index])
            if place >= len(ports) or ports[place].buffer != index:
                return f"buffer {index}: it is not the one of {kind} {place}"
    return None


def _wrong_port(port: Port, kind: str, place: int, buffers: Storages) -> str | None:
    """Return why a port's buffer is not the array that the caller gives for it."""
    if wrong := port.type.problem:
        return f"can not be: {wrong}"
    if not 0 <= port.buffer < len(buffers):
        return f"names buffer {port.buffer}"
    (own, dtype), size = buffers.sorts[buffers.sort[port.buffer]], int(buffers.size[port.buffer])
    if own != kind and (kind, own) != ("output", "input"):
        return f"is an {kind}, its buffer of kind {own}"
    if (dtype, size) != (port.type.dtype, port.type.size):
        return f"is {port.type}, its buffer has {size} elements of {dtype}"
    if own == kind and buffers.place[port.buffer] != place:
        return f"has the buffer of {kind} {buffers.place[port.buffer]}"
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


class _Views(NamedTuple):
    """The views of all steps, as columns.

    Attributes:
        step: The step of each.
        buffer: Its buffer.
        offset: Its first element.
        shape: The index of its extents and strides.
        writes: Whether the step writes it.
        shares: Whether what the step writes itself may be read by it: a kernel that writes several arguments.
        dims: The extents and strides that there are.
    """

    step: Array
    buffer: Array
    offset: Array
    shape: Array
    writes: Array
    shares: Array
    dims: Sequence[Dims]

    @staticmethod
    def of(steps: Steps) -> _Views:
        """Return the views of all steps."""
        several = steps.of_arguments([[k.writes > 1] * k.arguments for k in steps.kinds])
        columns = [steps.step, steps.buffer, steps.offset, steps.shape, steps.wrote, several]
        found = [
            (step, view, writes)
            for step, call in zip(np.flatnonzero(steps.kind == HOST).tolist(), steps.hosts, strict=True)
            for writes, views in ((False, call.inputs), (True, call.outputs))
            for view in views
            if view is not None
        ]
        dims = [*steps.dims, *(view.dims for _, view, _ in found)]
        if found:
            places = range(len(steps.dims), len(dims))
            rows = [(s, v.buffer, v.offset, place, w, False) for (s, v, w), place in zip(found, places, strict=True)]
            columns = [*map(np.append, columns, np.array(rows, np.int64).T)]
        step_, buffer, offset, shape, wrote, several = columns
        return _Views(step_, buffer, offset, shape, wrote != 0, several != 0, dims)


def _outside(views: _Views, record: Record) -> str | None:
    """Return which view reaches outside its buffer, or is written although it is not the network's memory.

    An input is written only where it is returned; that an output's buffer is no constant's is known.
    """
    buffers, reaches = record.buffers, []
    for dims in views.dims:
        reach = _reach(dims)
        if isinstance(reach, str):
            return reach
        reaches.append(reach)
    low, high = np.array(reaches, np.int64).reshape(-1, 2)[views.shape].T
    is_unknown = (views.buffer < 0) | (views.buffer >= len(buffers))
    buffer, offset = np.where(is_unknown, 0, views.buffer), np.clip(views.offset, -MOST, MOST)
    size, is_empty = np.append(buffers.size, 0)[buffer], low > high
    first, last = offset + low, offset + high
    is_given = np.append(buffers.is_of("input", "constant"), False)
    is_given[[port.buffer for port in record.outputs]] = False
    return _first(
        [
            (is_unknown, lambda i: f"a view names buffer {views.buffer[i]}"),
            (
                is_empty & ((offset < 0) | (offset > size)),
                lambda i: f"an empty view begins at element {offset[i]} of {size[i]}",
            ),
            (
                ~is_empty & ((first < 0) | (last >= size)),
                lambda i: f"a view covers elements {first[i]} to {last[i]} of a buffer of {size[i]}",
            ),
            (views.writes & is_given[buffer], lambda _: "it would write to an input or a constant"),
        ],
        lambda i: _nodes(int(views.step[i]), record),
    )


@lru_cache(maxsize=4096)
def _reach(dims: Dims) -> tuple[int, int] | str:
    """Return the first and the last element of a view relative to its offset; or what is wrong.

    An empty one has the first behind the last.
    """
    low = high = 0
    if len(dims) > MOST_VIEWED:
        return f"a view has {counted(len(dims), 'dimension')}"
    for extent, stride in dims:
        if not (0 <= extent <= INT32_MAX and -INT32_MAX <= stride <= INT32_MAX):
            return f"a view has extent {extent} and stride {stride}"
        reach = (extent - 1) * stride
        low, high = (low + reach, high) if reach < 0 else (low, high + reach)
    if not all(extent for extent, _ in dims):
        return 1, 0
    return (low, high) if max(-low, high) <= MOST else f"a view covers {high - low + 1} elements"


def _mistyped(record: Record) -> str | None:
    """Return which kernel takes elements for others, or looks at indices that do not lie one after the other."""
    buffers, steps = record.buffers, record.steps
    held = buffers.itemsize[steps.buffer]
    if any(kind.dtypes for kind in steps.kinds):
        taken = steps.of_arguments([[*map(itemsize, kind.dtypes)] or [0] * kind.arguments for kind in steps.kinds])
        wrong = (taken != 0) & (taken != held)
        if wrong.any():
            index = int(wrong.argmax())
            where = _nodes(int(steps.step[index]), record)
            return f"{where}: a kernel takes elements of {taken[index]} bytes, its buffer has some of {held[index]}"
    checks = [number for number, kind in enumerate(steps.kinds) if kind.symbol in CHECKS.values()]
    for call in np.flatnonzero(np.isin(steps.called, checks)).tolist():
        if not _can_check(steps.kinds[steps.called[call]], int(steps.ends[call]), record):
            return f"{_nodes(int(steps.kernels[call]), record)}: indices are not looked at as they lie"
    return None


def _can_check(kind: Kind, end: int, record: Record) -> bool:
    """Return whether what refuses indices can read its arguments, which end at a place among all."""
    if (kind.arguments, kind.writes) != (2, 0):
        return False
    buffers, steps = record.buffers, record.steps
    indices, bounds = (steps.dims[shape] for shape in steps.shape[end - 2 : end].tolist())
    dtype = kind.dtypes[0] if kind.dtypes else buffers.sorts[buffers.sort[steps.buffer[end - 2]]][1]
    is_dense = len(indices) == 1 and (indices[0][1] == 1 or indices[0][0] <= 1)
    return dtype in ("int32", "int64") and is_dense and len(bounds) >= 1


def _unwritten(views: _Views, record: Record) -> str | None:
    """Return which value is read or returned although nothing wrote it: it would be whatever memory held.

    Elements are counted, not looked at one by one: an element that is written twice may hide one that is left out.
    """
    buffers, wrote = record.buffers, views.writes
    first = np.full(len(buffers), len(record.steps))
    np.minimum.at(first, views.buffer[wrote], views.step[wrote])
    elements = np.array([_elements(dims) for dims in views.dims], np.int64)[views.shape]
    reads = ~wrote
    if views.shares.any():
        own = views.step * len(buffers) + views.buffer
        reads &= ~(views.shares & np.isin(own, own[wrote]))
    made = buffers.is_of("temporary", "output")[views.buffer] & (first[views.buffer] >= views.step)
    wrong = _first(
        [
            (
                reads & (elements > 0) & made,
                lambda i: f"it reads buffer {views.buffer[i]}, which nothing wrote before",
            )
        ],
        lambda i: _nodes(int(views.step[i]), record),
    )
    if wrong:
        return wrong
    written = np.bincount(views.buffer[wrote], elements[wrote], len(buffers))
    for port in record.outputs:
        if written[port.buffer] < port.type.size:
            return f"{port.name} has {port.type.size} elements, {written[port.buffer]:.0f} of them are written"
    shared = len(record.outputs) - len({port.buffer for port in record.outputs})
    return "two outputs are one buffer" if shared else None


@lru_cache(maxsize=4096)
def _elements(dims: Dims) -> int:
    return min(prod(extent for extent, stride in dims if stride or not extent), MOST)


def _nodes(step: int, record: Record) -> str:
    return ", ".join(record.steps[step].nodes)
