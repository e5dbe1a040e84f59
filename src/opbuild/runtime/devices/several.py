"""Records of several devices: which kernels run where, constants on each, and copies between them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from opbuild.graph.types import Array
from opbuild.platform.finalizers import WeakValues
from opbuild.platform.records import NamedTuple
from opbuild.runtime.devices.arrays import DeviceArray, SharingDevice
from opbuild.runtime.devices.device import (
    Device,
    DeviceMemory,
    DevicePart,
    JoinableCalls,
    KernelCalls,
    Memories,
    Prepared,
    Step,
    open_device,
)
from opbuild.runtime.record import itemsize, window
from opbuild.target.level import CPU

if TYPE_CHECKING:
    from opbuild.program import HostCall, View
    from opbuild.runtime.record import Record


def parts_of(record: Record, whole: KernelCalls) -> list[DevicePart]:
    """Return the calls of kernels on each device; a kernel runs where its operands lie."""
    buffers, steps = record.buffers, record.steps
    counts = np.diff(steps.ends, prepend=0)
    device = buffers.device[steps.buffer[steps.ends - 1]]
    parts = []
    for number, name in enumerate(buffers.all_devices):
        kernels = np.flatnonzero(device == number)
        if len(kernels):
            rows = np.flatnonzero(np.repeat(device == number, counts))
            kinds, called = np.unique(whole.called[kernels], return_inverse=True)
            calls = whole._replace(
                callees=[whole.callees[kind] for kind in kinds.tolist()],
                called=called,
                ends=counts[kernels].cumsum(),
                shape=whole.shape[rows],
                dtype=whole.dtype[rows],
            )
            parts.append(DevicePart(name, calls, rows, kernels.tolist()))
    return parts


class Uploaded(NamedTuple):
    """Constants on a device: their memory, and for each of a record's where it begins; 0 if it is not there."""

    memories: Sequence[DeviceMemory]
    addresses: Array


_UPLOADED = WeakValues[tuple[str, str], DeviceMemory]()
"""Weights that are on devices, by device and digest: all networks share them, as they share the files."""


def uploaded(device: str, record: Record, constants: Sequence[Array]) -> Uploaded:
    """Return the constants that a record has on a device, copied there unless they are."""
    buffers, places = record.buffers, record.constants
    own = buffers.is_of("constant") & (buffers.device == buffers.all_devices.index(device))
    memories, found = [], np.zeros(len(places), np.int64)
    for place in dict.fromkeys(buffers.place[own].tolist()):
        digest = places.digests[place]
        memory = _UPLOADED.get((device, digest)) if digest else None
        if memory is None:
            memory = _upload(open_device(device), constants[place])
            if digest:
                _UPLOADED[device, digest] = memory
        memories.append(memory)
        found[place] = memory.address
    return Uploaded(memories, found)


def _upload(device: Device, contents: Array) -> DeviceMemory:
    memory = device.allocate(contents.nbytes)
    device.write(memory.address, contents)
    return memory


def bases_of(bases: Array, record: Record, constants: Mapping[str, Uploaded], memories: Memories) -> Array:
    """Return the addresses of buffers, given those of the CPU's."""
    buffers = record.buffers
    found, temporary = bases.copy(), buffers.is_of("temporary")
    for number, name in enumerate(buffers.all_devices):
        if name == CPU:
            continue
        own = buffers.device == number
        memory, there = memories.get(name), np.append(constants[name].addresses, 0)
        found[own & temporary] = buffers.place[own & temporary] + (0 if memory is None else memory.address)
        found[own & ~temporary] = there[buffers.place[own & ~temporary]]
    return found


