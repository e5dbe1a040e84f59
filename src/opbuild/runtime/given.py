"""Outputs in the caller's arrays: which a call writes directly, and which continue an input where it lies.

A cache that a network returns with some rows more is a copy of an input and what is written into the copy. Where the
caller gives one array for both, the copy is left out: a call then takes as long as the new rows, however long the cache
is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.graph.types import Array, TensorType
from opbuild.platform.records import NamedTuple
from opbuild.runtime.devices.cpu.library import address_of
from opbuild.runtime.record import KERNELS, Ports, Record


class Continued(NamedTuple):
    """An output that begins as the copy of an input, which nothing reads after the copy.

    Attributes:
        place: The input's place among the inputs.
        step: The step that copies it.
    """

    place: int
    step: int


def continued(record: Record) -> dict[int, Continued]:
    """Return the outputs that continue inputs, by their places among the outputs."""
    steps, places = record.steps, {buffer: place for place, buffer in enumerate(record.inputs.buffer.tolist())}
    families, found = record.notes.get(KERNELS, {}), {}
    on_host = {view.buffer for call in steps.hosts for view in (*call.inputs, *call.outputs) if view is not None}
    for number, buffer in enumerate(record.outputs.buffer.tolist()):
        own = np.flatnonzero(steps.buffer == buffer)
        if buffer in on_host or not len(own):
            continue
        first = int(steps.step[own[0]])
        source, *others = np.flatnonzero(steps.step == first).tolist()
        kind = steps.kinds[steps.kind[first]]
        place = places.get(int(steps.buffer[source]))
        if others != [int(own[0])] or place is None or families.get(kind.symbol, ("",))[0] != "copy":
            continue
        reads = np.flatnonzero(steps.buffer == steps.buffer[source])
        is_last = int(reads[-1]) == source and steps.buffer[source] not in on_host
        if is_last and is_whole_copy(record, source, others[0]):
            found[number] = Continued(place, first)
    return found


def is_whole_copy(record: Record, source: int, target: int) -> bool:
    """Return whether a copy brings each element of a buffer to the same place of another one."""
    steps, buffers = record.steps, record.buffers
    dims = [steps.dims[int(steps.shape[each])] for each in (source, target)]
    one, other = (buffers[int(steps.buffer[each])] for each in (source, target))
    elements = int(np.prod([extent for extent, _ in dims[1]], dtype=np.int64))
    is_whole = elements == one.size == other.size and one.dtype == other.dtype
    return dims[0] == dims[1] and is_whole and not steps.offset[[source, target]].any()


def taken(
    outputs: Ports, given: Sequence[Array | None], inputs: Sequence[Array], known: Mapping[int, Continued]
) -> tuple[list[Array | None], frozenset[int]]:
    """Return the given arrays that a call can write its outputs to, None for others, and the steps that it leaves out.

    Memory of an input is written to only from its first to its last byte, by the output that continues the input.
    """
    places: dict[int, list[int]] = {}
    spans = list[tuple[int, int]]()
    for place, each in enumerate(inputs):
        if not isinstance(each, np.ndarray):
            continue  # it lies on a device
        places.setdefault(address := address_of(each), []).append(place)
        spans.append((address, address + each.nbytes))
    wanted = [
        array if isinstance(array, np.ndarray) and _fits(array, port.type) else None
        for array, port in zip(given, outputs, strict=True)
    ]
    addresses = [-1 if array is None else address_of(array) for array in wanted]
    spans += [
        (address, address + each.nbytes) for address, each in zip(addresses, wanted, strict=True) if each is not None
    ]
    overlapping = _overlapping(spans)
    left_out, seen, found = set[int](), set[int](), list[Array | None]()
    for number, (array, address) in enumerate(zip(wanted, addresses, strict=True)):
        own = places.get(address, ())
        continues = number in known and own == [known[number].place]
        if array is None or address in overlapping or address in seen or not (continues or not own):
            found.append(None if isinstance(given[number], np.ndarray) else given[number])  # a device's serves
            continue
        found.append(array)
        seen.add(address)
        if continues:
            left_out.add(known[number].step)
    return found, frozenset(left_out)


def _fits(array: Array, type_: TensorType) -> bool:
    is_same = array.shape == type_.shape and array.dtype == numpy_dtype(type_.dtype)
    return is_same and array.flags.carray and array.nbytes > 0


def _overlapping(spans: Sequence[tuple[int, int]]) -> set[int]:
    """Return the first addresses of memory that shares a part, not all, with other memory."""
    found, (before, latest) = set[int](), (0, 0)
    for start, end in sorted({*spans}):
        if start < latest and start < end:
            found |= {start, before}
        if end > latest:
            before, latest = start, end
    return found
