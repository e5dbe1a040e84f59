"""Executor: runs one record. Everything that can be made ready before a call is made ready.

Each concurrent call has a block of memory for temporaries, which the bindings of a network share (``blocks``), and the
kernels' arguments with every address filled in but those of the caller's arrays. A call takes a block, writes those few
addresses and runs a list of ``function(*arguments)``; ctypes releases the interpreter while a kernel runs.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import LinkError, OpbuildError, RunError
from opbuild.graph.types import Array, Node
from opbuild.kernel.host import here
from opbuild.program import HostCall, Port, View
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.buffers import HEADER, HEADER_WORDS, HOST_WORD, make_headers
from opbuild.runtime.changes import change, first_change, writeable
from opbuild.runtime.library import MOST_OPERANDS, Library, last_error
from opbuild.runtime.record import CHECKED_ORDER, KERNELS, KernelStep, Record, itemsize
from opbuild.runtime.reused import wanted
from opbuild.runtime.timing import TIMER

if TYPE_CHECKING:
    from opbuild.runtime.calls import Call

Evaluate = Callable[[Node, Sequence["Array | None"], int], Sequence["Array | None"]]
"""Evaluates one node on dense arrays, for a version of the operator set; the host backend's face."""
Headers = ctypes.Array[ctypes.c_char]
"""The memory of headers of arguments."""
_HEADER_BYTES = HEADER.itemsize
Step = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments; it returns 0 (or None) unless it failed."""


class Prepared(Protocol):
    """What a call needs to run in one block of memory.

    Attributes:
        steps: What is called, in order; what fails returns something else than 0 and None.
    """

    steps: list[Step]

    def attach(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Point the arguments at the caller's arrays."""

    def detach(self) -> None:
        """Let go of the caller's arrays."""


