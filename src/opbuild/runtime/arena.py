"""Arena: memory and ready-made arguments for one call at a time, and the shared state of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import OpbuildError, RunError
from opbuild.graph.types import Array, Node
from opbuild.program import HostCall
from opbuild.runtime.changes import first_change
from opbuild.runtime.devices.cpu.library import CpuCalls, address_of
from opbuild.runtime.devices.device import (
    NO_MEMORIES,
    Callee,
    DevicePart,
    KernelCalls,
    Memories,
    Prepared,
    Step,
    open_device,
)
from opbuild.runtime.record import CHECKED_ORDER, HOST, Record, addresses, itemsize, window
from opbuild.target.level import CPU

if TYPE_CHECKING:
    from opbuild.runtime.record import KernelStep

Evaluate = Callable[[Node, Sequence["Array | None"], int], Sequence["Array | None"]]
"""Evaluates one node on dense arrays, for a version of the operator set; the host backend's face."""


NOT_MOVED: Mapping[int, int] = MappingProxyType({})
"""Where buffers of devices lie that are no arena's: none."""


class Calls:
    """The state that records share that make the same calls, on operands of other sizes.

    Args:
        record: One of them.
        callees: The kernel of each kind of its steps.
        constants: Their constants.

    Attributes:
        callees: As it was given.
        constants: As it was given.
        parts: The calls of kernels on each device.
        on_host: The buffers that the host backend reads or writes, and those that are copied from and to devices.
        checked: Symbols of kernels that are checked by ``order_check``.
        first_change: The first step that writes where an input lies; None if none does.
        replaced: For each output the input whose array it is; None: it has its own.
        places: For arguments that point into the caller's arrays which array, inputs first.
        pointing: Which of all arguments those are.
        pointing_on_cpu: Which they are among the CPU's.
        given_to_host: Which of the caller's arrays is which buffer, where the host backend needs it.
        devices: The classes of devices other than the CPU that its buffers lie on.
        uploaded: The memory of its constants on those, and where each begins, by device.
        copied: For the caller's arrays that are only copied to a device, or from it, its class; inputs first.
    """

    def __init__(self, record: Record, callees: Sequence[Callee], constants: Sequence[Array]) -> None:
        steps, buffers = record.steps, record.buffers
        self.callees, self.constants, self.addresses = callees, constants, addresses(constants)
        self.itemsize = buffers.itemsize[steps.buffer]
        self.is_temporary, self.is_constant = buffers.is_of("temporary"), buffers.is_of("constant")
        self.devices = buffers.devices
        self.on_host = frozenset(
            view.buffer
            for call in steps.hosts
            for view in (*call.inputs, *call.outputs)
            if view is not None and (not self.devices or buffers[view.buffer].device == CPU)
        )
        self.host_steps = np.flatnonzero(steps.kind == HOST).tolist()
        self.checked = frozenset(record.notes.get(CHECKED_ORDER, ()))
        self.first_change = first_change(record)
        inputs, outputs = record.inputs.buffer.tolist(), record.outputs.buffer.tolist()
        places = {buffer: place for place, buffer in enumerate(inputs)}
        self.replaced = [places.get(buffer) for buffer in outputs]
        place_of = np.full(len(buffers), HOST)
        place_of[outputs] = range(len(inputs), len(inputs) + len(outputs))
        place_of[inputs] = range(len(inputs))  # an output that replaces one is the same array
        place = place_of[steps.buffer]
        self.pointing = np.flatnonzero(place != HOST)
        self.places = place[self.pointing].tolist()
        self.given_to_host = [each for each in enumerate((*inputs, *outputs)) if each[1] in self.on_host]
        whole = KernelCalls(callees, steps.called, steps.ends, steps.dims, steps.shape, *_element_types(record))
        self.pointing_on_cpu = self.pointing
        self.copied: Mapping[int, str] = {}
        if not self.devices:
            self.parts = [DevicePart(CPU, whole, slice(None), range(len(steps.called)))]
            return
        from opbuild.runtime.devices.several import copied_places, parts_of, uploaded  # few networks run on several

        self.parts = parts_of(record, whole)
        own = np.concatenate([np.zeros(0, np.int64), *(part.arguments for part in self.parts if part.device == CPU)])
        self.pointing_on_cpu = np.searchsorted(own, self.pointing)
        self.copied = copied_places(record)
        self.uploaded = {device: uploaded(device, record, constants) for device in self.devices}


def _element_types(record: Record) -> tuple[Sequence[str], Array]:
    """Return names of element types, and the one of each argument: its buffer's, or its kernel's."""
    buffers, steps = record.buffers, record.steps
    names, own = [sort.dtype for sort in buffers.sorts], buffers.sort[steps.buffer]
    if not any(kind.dtypes for kind in steps.kinds):
        return names, own
    index = {name: len(names) + number for number, name in enumerate({n: 0 for k in steps.kinds for n in k.dtypes})}
    stated = steps.of_arguments([[index[n] for n in kind.dtypes] or [HOST] * kind.arguments for kind in steps.kinds])
    return [*names, *index], np.where(stated != HOST, stated, own)


