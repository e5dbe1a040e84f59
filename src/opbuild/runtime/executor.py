"""Executor: runs one record. Everything that can be made ready before a call is made ready.

Each concurrent call has a block of memory for temporaries, which the bindings of a network share (``blocks``), and the
kernels' arguments with every address filled in but those of the caller's arrays. A call takes a block, writes those few
addresses and runs a list of ``function(*arguments)``; ctypes releases the interpreter while a kernel runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import LinkError, OpbuildError, RunError
from opbuild.graph.types import Array, Node
from opbuild.kernel.host import here
from opbuild.program import HostCall, Port, View
from opbuild.runtime.blocks import Block, Blocks
from opbuild.runtime.buffers import HEADER, HEADER_WORDS, HOST_WORD, element_type, make_headers
from opbuild.runtime.changes import change, first_change, writeable
from opbuild.runtime.given import Given, Uses
from opbuild.runtime.library import Callee, Library, Step, kernel_steps, last_error, references
from opbuild.runtime.record import CHECKED_ORDER, HOST, KERNELS, KernelStep, Record, addresses, itemsize
from opbuild.runtime.reused import wanted
from opbuild.runtime.timing import TIMER

if TYPE_CHECKING:
    from opbuild.graph.cut import Cut
    from opbuild.runtime.calls import Call

Evaluate = Callable[[Node, Sequence["Array | None"], int], Sequence["Array | None"]]
"""Evaluates one node on dense arrays, for a version of the operator set; the host backend's face."""


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

    def arguments(self, step: int) -> Array:
        """Return the headers of a kernel's arguments."""


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
    def follows(self) -> Cut | None:
        """The graph break behind it, if it is a segment of a network."""
        return None

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
                raise self._failure(block, arguments)
        if self._first_change is not None:
            change(steps[self._first_change :])
        arena.detach()
        self.blocks.give(block)
        return outputs

    def _failure(self, block: Block[Prepared], arguments: tuple[Any, ...]) -> RunError:
        arena = block.prepared
        failed = next(index for index, (_, each) in enumerate(arena.steps) if each is arguments)
        call = self.call_of(failed)
        if not call.writes:
            from opbuild.runtime.indices import refused

            error = refused(call.nodes[0], arena.arguments(failed), call.symbol)
            arena.detach()
            self.blocks.give(block)
            return error
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
        self._constants = constants
        self._evaluate = evaluate
        steps = record.steps
        self._headers, self._dimensions = make_headers(steps.dims, steps.shape, self._element_types())
        self._addresses = addresses(constants)
        self._uses = self._uses_of_ports()
        self._of_host = frozenset(
            view.buffer for call in steps.hosts for view in (*call.inputs, *call.outputs) if view is not None
        )
        if library is None and steps.kinds:
            raise LinkError(f"the network {record.name} calls kernels and has no library", "build it again")
        symbols = dict.fromkeys(kind.symbol for kind in steps.kinds)
        functions = {symbol: library.kernel(symbol) for symbol in symbols} if library is not None else {}
        self._callees = [
            Callee(functions[kind.symbol], library, here().tasks(kind.work, library.num_threads))
            for kind in steps.kinds
            if library is not None
        ]
        self.library = library
        self._checked = frozenset(record.notes.get(CHECKED_ORDER, ()))
        self._first_change = first_change(record)
        self._prepare_first()

    @property
    def follows(self) -> Cut | None:
        """The graph break behind it, if it is a segment of a network."""
        return self.record.cut

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

    def _element_types(self) -> Array:
        """Return code and bits of the elements of each argument: its buffer's, or those that its kernel states."""
        buffers, steps = self.record.buffers, self.record.steps
        known = np.array([element_type(dtype) for _, dtype in buffers.sorts], np.uint8).reshape(-1, 2)
        types = known[buffers.sort[steps.buffer]]
        if not any(kind.dtypes for kind in steps.kinds):
            return types
        unstated = (0, 0)  # no element has no bits
        stated = steps.of_arguments(
            [[*map(element_type, kind.dtypes)] or [unstated] * kind.arguments for kind in steps.kinds]
        )
        return np.where(stated[:, 1:] != 0, stated, types)

    def _uses_of_ports(self) -> list[Uses]:
        """Return for each of the caller's arrays its buffer, and which words point how many bytes into it."""
        buffers, steps = self.record.buffers, self.record.steps
        own = np.flatnonzero(buffers.is_of("input", "output")[steps.buffer])
        words, starts = own * HEADER_WORDS + HOST_WORD, (steps.offset * buffers.itemsize[steps.buffer])[own]
        found: dict[int, list[tuple[int, int]]] = {}
        for buffer, *argument in zip(steps.buffer[own].tolist(), words.tolist(), starts.tolist(), strict=True):
            found.setdefault(buffer, []).append((argument[0], argument[1]))
        given = [(port.buffer, found.get(port.buffer, ())) for port in self.inputs]
        for buffer, _ in given:  # an output that replaces one is the same array
            found.pop(buffer, None)
        return [*given, *((port.buffer, found.get(port.buffer, ())) for port in self.outputs)]

    @property
    def step_count(self) -> int:
        """How many calls a run makes."""
        return len(self.record.steps)

    @property
    def temporaries(self) -> Mapping[int, int]:
        """Bytes of the buffers that lie in the memory for temporaries."""
        return {index: each.nbytes for index, each in enumerate(self.record.buffers) if each.kind == "temporary"}


