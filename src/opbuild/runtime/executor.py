"""Executor: runs one record. Everything that can be made ready before a call is made ready.

Each concurrent call has a block of memory for temporaries, which the bindings of a network share (``blocks``), and the
kernels' arguments with every address filled in but those of the caller's arrays. A call takes a block, writes those few
addresses and runs a list of ``function(*arguments)``: kernels, nodes on the host, copies between devices.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import RunError
from opbuild.graph.types import Array
from opbuild.platform.locks import lazy_property
from opbuild.platform.records import NamedTuple
from opbuild.runtime.arena import NOT_MOVED, Arena, Calls, Evaluate
from opbuild.runtime.blocks import Blocks, MemoryBlock
from opbuild.runtime.changes import change, writeable
from opbuild.runtime.devices.cpu.library import address_of
from opbuild.runtime.devices.device import (
    NO_MEMORIES,
    Callee,
    Memories,
    Module,
    Modules,
    Step,
    kernels_of,
    last_error,
    open_device,
    parted,
)
from opbuild.runtime.record import KERNELS, KernelStep, Ports, Record, itemsize
from opbuild.runtime.reused import MemoryRequest, memory_request
from opbuild.runtime.stopping import STOPPABLE, stopped_error
from opbuild.runtime.timing import TIMER
from opbuild.target.host import host_machine
from opbuild.target.level import CPU

if TYPE_CHECKING:
    from opbuild.graph.breaks import GraphBreak
    from opbuild.runtime.calls import NetworkCall
    from opbuild.runtime.devices.kept import Kept
    from opbuild.runtime.given import Continued

__all__ = ["Arena", "Evaluate", "Executor"]

NO_STEPS: frozenset[int] = frozenset()


class Unbound(NamedTuple):
    """The record for many sizes that one of a size was bound from.

    Attributes:
        record: It, with places of numbers.
        order: For each step of the bound one its number in it.
    """

    record: Record
    order: Array


class Executor:
    """Runs a built network for one input signature. Any number of threads may call it.

    Args:
        record: What to run; it was checked.
        modules: Its kernels, by the class of devices that runs them.
        constants: For each of the record's constants its bytes, ``uint8``.
        evaluate: The host backend; needed only if the record has host calls.
        blocks: The memory that it runs in, which others may share; default: its own.
        calls: What it has in common with other sizes, with kernels and constants; default: nothing.
        tables: Constants behind those of ``calls``.
        unbound: What it was bound from, for readers.

    Attributes:
        is_filled: Whether its arguments are those of others, filled with its numbers.
    """

    def __init__(
        self,
        record: Record,
        modules: Modules,
        constants: Sequence[Array],
        evaluate: Evaluate | None,
        blocks: Blocks[Arena] | None = None,
        calls: Calls | None = None,
        tables: Sequence[Array] = (),
        unbound: Unbound | None = None,
    ) -> None:
        self.record, self.modules, self.evaluate, self._tables = record, modules, evaluate, tables
        self._unbound = unbound
        self.blocks: Blocks[Arena] = Blocks() if blocks is None else blocks
        self.calls = Calls(record, _callees(record, modules), constants) if calls is None else calls
        self.is_filled = calls is not None
        if calls is None:
            self._prepare_first()

    @property
    def inputs(self) -> Ports:
        """The inputs in order."""
        return self.record.inputs

    @property
    def outputs(self) -> Ports:
        """The outputs in order."""
        return self.record.outputs

    @property
    def arena_size(self) -> int:
        """Bytes of the memory for temporaries."""
        return self.record.arena_size

    @property
    def zeroed(self) -> int:
        """Bytes at its beginning that hold padding."""
        return self.record.zeroed

    @property
    def arenas(self) -> Mapping[str, tuple[int, int]]:
        """The same two numbers for the memory on each device other than the CPU."""
        return self.record.arenas

    @property
    def follows(self) -> GraphBreak | None:
        """The graph break behind it, if it is a segment of a network."""
        return self.record.follows

    @property
    def runners(self) -> tuple[Executor, ...]:
        """The executors, in the order in which they run."""
        return (self,)

    @property
    def constants(self) -> Sequence[Array]:
        """The bytes of all constants."""
        return (*self.calls.constants, *self._tables) if self._tables else self.calls.constants

    @property
    def addresses(self) -> Array:
        """The addresses of its buffers in memory."""
        own = self.calls.addresses
        return np.append(own, [address_of(each) for each in self._tables]) if self._tables else own

    def prepare(self, memory: Array, others: Memories = NO_MEMORIES) -> Arena:
        """Return the arena of calls in some memory."""
        return Arena(self, memory, others)

    def fill(self, prepared: Arena, memory: Array, others: Memories = NO_MEMORIES) -> None:
        """Make ready the state that was prepared for another one with the same calls."""
        prepared.fill(self, memory, others)

    def _prepare_first(self) -> None:
        """Make ready the state of a first call; where calls of others are under way, that call does it itself."""
        block = self.blocks.take_free()
        if block is not None:
            block.enter(self)
            self.blocks.give(block)

    @lazy_property
    def _requests(self) -> list[MemoryRequest]:
        """The arrays that a call makes."""
        pairs = zip(self.outputs, self.calls.replaced, strict=True)
        return [memory_request(port.type.shape, numpy_dtype(port.type.dtype)) for port, place in pairs if place is None]

    @lazy_property
    def _continued(self) -> dict[int, Continued]:
        """The outputs that continue inputs."""
        from opbuild.runtime.given import continued

        return continued(self.record)

    def run(self, inputs: Sequence[Array], given: Sequence[Array | None] = ()) -> list[Array]:
        """Run the network.

        Args:
            inputs: Dense arrays of exactly the types of ``inputs``, in order; read in place. One that an output
                replaces is written to by the last calls, unless it is read-only: then a copy of it is.
            given: Arrays of the caller's for outputs, in order, None for others; default: all are others.

        Returns:
            Arrays of the types of ``outputs``, in order: fresh, but for those that replace inputs, and for those of
            ``given`` that can be written to directly.

        Raises:
            RunError: If a kernel or the host backend fails, there is no memory, or another thread stops the call.
        """
        replaced, first_change = self.calls.replaced, self.calls.first_change
        block = self.blocks.take()
        arena = block.enter(self)
        left_out, moved = NO_STEPS, NOT_MOVED
        if given and first_change is None:
            outputs, left_out, moved = self._given_outputs(inputs, given)
        else:
            outputs = self.blocks.outputs.take(self._requests)
        if len(outputs) < len(replaced):
            inputs = writeable(inputs, [place for place in replaced if place is not None])
            fresh = iter(outputs)
            outputs = [next(fresh) if place is None else inputs[place] for place in replaced]
        arena.attach(inputs, outputs)
        if self.calls.devices:
            arena.move(self, moved)
        is_usual = first_change is None and not left_out and TIMER.get() is None
        steps: Sequence[Step] = arena.joined if is_usual else self._chosen_steps(arena, left_out)
        calls = steps if first_change is None else steps[:first_change]
        stop = STOPPABLE.get(get_ident()) if STOPPABLE else None
        watched = calls if stop is None else stop.watch(calls)
        for function, arguments in watched:
            if function(*arguments):
                raise self._failure(block, arguments)
        if stop is not None:
            stop.leave()
            if len(watched) < len(calls):
                raise self._stopped(block)
        if first_change is not None:
            for name in self.calls.devices:
                open_device(name).synchronize()  # what fails there fails before anything is changed
            change(steps[first_change:])
        arena.detach()
        self.blocks.give(block)
        return outputs

    def _chosen_steps(self, arena: Arena, left_out: frozenset[int]) -> Sequence[Step]:
        """Return the steps of a call that is timed, leaves some out or changes its inputs."""
        timer = TIMER.get()
        if timer is not None:
            timed = timer.wrapped(self, self._awaiting_steps(arena.steps))
            return [step for number, step in enumerate(timed) if number not in left_out]
        return arena.joined_without(self, left_out) if self.calls.first_change is None else arena.steps

    @lazy_property
    def kept(self) -> Mapping[int, Kept]:
        """The outputs on devices that continue inputs there, by their places."""
        if not self.calls.devices:
            return {}
        from opbuild.runtime.devices.kept import kept_outputs  # as `_continued`

        return kept_outputs(self.record)

    def _given_outputs(
        self, inputs: Sequence[Array], given: Sequence[Array | None]
    ) -> tuple[list[Array], frozenset[int], Mapping[int, int]]:
        """Return the arrays of the outputs, the caller's where they serve, the steps that need not run, what moves."""
        from opbuild.runtime.given import taken  # most calls give none

        own, left_out = taken(self.outputs, given, inputs, self._continued)
        moved = NOT_MOVED
        if self.kept:
            from opbuild.runtime.devices.kept import moves

            moved, more = moves(self.kept, inputs, own)
            left_out |= more
        requests = [request for request, array in zip(self._requests, own, strict=True) if array is None]
        fresh = iter(self.blocks.outputs.take(requests))
        return [next(fresh) if array is None else array for array in own], left_out, moved

    def _awaiting_steps(self, steps: Sequence[Step]) -> Sequence[Step]:
        """Return steps that end when they are done, also on devices that return before."""
        if not self.calls.devices:
            return steps
        from opbuild.runtime.devices.several import awaited  # few networks run on several

        return awaited(steps, self.calls.devices)

    def _stopped(self, block: MemoryBlock[Arena]) -> RunError:
        for name in self.calls.devices:
            open_device(name).synchronize()
        block.prepared.detach()
        self.blocks.give(block)
        return stopped_error()

    def _failure(self, block: MemoryBlock[Arena], arguments: tuple[Any, ...]) -> RunError:
        arena = block.prepared
        failed = next(index for index, (_, each) in enumerate(arena.steps) if each is arguments)
        call = self.call_of(failed)
        if not call.writes:
            from opbuild.runtime.indices import refused

            error = refused(call.nodes[0], arena.arguments_of(failed, self), call.symbol)
            arena.detach()
            self.blocks.give(block)
            return error
        message = last_error() or "it gave no message"
        return RunError(f"kernel {call.symbol} failed: {message}", f"it computes node {', '.join(call.nodes)}")

    def call_of(self, step: int) -> NetworkCall:
        """Describe the call of a step."""
        call = self._described(step)
        if self._unbound is None:
            return call
        from opbuild.runtime.calls import symbolic_shape

        record, order = self._unbound
        return call._replace(symbolic_shape=symbolic_shape(record, int(order[step]), len(call.shape)))

    def _described(self, step: int) -> NetworkCall:
        from opbuild.runtime.calls import host_call, kernel_call

        found = self.record.steps[step]
        if not isinstance(found, KernelStep):
            return host_call(found)
        family, variant = self.record.notes.get(KERNELS, {}).get(found.symbol, ("", {}))
        sizes = [itemsize(dtype) for dtype in found.argument_types(self.record.buffers)]
        return kernel_call(found.symbol, found.nodes, (family, variant), found.views, sizes, found.writes)

    @property
    def step_count(self) -> int:
        """The number of calls of a run."""
        return len(self.record.steps)

    @property
    def temporaries(self) -> Mapping[int, int]:
        """Bytes of the buffers that lie in the memory for temporaries."""
        return {index: each.nbytes for index, each in enumerate(self.record.buffers) if each.kind == "temporary"}


def _callees(record: Record, modules: Modules) -> list[Callee]:
    """Return the kernel of each kind of step."""
    kinds, machine = [*zip(record.steps.kinds, record.devices_of_kinds, strict=True)], host_machine()
    known = {name: kernels_of((k.symbol for k, d in kinds if d == name), modules.get(name)) for _, name in kinds}
    return [
        Callee(known[name][kind.symbol], modules[name], machine.tasks(kind.work, modules[name].num_threads))
        for kind, name in kinds
    ]


def load_code(code: bytes, num_threads: int) -> dict[str, Module]:
    """Return a network's code, loaded on each of its devices; ``num_threads`` are the CPU's.

    Raises:
        LinkError: If it cannot be loaded.
    """
    return {name: _loaded(name, each, num_threads) for name, each in parted(code).items()}


def _loaded(name: str, code: bytes, num_threads: int) -> Module:
    if name == CPU:
        from opbuild.runtime.devices.cpu.library import Library

        return Library(code, num_threads)
    return open_device(name).load(code)