class Runner(ABC):
    """Runs a network for one input signature. Any number of threads may call it.

    Args:
        inputs: The inputs in order.
        outputs: The outputs in order.
        arena_size: Bytes of the memory for temporaries.
        zeroed: Bytes at its beginning that hold padding.
        blocks: The memory that it runs in, which others may share.

    Attributes:
        inputs: The inputs in order.
        outputs: The outputs in order.
    """

    def __init__(
        self,
        inputs: tuple[Port, ...],
        outputs: tuple[Port, ...],
        arena_size: int,
        zeroed: int,
        blocks: Blocks[Prepared],
    ) -> None:
        self.inputs, self.outputs = inputs, outputs
        self.arena_size, self.zeroed, self.blocks = arena_size, zeroed, blocks
        places = {port.buffer: place for place, port in enumerate(inputs)}
        self._replaced = [places.get(port.buffer) for port in outputs]
        self._first_change: int | None = None
        own = [port.type for port, place in zip(outputs, self._replaced, strict=True) if place is None]
        self._made = [wanted(each.shape, numpy_dtype(each.dtype)) for each in own]

    @abstractmethod
    def prepare(self, memory: Array) -> Prepared:
        """Return what a call needs to run in some memory."""

    @abstractmethod
    def call_of(self, step: int) -> Call:
        """Describe the call of a step."""

    @property
    @abstractmethod
    def step_count(self) -> int:
        """How many calls a run makes."""

    @property
    @abstractmethod
    def temporaries(self) -> Mapping[int, int]:
        """Bytes of the buffers that lie in the memory for temporaries."""

    @property
    def runners(self) -> tuple[Runner, ...]:
        """What runs, one after the other."""
        return (self,)

    def _prepare_first(self) -> None:
        """Make ready what a first call needs; where calls of others are under way, that call does it itself."""
        block = self.blocks.take_free()
        if block is not None:
            block.enter(self)
            self.blocks.give(block)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Run the network.

        Args:
            inputs: Dense arrays of exactly the types of ``inputs``, in order; read in place. One that an output
                replaces is written to by the last calls, unless it is read-only: then a copy of it is.

        Returns:
            Arrays of the types of ``outputs``, in order: fresh, but for those that replace inputs.

        Raises:
            RunError: If a kernel or the host backend fails, or there is no memory.
        """
        block = self.blocks.take()
        arena = block.enter(self)
        outputs = self.blocks.outputs.take(self._made)
        if len(outputs) < len(self._replaced):
            inputs = writeable(inputs, [place for place in self._replaced if place is not None])
            fresh = iter(outputs)
            outputs = [next(fresh) if place is None else inputs[place] for place in self._replaced]
        arena.attach(inputs, outputs)
        timer = TIMER.get()
        steps = arena.steps if timer is None else timer.wrapped(self, arena.steps)
        for function, arguments in steps[: self._first_change]:
            if function(*arguments):
                raise self._failure(arena, arguments)
        if self._first_change is not None:
            change(steps[self._first_change :])
        arena.detach()
        self.blocks.give(block)
        return outputs

    def _failure(self, arena: Prepared, arguments: tuple[Any, ...]) -> RunError:
        failed = next(index for index, (_, each) in enumerate(arena.steps) if each is arguments)
        call = self.call_of(failed)
        message = last_error() or "it gave no message"
        return RunError(f"kernel {call.symbol} failed: {message}", f"it computes node {', '.join(call.nodes)}")


class Executor(Runner):
    """Runs a built network for one input signature. Any number of threads may call it.

    Args:
        record: What to run; it was checked.
        library: Its kernels.
        constants: For each of the record's constants its bytes, ``uint8``.
        evaluate: The host backend; needed only if the record has host calls.
        blocks: The memory that it runs in, which others may share; default: its own.
    """

    def __init__(
        self,
        record: Record,
        library: Library | None,
        constants: Sequence[Array],
        evaluate: Evaluate | None,
        blocks: Blocks[Prepared] | None = None,
    ) -> None:
        shared = Blocks[Prepared]() if blocks is None else blocks
        super().__init__(record.inputs, record.outputs, record.arena_size, record.zeroed, shared)
        self.record = record
        self._constants = tuple(constants)
        self._evaluate = evaluate
        kernels = [step for step in record.steps if isinstance(step, KernelStep)]
        views = [view for step in kernels for view in step.views]
        types = [dtype for step in kernels for dtype in step.argument_types(record.buffers)]
        self._headers, self._dimensions = make_headers(zip(views, types, strict=True))
        self._symbols = tuple(dict.fromkeys(step.symbol for step in kernels))
        self._views = views
        self._of_host = frozenset(
            view.buffer
            for step in record.steps
            if not isinstance(step, KernelStep)
            for view in (*step.inputs, *step.outputs)
            if view is not None
        )
        if library is None and self._symbols:
            raise LinkError(f"the network {record.name} calls kernels and has no library", "build it again")
        self._functions = {symbol: library.kernel(symbol) for symbol in self._symbols} if library is not None else {}
        self.library = library
        self._checked = frozenset(record.notes.get(CHECKED_ORDER, ()))
        self._first_change = first_change(record)
        self._prepare_first()

    def prepare(self, memory: Array) -> Arena:
        """Return what a call needs to run in some memory."""
        return Arena(self, memory)

    def call_of(self, step: int) -> Call:
        """Describe the call of a step."""
        from opbuild.runtime.calls import host_call, kernel_call

        found = self.record.steps[step]
        if not isinstance(found, KernelStep):
            return host_call(found)
        family, variant = self.record.notes.get(KERNELS, {}).get(found.symbol, ("", {}))
        sizes = [itemsize(dtype) for dtype in found.argument_types(self.record.buffers)]
        return kernel_call(found.symbol, found.nodes, (family, variant), found.views, sizes, found.writes)

    @property
    def step_count(self) -> int:
        """How many calls a run makes."""
        return len(self.record.steps)

    @property
    def temporaries(self) -> Mapping[int, int]:
        """Bytes of the buffers that lie in the memory for temporaries."""
        return {index: each.nbytes for index, each in enumerate(self.record.buffers) if each.kind == "temporary"}


class Arena:
    """Memory and ready-made arguments for one call at a time.

    Args:
        owner: What is run.
        memory: Where its temporaries lie.
    """

    def __init__(self, owner: Executor, memory: Array) -> None:
        record, views = owner.record, owner._views
        self._owner, self.memory = owner, memory
        self.headers = owner._headers.copy()
        self._words = self.headers.view(np.uint64)
        self._arrays: list[Array | None] = [None] * len(record.buffers)
        for index in owner._of_host:
            self._arrays[index] = self._storage(index, owner)
        self._set_addresses(views, owner)
        inputs = frozenset(port.buffer for port in record.inputs)
        own = [_PortArguments(port, () if port.buffer in inputs else views, record) for port in record.outputs]
        self._ports = [*(_PortArguments(port, views, record) for port in record.inputs), *own]
        self.steps = self._steps(owner)

    def attach(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Point the arguments at the caller's arrays."""
        words = self._words
        for port, array in zip(self._ports, (*inputs, *outputs), strict=True):
            if port.hosts:
                address = array.ctypes.data  # not __array_interface__: numpy 2.4 loses some bytes at each use of it
                for word, offset in port.hosts:
                    words[word] = address + offset
            self._arrays[port.buffer] = array

    def detach(self) -> None:
        """Let go of the caller's arrays."""
        for port in self._ports:
            self._arrays[port.buffer] = None

    def array(self, buffer: int) -> Array | None:
        """Return the memory of a buffer; None for the caller's while none is attached."""
        array = self._arrays[buffer]
        return self._storage(buffer, self._owner) if array is None else array

    def _storage(self, index: int, owner: Executor) -> Array | None:
        """Return the memory of a buffer as a flat array; None for the caller's."""
        buffer = owner.record.buffers[index]
        if buffer.kind == "temporary":
            return self.memory[buffer.place : buffer.place + buffer.nbytes].view(numpy_dtype(buffer.dtype))
        if buffer.kind == "constant":
            return owner._constants[buffer.place].view(numpy_dtype(buffer.dtype))
        return None

    def _set_addresses(self, views: Sequence[View], owner: Executor) -> None:
        """Fill in the addresses of all views but those of the caller's arrays."""
        memory, constants = self.memory.ctypes.data, [each.ctypes.data for each in owner._constants]
        bases, sizes = [], []
        for kind, dtype, _, place in owner.record.buffers:
            bases.append(memory + place if kind == "temporary" else constants[place] if kind == "constant" else 0)
            sizes.append(itemsize(dtype))
        hosts = (bases[index] + offset * sizes[index] for index, offset, _ in views)
        self.headers["host"] = np.fromiter(hosts, np.uint64, len(views))

    def _steps(self, owner: Executor) -> list[Step]:
        steps: list[Step] = []
        headers, first = header_memory(self.headers), 0
        for step in owner.record.steps:
            if isinstance(step, KernelStep):
                last = first + len(step.views)
                steps.append(self._kernel_step(step, headers, range(first, last), owner))
                first = last
            else:
                steps.append((evaluate_step, (step, self._arrays, owner._evaluate)))
        return steps

    def _kernel_step(self, step: KernelStep, headers: Headers, own: range, owner: Executor) -> Step:
        """Return what runs a kernel: the kernel itself, what calls it, or what checks it."""
        kernel: Any = owner._functions[step.symbol]
        library = cast("Library", owner.library)
        if step.symbol not in owner._checked:
            return kernel_step(kernel, library, here().tasks(step.work, library.num_threads), headers, own)
        from opbuild.runtime.order_check import OrderCheck  # only for who debugs

        sizes = [itemsize(owner.record.buffers[view.buffer].dtype) for view in step.views]
        check = OrderCheck(library, kernel, self.headers[own.start : own.stop], step.views, sizes)
        return check, _arguments(library.num_threads, headers, own)