class Arena(Given):
    """Memory and ready-made arguments for one call at a time.

    Args:
        owner: What is run.
        memory: Where its temporaries lie.
    """

    def __init__(self, owner: Executor, memory: Array) -> None:
        self.memory = memory
        self._record, self._constants = owner.record, owner._constants
        self.headers = owner._headers.copy()
        self.headers["host"] = self._hosts(owner)
        super().__init__(self.headers, owner._uses, [None] * len(owner.record.buffers), owner._of_host)
        for index in owner._of_host:
            self._arrays[index] = self.storage(index)
        self.steps = self._steps(owner)

    def arguments(self, step: int) -> Array:
        """Return the headers of a kernel's arguments."""
        steps = self._record.steps
        found: Array = self.headers[steps.step == step]
        return found

    def storage(self, index: int) -> Array | None:
        """Return the memory of a buffer as a flat array; None for the caller's."""
        buffer = self._record.buffers[index]
        if buffer.kind == "temporary":
            return self.memory[buffer.place : buffer.place + buffer.nbytes].view(numpy_dtype(buffer.dtype))
        if buffer.kind == "constant":
            return self._constants[buffer.place].view(numpy_dtype(buffer.dtype))
        return None

    def _hosts(self, owner: Executor) -> Array:
        """Return the addresses of all arguments; those of the caller's arrays are filled in later."""
        buffers, steps = owner.record.buffers, owner.record.steps
        bases = np.where(buffers.is_of("temporary"), self.memory.ctypes.data + buffers.place, 0)
        constant = buffers.is_of("constant")
        bases[constant] = owner._addresses[buffers.place[constant]]
        return bases[steps.buffer] + steps.offset * buffers.itemsize[steps.buffer]

    def _steps(self, owner: Executor) -> list[Step]:
        found = owner.record.steps
        kernels = kernel_steps(owner._callees, found.called, found.ends, self.headers)
        if not found.hosts and not owner._checked:
            return kernels
        steps: list[Step] = []
        hosts, left = iter(found.hosts), zip(found.called.tolist(), found.ends.tolist(), kernels, strict=True)
        for kind in found.kind.tolist():
            if kind == HOST:
                steps.append((evaluate_step, (next(hosts), self._arrays, owner._evaluate)))
                continue
            _, end, step = next(left)
            checked = found.kinds[kind].symbol in owner._checked
            steps.append(self._order_check(len(steps), end, owner) if checked else step)
        return steps

    def _order_check(self, index: int, end: int, owner: Executor) -> Step:
        """Return what runs a kernel and checks it."""
        from opbuild.runtime.order_check import OrderCheck  # only for who debugs

        step = cast("KernelStep", owner.record.steps[index])
        callee = owner._callees[owner.record.steps.kind[index]]
        own = self.headers[end - len(step.views) : end]
        sizes = [itemsize(owner.record.buffers[view.buffer].dtype) for view in step.views]
        check = OrderCheck(callee.library, callee.function, own, step.views, sizes)
        return check, (callee.library.num_threads, *references(own, HEADER.itemsize))


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