class ArenaOwner(Protocol):
    """A network that is run in arenas, as ``Executor`` is.

    Attributes:
        record: The calls and their numbers.
        calls: What it has in common with other sizes.
        evaluate: The host backend.
    """

    record: Record
    calls: Calls
    evaluate: Evaluate | None

    @property
    def constants(self) -> Sequence[Array]:
        """The bytes of all constants."""

    @property
    def addresses(self) -> Array:
        """The addresses of its buffers in memory."""


class Arena:
    """See the module.

    Args:
        owner: What is run.
        memory: Where its temporaries lie.
        others: Where those on other devices do.

    Attributes:
        steps: What is called, in order; what fails returns something else than 0 and None.
        joined: The same, where a device makes calls that follow each other at once.
        on_cpu: The calls of kernels on the CPU; None if there are none.
    """

    def __init__(self, owner: ArenaOwner, memory: Array, others: Memories = NO_MEMORIES) -> None:
        calls, self._host_steps = owner.calls, owner.calls.host_steps
        self._prepared: list[Prepared] = [*map(_prepare, calls.parts)]
        on_cpu = [own for own, part in zip(self._prepared, calls.parts, strict=True) if part.device == CPU]
        self.on_cpu = cast("CpuCalls | None", on_cpu[0] if on_cpu else None)
        self._words = self.on_cpu.words if self.on_cpu is not None else memoryview(b"")
        places = self.on_cpu.places_of(calls.pointing_on_cpu).tolist() if self.on_cpu is not None else []
        self._given = [*zip(calls.places, places, strict=True)]
        self._arrays: list[Array | None] = [None] * len(owner.record.buffers)
        self._given_to_host = calls.given_to_host
        self._pointers: list[tuple[int, int, int]] = []
        self._moved: Mapping[int, int] = NOT_MOVED
        self._without: tuple[frozenset[int], Sequence[Step]] = frozenset(), ()
        self.steps = self._steps(owner)
        self.fill(owner, memory, others)

    def fill(self, owner: ArenaOwner, memory: Array, others: Memories = NO_MEMORIES) -> None:
        """Write the numbers of another size, which makes the same calls, and where its temporaries lie."""
        calls, record = owner.calls, owner.record
        steps, buffers = record.steps, record.buffers
        start = steps.offset * calls.itemsize
        known = np.append(owner.addresses, 0)[np.where(calls.is_constant, buffers.place, -1)]
        bases = np.where(calls.is_temporary, memory.ctypes.data + buffers.place, known)
        if calls.devices:
            from opbuild.runtime.devices.several import bases_of

            bases = bases_of(bases, record, calls.uploaded, others)
        where = bases[steps.buffer] + start
        self._where, self._moved, self._without = where, NOT_MOVED, (frozenset(), ())
        for prepared, part in zip(self._prepared, calls.parts, strict=True):
            prepared.fill(where[part.arguments], steps.dims.pairs)
        own = start[calls.pointing].tolist()
        self._pointers = [(place, word, offset) for (place, word), offset in zip(self._given, own, strict=True)]
        for index in calls.on_host:
            self._arrays[index] = storage(index, owner, memory)
        if calls.checked:
            self.steps[:] = self._steps(owner)
        for index, call in zip(self._host_steps, steps.hosts, strict=True):
            self.steps[index] = self._host_step(call, owner, bases)
        self.joined = self._joined_steps(owner)

    def move(self, owner: ArenaOwner, moved: Mapping[int, int]) -> None:
        """Have buffers of devices lie at addresses of the caller's; those of the call before lie in the arena again."""
        if moved == self._moved:
            return
        steps, where = owner.record.steps, self._where.copy()
        for buffer, address in moved.items():
            rows = np.flatnonzero(steps.buffer == buffer)
            where[rows] = address + steps.offset[rows] * owner.calls.itemsize[rows]
        for prepared, part in zip(self._prepared, owner.calls.parts, strict=True):
            if part.device != CPU:
                prepared.fill(where[part.arguments], steps.dims.pairs)
        self._moved = moved

    def joined_without(self, owner: ArenaOwner, left_out: frozenset[int]) -> Sequence[Step]:
        """Return ``joined`` with some steps left out."""
        if self._without[0] != left_out:
            self._without = left_out, self._joined_steps(owner, left_out)
        return self._without[1]

    def attach(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Point the arguments at the caller's arrays."""
        arrays, words = (*inputs, *outputs), self._words
        for place, word, offset in self._pointers:
            words[word] = address_of(arrays[place]) + offset
        for place, buffer in self._given_to_host:
            self._arrays[buffer] = arrays[place]

    def detach(self) -> None:
        """Let go of the caller's arrays."""
        for _, buffer in self._given_to_host:
            self._arrays[buffer] = None

    def arguments_of(self, step: int, owner: ArenaOwner) -> Array:
        """Return the arguments of a step that calls a kernel of the CPU."""
        on_cpu, number = cast("CpuCalls", self.on_cpu), int(np.searchsorted(owner.record.steps.kernels, step))
        part = next(part for part in owner.calls.parts if part.device == CPU)
        end = int(part.calls.ends[part.kernels.index(number)])
        count = owner.record.steps.kinds[owner.record.steps.kind[step]].arguments
        return on_cpu.headers[end - count : end]

    def _host_step(self, call: HostCall, owner: ArenaOwner, bases: Array) -> Step:
        if not call.is_copy:
            return evaluate_step, (call, self._arrays, owner.evaluate)
        from opbuild.runtime.devices.several import copy_step

        return copy_step(call, owner.record, self._arrays, bases)

    def _steps(self, owner: ArenaOwner) -> list[Step]:
        found, calls = owner.record.steps, owner.calls
        if not found.hosts and not calls.checked and not calls.devices:
            return self._prepared[0].steps
        steps: list[Any] = [None] * len(found)
        kernels = found.kernels.tolist()
        for prepared, part in zip(self._prepared, calls.parts, strict=True):
            for number, step in zip(part.kernels, prepared.steps, strict=True):
                steps[kernels[number]] = step
        if calls.checked:
            self._add_checks(steps, owner)
        return steps

    def _joined_steps(self, owner: ArenaOwner, left_out: Collection[int] = ()) -> list[Step]:
        calls = owner.calls
        if not calls.devices:
            return (
                [step for number, step in enumerate(self.steps) if number not in left_out] if left_out else self.steps
            )
        from opbuild.runtime.devices.several import joined

        return joined(self.steps, calls.parts, self._prepared, owner.record.steps.kernels, left_out)

    def _add_checks(self, steps: list[Any], owner: ArenaOwner) -> None:
        """Let kernels that are to be checked check themselves: those of the CPU."""
        found = owner.record.steps
        for part in (part for part in owner.calls.parts if part.device == CPU):
            for number, end in zip(part.kernels, part.calls.ends.tolist(), strict=True):
                index = int(found.kernels[number])
                if found.kinds[found.kind[index]].symbol in owner.calls.checked:
                    steps[index] = self._order_check(index, end, owner)

    def _order_check(self, index: int, end: int, owner: ArenaOwner) -> Step:
        """Return a step that runs a kernel and checks it."""
        from opbuild.runtime.devices.cpu.order_check import OrderCheck  # only for who debugs

        record, on_cpu = owner.record, cast("CpuCalls", self.on_cpu)
        step = cast("KernelStep", record.steps[index])
        callee = owner.calls.callees[record.steps.kind[index]]
        first = end - len(step.views)
        sizes = [itemsize(record.buffers[view.buffer].dtype) for view in step.views]
        check = OrderCheck(callee.module, callee.function, on_cpu.headers[first:end], step.views, sizes)
        return on_cpu.step_of(first, end, check, callee.module.num_threads)


def _prepare(part: DevicePart) -> Prepared:
    """Return the calls on a class of devices, made ready."""
    return CpuCalls(part.calls) if part.device == CPU else open_device(part.device).prepare(part.calls)


def storage(index: int, owner: ArenaOwner, memory: Array) -> Array | None:
    """Return the memory of a buffer as a flat array; None for the caller's."""
    buffer = owner.record.buffers[index]
    if buffer.kind == "temporary":
        return memory[buffer.place : buffer.place + buffer.nbytes].view(numpy_dtype(buffer.dtype))
    if buffer.kind == "constant":
        return owner.constants[buffer.place].view(numpy_dtype(buffer.dtype))
    return None


def evaluate_step(call: HostCall, arrays: Sequence[Array | None], evaluate: Evaluate | None) -> None:
    """Run one node on the host backend, between the same buffers as the kernels.

    Raises:
        RunError: If the backend fails, or gives something else than the model says.
    """
    if call.is_check:
        _refuse_outside(call, arrays)
        return
    inputs = [
        None if view is None or type_ is None else window(arrays, view, type_.size).reshape(type_.shape)
        for view, type_ in zip(call.inputs, call.input_types, strict=True)
    ]
    where = f"node {call.node.name} ({call.node.op_type})"
    try:
        if evaluate is None:
            raise RunError(f"{where}: there is no host backend")
        results = evaluate(call.node, inputs, call.opset)
    except OpbuildError:
        raise
    except Exception as error:
        raise RunError(f"{where} failed on the host: {error!r}", "check the values that it reads") from error
    for view, type_, result in zip(call.outputs, call.output_types, results, strict=False):
        if view is None or type_ is None:
            continue
        if result is None or result.shape != type_.shape or result.dtype != numpy_dtype(type_.dtype):
            got = "nothing" if result is None else f"{result.dtype}{list(result.shape)}"
            raise RunError(f"{where} gave {got}, the model says {type_}", "the shape of its output depends on its data")
        window(arrays, view, type_.size)[:] = result.reshape(-1)


def _refuse_outside(call: HostCall, arrays: Sequence[Array | None]) -> None:
    """Refuse indices, where no library does."""
    from opbuild.runtime.indices import refuse

    (view, _), (type_, bounds) = call.inputs, call.input_types
    if view is not None and type_ is not None and bounds is not None:
        refuse(call.node.name, window(arrays, view, type_.size), bounds.shape, negative=call.node.attrs["negative"])