def header_memory(headers: Array) -> Headers:
    """Return the memory of headers, which must outlive it, for ``kernel_step``."""
    return (ctypes.c_char * headers.nbytes).from_address(headers.ctypes.data)


def kernel_step(kernel: Any, library: Library, tasks: int, headers: Headers, own: range) -> Step:
    """Return what runs a kernel on those of the headers that are its own: the kernel itself, or what calls it."""
    if library.call is None or len(own) > MOST_OPERANDS:
        return kernel, _arguments(tasks, headers, own)
    address, first = ctypes.cast(kernel, ctypes.c_void_p).value, ctypes.addressof(headers)
    operands = [first + index * _HEADER_BYTES for index in own]
    called = (ctypes.c_void_p * (2 + MOST_OPERANDS))(address, tasks, *operands)
    return library.call, (ctypes.byref(called),)


def _arguments(tasks: int, headers: Headers, own: range) -> tuple[Any, ...]:
    # byref is the cheapest argument there is: 150 ns a call with two of them, c_void_p 200
    return (tasks, *[ctypes.byref(headers, index * _HEADER_BYTES) for index in own])


class _PortArguments:
    """The arguments that point into one of the caller's arrays."""

    def __init__(self, port: Port, views: Sequence[View], record: Record) -> None:
        size = itemsize(record.buffers[port.buffer].dtype)
        self.buffer = port.buffer
        self.hosts = tuple(
            (index * HEADER_WORDS + HOST_WORD, view.offset * size)
            for index, view in enumerate(views)
            if view.buffer == port.buffer
        )


def evaluate_step(call: HostCall, arrays: Sequence[Array | None], evaluate: Evaluate | None) -> None:
    """Run one node on the host backend, between the same buffers as the kernels.

    Raises:
        RunError: If the backend fails, or gives something else than the model says.
    """
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


def _window(arrays: Sequence[Array | None], view: View, size: int) -> Array:
    """Return the elements of a dense view, flat."""
    array = arrays[view.buffer]
    if array is None:
        raise RunError("an array of the caller is missing", "this is an error in opbuild; please report it")
    return array.reshape(-1)[view.offset : view.offset + size]