def copy_step(call: HostCall, record: Record, arrays: Sequence[Array | None], bases: Array) -> Step:
    """Return the step that copies a view to another device, or from one."""
    (source,), (target,) = call.inputs, call.outputs
    assert source is not None and target is not None  # noqa: PT018, S101  it was checked
    size = source.dims[0][0]
    if record.buffers[target.buffer].device != CPU:
        device = open_device(record.buffers[target.buffer].device)
        return _write, (device, _address(target, record, bases), arrays, source, size)
    device = open_device(record.buffers[source.buffer].device)
    return _read, (device, _address(source, record, bases), arrays, target, size)


def _address(view: View, record: Record, bases: Array) -> int:
    return int(bases[view.buffer]) + view.offset * itemsize(record.buffers[view.buffer].dtype)


def _write(device: Device, address: int, arrays: Sequence[Any], view: View, size: int) -> None:
    source = arrays[view.buffer]
    if isinstance(source, DeviceArray):
        cast("SharingDevice", device).copy(address, *_part(source, view, size))
    else:
        device.write(address, window(arrays, view, size))


def _read(device: Device, address: int, arrays: Sequence[Any], view: View, size: int) -> None:
    target = arrays[view.buffer]
    if isinstance(target, DeviceArray):
        start, nbytes = _part(target, view, size)
        cast("SharingDevice", device).copy(start, address, nbytes)
    else:
        device.read(address, window(arrays, view, size))


def _part(array: DeviceArray, view: View, size: int) -> tuple[int, int]:
    """Return where a dense view of an array on the device begins, and its bytes."""
    itemsize = array.dtype.itemsize
    return array.address + view.offset * itemsize, size * itemsize


def copied_places(record: Record) -> dict[int, str]:
    """Return the class of devices of each of the caller's arrays, inputs first, that only copies with it use."""
    steps, buffers = record.steps, record.buffers
    inputs, outputs = record.inputs.buffer.tolist(), record.outputs.buffer.tolist()
    others, found = {*steps.buffer.tolist()} | {*inputs}.intersection(outputs), dict[int, set[str]]()
    for call in steps.hosts:
        own = [view.buffer for view in (*call.inputs, *call.outputs) if view is not None]
        if not call.is_copy:
            others.update(own)
            continue
        for one, other in (own, own[::-1]):
            found.setdefault(one, set()).add(buffers[other].device)
    places = enumerate((*inputs, *outputs))
    kept = {place: found[each] for place, each in places if each in found and each not in others}
    return {place: next(iter(names)) for place, names in kept.items() if len(names) == 1}


def joined(
    steps: Sequence[Step],
    parts: Sequence[DevicePart],
    prepared: Sequence[Prepared],
    kernels: Array,
    left_out: Collection[int] = (),
) -> list[Step]:
    """Return steps of which those on a device that follow each other are one, where it makes them at once.

    Args:
        steps: All of them.
        parts: The calls of kernels on each device.
        prepared: These, made ready.
        kernels: The steps that call kernels.
        left_out: The steps that are not to be there.
    """
    kept = [number for number in range(len(steps)) if number not in left_out]
    place_of = np.full(len(steps), -1)
    place_of[kept] = range(len(kept))
    runs: dict[int, tuple[int, Step]] = {}
    for own, part in zip(prepared, parts, strict=True):
        if isinstance(own, JoinableCalls):
            places = place_of[kernels[np.asarray(part.kernels)]]
            calls = np.flatnonzero(places >= 0)
            for run in np.split(calls, np.flatnonzero(np.diff(places[calls]) != 1) + 1):
                if len(run) > 1:
                    runs[int(places[run[0]])] = len(run), own.join(run.tolist())
    found, place = [], 0
    while place < len(kept):
        count, step = runs.get(place, (1, steps[kept[place]]))
        found.append(step)
        place += count
    return found


def awaited(steps: Sequence[Step], names: Sequence[str]) -> list[Step]:
    """Return steps with the same arguments that wait until devices have finished their requests."""

    def waiting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            result = function(*arguments)
            for name in names:
                open_device(name).synchronize()
            return result

        return call

    return [(waiting(function), arguments) for function, arguments in steps]
