"""Outputs on a device that continue inputs there: one array of the caller's for both is written where it lies.

A cache with new rows comes to the device by a copy of an input, is copied there, since the program keeps its inputs,
gets the rows, and goes to the output by a third copy. Where the caller gives one array on the device for both, the
buffer that is written lies in that array, and none of the three is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.platform.records import NamedTuple
from opbuild.program import HostCall, View
from opbuild.runtime.devices.arrays import DeviceArray
from opbuild.runtime.given import is_whole_copy
from opbuild.runtime.record import KERNELS, Record
from opbuild.target.level import CPU

ALIGNMENT = 64
"""Buffers begin at multiples of so many bytes, which kernels were chosen for."""


class Kept(NamedTuple):
    """An output that continues an input.

    Attributes:
        place: The input's place among the inputs.
        buffer: The buffer on the device that becomes the output.
        steps: The steps that copy the input there, the copy to this buffer, and this to the output.
    """

    place: int
    buffer: int
    steps: frozenset[int]


def kept_outputs(record: Record) -> dict[int, Kept]:
    """Return the outputs that continue inputs on a device, by their places among the outputs."""
    copies = _Copies(record)
    places = {buffer: place for place, buffer in enumerate(record.inputs.buffer.tolist())}
    found = {}
    for number, output in enumerate(record.outputs.buffer.tolist()):
        out = copies.only_one(output)
        buffer = None if out is None or out.target != output else out.source
        inner = None if buffer is None else copies.first_there(buffer)
        into = None if inner is None else copies.only_one(inner.source, besides=inner.step)
        if out is None or buffer is None or inner is None or into is None or into.target != inner.source:
            continue
        only = copies.only_one(into.source)
        if only == into and into.source in places and copies.touching(buffer) == [out.step]:
            found[number] = Kept(places[into.source], buffer, frozenset({into.step, inner.step, out.step}))
    return found


class _Copy(NamedTuple):
    """A step that brings all of a buffer to another one."""

    step: int
    source: int
    target: int


class _Copies:
    """Looks for copies of whole buffers in a record."""

    def __init__(self, record: Record) -> None:
        self._record, self._steps = record, record.steps
        self._hosts: dict[int, list[int]] = {}
        self._calls: dict[int, HostCall] = {}
        others = np.setdiff1d(np.arange(len(record.steps)), record.steps.kernels).tolist()
        for number, call in zip(others, record.steps.hosts, strict=True):
            self._calls[number] = call
            for view in (*call.inputs, *call.outputs):
                if view is not None:
                    self._hosts.setdefault(view.buffer, []).append(number)

    def touching(self, buffer: int) -> list[int]:
        """Return the steps of the host that read or write a buffer."""
        return self._hosts.get(buffer, [])

    def only_one(self, buffer: int, besides: int = -1) -> _Copy | None:
        """Return the copy between devices that alone touches a buffer, but for a step; None if others do."""
        hosts = self.touching(buffer)
        kernels = {*self._steps.step[self._steps.buffer == buffer].tolist()} - {besides}
        if len(hosts) != 1 or kernels or not self._calls[hosts[0]].is_copy:
            return None
        (source,), (target,) = self._calls[hosts[0]].inputs, self._calls[hosts[0]].outputs
        if source is None or target is None or not (self._is_whole(source) and self._is_whole(target)):
            return None
        return _Copy(hosts[0], source.buffer, target.buffer)

    def first_there(self, buffer: int) -> _Copy | None:
        """Return the copy on its device by which a buffer begins; None if it begins otherwise."""
        steps, own = self._steps, np.flatnonzero(self._steps.buffer == buffer)
        if not len(own) or self._record.buffers[buffer].kind != "temporary" or self._device(buffer) == CPU:
            return None
        first = int(steps.step[own[0]])
        source, *others = np.flatnonzero(steps.step == first).tolist()
        families = self._record.notes.get(KERNELS, {})
        symbol = steps.kinds[steps.kind[first]].symbol
        if others != [int(own[0])] or families.get(symbol, ("",))[0] != "copy":
            return None
        return (
            _Copy(first, int(steps.buffer[source]), buffer) if is_whole_copy(self._record, source, others[0]) else None
        )

    def _device(self, buffer: int) -> str:
        return self._record.buffers[buffer].device

    def _is_whole(self, view: View) -> bool:
        return not view.offset and view.dims == ((self._record.buffers[view.buffer].size, 1),)


def are_one(source: Any, target: Any) -> bool:
    """Return whether arrays of the caller's are the same memory of a device, which can be written where it lies."""
    return (
        isinstance(source, DeviceArray)
        and isinstance(target, DeviceArray)
        and (source.address, source.nbytes) == (target.address, target.nbytes)
        and source.nbytes > 0
        and target.address % ALIGNMENT == 0
    )


def moves(
    kept: Mapping[int, Kept], inputs: Sequence[Any], outputs: Sequence[Array | DeviceArray | None]
) -> tuple[dict[int, int], frozenset[int]]:
    """Return the buffers that lie in the caller's arrays, with the addresses, and the steps that are left out."""
    own = [(each, inputs[each.place]) for place, each in kept.items() if are_one(inputs[each.place], outputs[place])]
    return {each.buffer: array.address for each, array in own}, frozenset().union(*(each.steps for each, _ in own))
