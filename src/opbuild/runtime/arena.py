"""Arena: memory and ready-made arguments for one call at a time, and what those of several sizes have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, cast

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import OpbuildError, RunError
from opbuild.graph.types import Array, Node
from opbuild.program import HostCall, View
from opbuild.runtime.buffers import DIMENSION, HEADER, HEADER_WORDS, HOST_WORD, address_of, element_type, make_headers
from opbuild.runtime.changes import first_change
from opbuild.runtime.library import Callee, Step, kernel_steps, references
from opbuild.runtime.record import CHECKED_ORDER, HOST, KernelStep, Record, addresses, itemsize

Evaluate = Callable[[Node, Sequence["Array | None"], int], Sequence["Array | None"]]
"""Evaluates one node on dense arrays, for a version of the operator set; the host backend's face."""


class Calls:
    """What records have in common that make the same calls, on operands of other sizes.

    Args:
        record: One of them.
        callees: The kernel of each kind of its steps.
        constants: Their constants.

    Attributes:
        callees: As it was given.
        constants: As it was given.
        headers: The arguments of kernels, without addresses.
        on_host: The buffers that the host backend reads or writes.
        checked: Symbols of kernels that are checked by ``runtime.order_check``.
        first_change: The first step that writes where an input lies; None if none does.
        replaced: For each output the input whose array it is; None: it has its own.
        given: Which of the caller's arrays, inputs first, which words of the arguments point into.
        pointing: The arguments that those words belong to.
        given_to_host: Which of the caller's arrays is which buffer, where the host backend needs it.
    """

    def __init__(self, record: Record, callees: Sequence[Callee], constants: Sequence[Array]) -> None:
        steps, buffers = record.steps, record.buffers
        self.callees, self.constants, self.addresses = callees, constants, addresses(constants)
        self.headers = make_headers(steps.dims, steps.shape, _element_types(record))
        self.itemsize = buffers.itemsize[steps.buffer]
        self.is_temporary, self.is_constant = buffers.is_of("temporary"), buffers.is_of("constant")
        self.on_host = frozenset(
            view.buffer for call in steps.hosts for view in (*call.inputs, *call.outputs) if view is not None
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
        words = self.pointing * HEADER_WORDS + HOST_WORD
        self.given = [*zip(place[self.pointing].tolist(), words.tolist(), strict=True)]
        self.given_to_host = [each for each in enumerate((*inputs, *outputs)) if each[1] in self.on_host]


def _element_types(record: Record) -> Array:
    """Return code and bits of the elements of each argument: its buffer's, or those that its kernel states."""
    buffers, steps = record.buffers, record.steps
    known = np.array([element_type(dtype) for _, dtype in buffers.sorts], np.uint8).reshape(-1, 2)
    types = known[buffers.sort[steps.buffer]]
    if not any(kind.dtypes for kind in steps.kinds):
        return types
    unstated = (0, 0)  # no element has no bits
    stated = steps.of_arguments(
        [[*map(element_type, kind.dtypes)] or [unstated] * kind.arguments for kind in steps.kinds]
    )
    return np.where(stated[:, 1:] != 0, stated, types)


class Owner(Protocol):
    """What is run in arenas, as ``Executor`` is.

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
        """Where they begin in memory."""


class Arena:
    """See the module.

    Args:
        owner: What is run.
        memory: Where its temporaries lie.

    Attributes:
        steps: What is called, in order; what fails returns something else than 0 and None.
        headers: The arguments of all kernels.
    """

    def __init__(self, owner: Owner, memory: Array) -> None:
        calls, self._host_steps = owner.calls, owner.calls.host_steps
        self._dims = np.zeros(len(owner.record.steps.dims.pairs), DIMENSION)
        self.headers = calls.headers.copy()
        self.headers["dim"] += np.uint64(self._dims.ctypes.data)
        self._words = self.headers.view(np.uint64).data  # to write a word takes half the time that numpy takes
        self._arrays: list[Array | None] = [None] * len(owner.record.buffers)
        self._given_to_host = calls.given_to_host
        self._pointers: list[tuple[int, int, int]] = []
        self.steps = self._steps(owner)
        self.fill(owner, memory)

    def fill(self, owner: Owner, memory: Array) -> None:
        """Write the numbers of another size, which makes the same calls, and where its temporaries lie."""
        calls, record = owner.calls, owner.record
        steps, buffers = record.steps, record.buffers
        self._dims["extent"], self._dims["stride"] = steps.dims.pairs.T
        start = steps.offset * calls.itemsize
        known = np.append(owner.addresses, 0)[np.where(calls.is_constant, buffers.place, -1)]
        bases = np.where(calls.is_temporary, memory.ctypes.data + buffers.place, known)
        self.headers["host"] = bases[steps.buffer] + start
        own = start[calls.pointing].tolist()
        self._pointers = [(place, word, offset) for (place, word), offset in zip(calls.given, own, strict=True)]
        for index in calls.on_host:
            self._arrays[index] = storage(index, owner, memory)
        for index, call in zip(self._host_steps, steps.hosts, strict=True):
            self.steps[index] = (evaluate_step, (call, self._arrays, owner.evaluate))
        if calls.checked:
            self.steps[:] = self._steps(owner)

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

    def _steps(self, owner: Owner) -> list[Step]:
        found, calls = owner.record.steps, owner.calls
        kernels = kernel_steps(calls.callees, found.called, found.ends, self.headers)
        if not found.hosts and not calls.checked:
            return kernels
        steps: list[Step] = []
        hosts, left = iter(found.hosts), zip(found.called.tolist(), found.ends.tolist(), kernels, strict=True)
        for kind in found.kind.tolist():
            if kind == HOST:
                steps.append((evaluate_step, (next(hosts), self._arrays, owner.evaluate)))
                continue
            _, end, step = next(left)
            checked = found.kinds[kind].symbol in calls.checked
            steps.append(self._order_check(len(steps), end, owner) if checked else step)
        return steps

    def _order_check(self, index: int, end: int, owner: Owner) -> Step:
        """Return what runs a kernel and checks it."""
        from opbuild.runtime.order_check import OrderCheck  # only for who debugs

        record = owner.record
        step = cast("KernelStep", record.steps[index])
        callee = owner.calls.callees[record.steps.kind[index]]
        own = self.headers[end - len(step.views) : end]
        sizes = [itemsize(record.buffers[view.buffer].dtype) for view in step.views]
        check = OrderCheck(callee.library, callee.function, own, step.views, sizes)
        return check, (callee.library.num_threads, *references(own, HEADER.itemsize))


def storage(index: int, owner: Owner, memory: Array) -> Array | None:
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
        None if view is None or type_ is None else _window(arrays, view, type_.size).reshape(type_.shape)
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
        _window(arrays, view, type_.size)[:] = result.reshape(-1)


def _refuse_outside(call: HostCall, arrays: Sequence[Array | None]) -> None:
    """Refuse indices, where no library does."""
    from opbuild.runtime.indices import refuse

    (view, _), (type_, bounds) = call.inputs, call.input_types
    if view is not None and type_ is not None and bounds is not None:
        refuse(call.node.name, _window(arrays, view, type_.size), bounds.shape, negative=call.node.attrs["negative"])


def _window(arrays: Sequence[Array | None], view: View, size: int) -> Array:
    """Return the elements of a dense view, flat."""
    array = arrays[view.buffer]
    if array is None:
        raise RunError("an array of the caller is missing", "this is an error in opbuild; please report it")
    return array.reshape(-1)[view.offset : view.offset + size]
