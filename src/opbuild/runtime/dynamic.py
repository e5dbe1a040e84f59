"""Dynamic shapes: a record for several input signatures is bound to one by filling in its numbers.

A binding works out the numbers, checks that each kernel may run on them, lays temporaries as they lay in the size
before, and is then the record of that signature. What only costs speed is decided again where an extent has left its
bucket: which kernels compute the calls, into how many tasks each is divided, and which temporary lies on which other
one. Bindings of a bucket make the same calls, whose arguments are filled with the numbers of whichever runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np

from opbuild.families.catalogue import find
from opbuild.families.family import ANY_RANK
from opbuild.graph.tables import TABLES, Table
from opbuild.graph.types import Array
from opbuild.kernel.free import FREE
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.locks import lazy_property
from opbuild.platform.records import NamedTuple, dataclass, replace
from opbuild.runtime.arena import Arena, Calls, Evaluate
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.devices.device import Callee, Module
from opbuild.runtime.executor import Executor, Unbound
from opbuild.runtime.indices import work_of
from opbuild.runtime.memory_plan import Lives, MemoryPlan, Stack
from opbuild.runtime.record import HOST, KERNELS, CallKind, DimsTable, Places, Record, Steps
from opbuild.runtime.soundness import Soundness
from opbuild.runtime.symbolic import argument, host_call, numbers_of, symbolic_of
from opbuild.target.host import host_machine
from opbuild.target.level import CPU

Shapes = tuple[tuple[int, ...], ...]
T = TypeVar("T")

MOST_STEPS = 2**22
"""Steps of a call, those that are repeated counted each time."""
MOST_BUCKETS = 64
"""Buckets whose decisions are remembered."""
MOST_STACKS = 4
"""Plans of which some size may have another one again."""
DAMAGED = (ValueError, TypeError, LookupError, ArithmeticError)
"""Errors of numbers that are read: what is stored may be anything."""
EXACT, BITS = 16, 4
"""Below the first each extent is its own bucket; else they are told apart by so many bits."""


class LoadedKernel(NamedTuple):
    """A kernel that is loaded.

    Attributes:
        desc: What it computes.
        symbol: Its name.
        module: What it is in.
        function: Runs it.
    """

    desc: OpDesc
    symbol: str
    module: Module
    function: Any


class ChosenKernel(NamedTuple):
    """The kernel that computes a class of calls in a size.

    Attributes:
        kernel: The kernel.
        work: Nanoseconds that it takes on one core, roughly.
    """

    kernel: LoadedKernel
    work: int


class Answers(NamedTuple):
    """The variants that families would have for the calls of a record in a size.

    Attributes:
        variants: The answer to each query; None: the family leaves the call to others.
        run: The kinds of steps that are run.
        suits: Whether lowering would have made the same calls: no family says otherwise.
    """

    variants: tuple[Any, ...]
    run: frozenset[int]
    suits: bool


@dataclass(frozen=True, eq=False)
class Decision:
    """The kernels that compute the calls of a record in a size.

    Attributes:
        chosen: The kernel of each class of calls; None where there is none.
        replaced: Classes of calls for which another variant than the chosen one would be faster.
    """

    chosen: tuple[ChosenKernel | None, ...]
    replaced: frozenset[int]

    @lazy_property
    def kernels(self) -> list[ChosenKernel]:
        """The kernel of each class of calls; none if one is missing."""
        found = [each for each in self.chosen if each is not None]
        return found if len(found) == len(self.chosen) else []

    @lazy_property
    def calls(self) -> tuple[tuple[str, int], ...]:
        """The kernels by name, and into how many tasks their calls are divided."""
        return tuple([(each.kernel.symbol, _tasks(each)) for each in self.kernels])

    @property
    def complete(self) -> bool:
        """Whether there is a kernel for each call."""
        return None not in self.chosen


class Kernels(Protocol):
    """The kernels that are loaded, more and more; a lookup raises the error of a family that has no answer."""

    def __len__(self) -> int:
        """Return how many there are."""

    def answers(self, record: Record, numbers: Array) -> Answers:
        """Ask families for the variants of a record's calls."""

    def decide(self, record: Record, numbers: Array, answers: Answers) -> Decision:
        """Choose the kernels of a record."""


class Sized(NamedTuple):
    """A record bound to a size.

    Attributes:
        executor: Runs it.
        decision: The kernels that compute its calls.
        suits: As of ``Answers``.
    """

    executor: Executor
    decision: Decision
    suits: bool


class Choice(NamedTuple):
    """A record and its numbers in a size."""

    network: DynamicNetwork
    numbers: Array
    bucket: _Bucket

    @property
    def suits(self) -> bool:
        """Whether lowering would have made the same calls."""
        return self.bucket.answers.suits

    def bind(self, kernels: Kernels) -> Sized | None:
        """Bind the size; None if a kernel is missing or its numbers are not sound."""
        with suppress(*DAMAGED, AttributeError):
            return self.bucket.bind(self.network, self.numbers, kernels)
        return None


class DynamicNetwork:
    """A record for several input signatures, and the state that its bindings share. One thread at a time may bind.

    Args:
        record: The record.
        constants: The bytes of its constants.
        evaluate: The host backend.
        blocks: The memory that bindings run in.
    """

    def __init__(
        self, record: Record, constants: Sequence[Array], evaluate: Evaluate | None, blocks: Blocks[Arena] | None = None
    ) -> None:
        self.record, self.constants, self.evaluate = record, constants, evaluate
        self.blocks: Blocks[Arena] = Blocks() if blocks is None else blocks
        self._buckets: dict[tuple[Any, ...], _Bucket] = {}
        self._same: dict[tuple[Any, ...], _SharedState] = {}
        self._limits: dict[tuple[Any, ...], _Limits] = {}
        self._places: dict[str, _TemporaryPlaces] = {}

    def bind(self, shapes: Shapes, kernels: Kernels) -> Sized | None:
        """Bind a size; None if the record is not for it, or lacks a kernel.

        Args:
            shapes: The shapes of the inputs, and what decides besides.
            kernels: Those that are loaded.
        """
        chosen = self.choose(shapes, kernels)
        return chosen and chosen.bind(kernels)

    def choose(self, shapes: Shapes, kernels: Kernels) -> Choice | None:
        """Return the families' answers for a size, None if the record is not for it; arguments as of ``bind``."""
        with suppress(*DAMAGED, AttributeError):  # a family that is asked for what it does not know
            numbers = numbers_of(self.record, shapes)
            return None if numbers is None else Choice(self, numbers, self._bucket(shapes, numbers, kernels))
        return None

    def is_for_sizes_of(self, other: DynamicNetwork) -> bool:
        """Return whether the network is for the sizes of another one of the same source, as far as that shows."""
        own, its = (symbolic_of(each.record) for each in (self, other))
        return own.variables == its.variables and own.formulas.hold_where(its.formulas)

    def _bucket(self, shapes: Shapes, numbers: Array, kernels: Kernels) -> _Bucket:
        """Return the bucket of a size; a new one where the kernels of the other sizes in it may not run here."""
        variables = symbolic_of(self.record).variables
        key = (len(kernels), *self._runs(numbers), *(_bucket_of(shapes[index][axis]) for index, axis in variables))
        known = self._buckets.get(key)
        if known is not None and not known.serves(numbers):
            del self._buckets[key]
        return _remembered(self._buckets, key, lambda: _Bucket(kernels.answers(self.record, numbers)))

    def _runs(self, numbers: Array) -> list[bool]:
        """Return for each repetition whether it is run at all."""
        return [bool(numbers[each.times] > 0) for each in symbolic_of(self.record).repetitions]

    @lazy_property
    def room(self) -> list[int]:
        """For each row of extents and strides how many dimensions its kernel may have."""
        room = self.record.steps.dims.rank.copy()
        for each, rows in zip(symbolic_of(self.record).decided, self.record.rows_of_kinds, strict=True):
            if find(each.desc.family).any_rank:
                room[rows] = np.maximum(room[rows], ANY_RANK)
        return list(room.tolist())

    @lazy_property
    def dims(self) -> DimsTable:
        """Extents and strides, with room for the dimensions of kernels that may have more; places of numbers."""
        symbolic = symbolic_of(self.record)
        return DimsTable.of(self.record.steps.dims, self.room, (symbolic.one, symbolic.zero))

    def tables(self, numbers: Array) -> list[Array]:
        """Return the bytes of the tables: of those that are numbers as they are, parts of one array."""
        places, parts = self._tables_of_numbers
        own, tables = numbers[places].view(np.uint8), symbolic_of(self.record).tables
        return [
            own[part] if part is not None else _table(each, numbers) for each, part in zip(tables, parts, strict=True)
        ]

    @lazy_property
    def _tables_of_numbers(self) -> tuple[Array, list[slice | None]]:
        """The places of the numbers of such tables, and of each table which of their bytes are its own, if any are."""
        places, parts = list[int](), list[slice | None]()
        for table in symbolic_of(self.record).tables:
            (kind, values), dtype = table.arguments if table.name == "numbers" else (("", ()), ())
            is_own = (kind, dtype) == ("tuple", ("value", "int64")) and all(each[0] == "place" for each in values)
            own = [value for _, value in values] if is_own else []
            parts.append(slice(8 * len(places), 8 * (len(places) + len(own))) if is_own else None)
            places += own
        return np.array(places, np.int64), parts

    def same(self, decision: Decision, counts: tuple[int, ...], numbers: Array) -> _SharedState:
        """Return the state that bindings share whose calls are these, each as often."""
        key = decision.calls, counts
        return _remembered(self._same, key, lambda: _SharedState(self, decision, counts, numbers))

    def limits(self, decision: Decision, run: frozenset[int]) -> _Limits:
        """Return the limits of the kernels of the kinds of steps that are run."""
        key = tuple([each.kernel.symbol for each in decision.kernels]), run
        return _remembered(self._limits, key, lambda: _Limits(self, decision, run))

    def placed(self, nbytes: Array, numbers: Array) -> MemoryPlan:
        """Return the memory plan of temporaries of some sizes."""
        plan = self._place(CPU).plan(nbytes, numbers)
        for name in self.record.buffers.devices:
            plan = plan.with_device(name, self._place(name).plan(nbytes, numbers))
        return plan

    def _place(self, device: str) -> _TemporaryPlaces:
        known = self._places.get(device)
        if known is None:
            known = self._places[device] = _TemporaryPlaces(self.record, device)
        return known


class _TemporaryPlaces:
    """The places of a record's temporaries on one device.

    Args:
        record: The record.
        device: The class of devices.
    """

    def __init__(self, record: Record, device: str) -> None:
        self._record = record
        buffers = record.buffers
        self._own = buffers.is_of("temporary") & (buffers.device == buffers.all_devices.index(device))
        self._stacks: list[tuple[Stack, list[tuple[int, int]]]] = []

    @lazy_property
    def _lives(self) -> Lives:
        """The lives of temporaries; those of a repetition last as long as it does."""
        record, symbolic = self._record, symbolic_of(self._record)
        run = np.arange(len(record.steps))
        for each in symbolic.repetitions:
            run[each.first : each.end] = each.first
        touched: dict[int, list[int]] = {number: [] for number in run.tolist()}
        steps = record.steps
        for step, buffer in zip(run[steps.step].tolist(), steps.buffer.tolist(), strict=True):
            touched[step].append(buffer)
        for step, call in zip(run[steps.kind == HOST].tolist(), steps.hosts, strict=True):
            touched[step] += [view.buffer for view in (*call.inputs, *call.outputs) if view is not None]
        return Lives(np.flatnonzero(self._own).tolist(), touched.values(), {*self._padding})

    def plan(self, nbytes: Array, numbers: Array) -> MemoryPlan:
        """Return the memory plan of temporaries of some sizes: as that of another size if that is good."""
        for stack, alike in reversed(self._stacks):
            if all(self._geometry(one, numbers) == self._geometry(other, numbers) for one, other in alike):
                plan = stack.plan(nbytes)
                if plan is not None:
                    return plan
        geometries = {buffer: self._geometry(buffer, numbers) for buffer in self._padding}
        plan = self._lives.plan(nbytes.tolist(), geometries)
        stack = Stack(self._lives, plan, nbytes.tolist())
        unlike = [pair for pair in stack.alike if len({self._padding[each] for each in pair}) > 1]
        self._stacks = [*self._stacks[1 - MOST_STACKS :], (stack, unlike)]
        return plan

    def _geometry(self, buffer: int, numbers: Array) -> tuple[Any, ...]:
        name, dtype, places = self._padding[buffer]
        return name, dtype, *numbers[[*places]].tolist()

    @lazy_property
    def _padding(self) -> dict[int, tuple[str, str, tuple[int, ...]]]:
        """For each buffer whose padding must be zero the numbers of its geometry."""
        buffers, padding = self._record.buffers, symbolic_of(self._record).padding
        own = (each for each in padding if self._own[each.buffer])
        return {each.buffer: (each.name, buffers[each.buffer].dtype, each.geometry) for each in own}


def fitting(networks: Iterable[DynamicNetwork], shapes: Shapes, kernels: Kernels) -> tuple[int, Sized] | None:
    """Return the number of a network that is for a size, and the size bound to it; None if none is.

    The first one that suits the size is taken, else the first one that is for it; arguments as of ``bind``.
    """
    others: list[tuple[int, Choice]] = []
    for number, network in enumerate(networks):
        chosen = network.choose(shapes, kernels)
        if chosen is not None and chosen.suits and (found := chosen.bind(kernels)) is not None:
            return number, found
        others += [(number, chosen)] if chosen is not None and not chosen.suits else []
    return next(((number, found) for number, chosen in others if (found := chosen.bind(kernels)) is not None), None)


class _Bucket:
    """Sizes for which the same is decided. It does not have the network, which has it: that would be a cycle.

    Attributes:
        answers: The families' answers.
    """

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self._decided: tuple[Decision, _Limits] | None = None

    def serves(self, numbers: Array) -> bool:
        """Return whether the kernels may run on these numbers, if any were chosen yet."""
        return self._decided is None or self._decided[1].keep(numbers)

    def bind(self, network: DynamicNetwork, numbers: Array, kernels: Kernels) -> Sized | None:
        """Bind a size of a network, None if a kernel is missing or may not run.

        Raises:
            ValueError: If it is not sound.
        """
        if self._decided is None:
            decision = kernels.decide(network.record, numbers, self.answers)
            limits = network.limits(decision, self.answers.run) if decision.complete else None
            if limits is None or not limits.keep(numbers):
                return None
            self._decided = decision, limits
        return self._bound(network, numbers, self._decided[0])

    def _bound(self, network: DynamicNetwork, numbers: Array, decision: Decision) -> Sized:
        record = network.record
        symbolic, buffers = symbolic_of(record), record.buffers
        counts = tuple([int(numbers[each.times]) for each in symbolic.repetitions])
        same = network.same(decision, counts, numbers)
        tables = network.tables(numbers)
        sizes = np.where(same.idle, 0, numbers[buffers.size])
        offsets, arena, zeroed, arenas = network.placed(sizes * buffers.itemsize, numbers)
        own = Record(
            record.name,
            buffers.with_(size=sizes, place=np.where(same.calls.is_temporary, offsets, buffers.place)),
            same.steps(numbers),
            record.inputs.with_(extents=numbers[record.inputs.extents]),
            record.outputs.with_(extents=numbers[record.outputs.extents]),
            arena,
            _with_tables(record.constants, [each.nbytes for each in tables]),
            same.notes,
            record.follows,
            zeroed,
            arenas=arenas,
        )
        wrong = same.soundness.numbers(own)
        if wrong:
            raise ValueError(wrong)
        parts = network.constants, network.evaluate, network.blocks, same.calls, tables
        executor = Executor(own, same.modules, *parts, unbound=Unbound(record, same.order))
        return Sized(executor, decision, self.answers.suits)


class _Limits:
    """The limits of chosen kernels on the extents and strides of their operands, as columns.

    Args:
        network: The network.
        decision: The kernels.
        run: The kinds of steps that are run.

    Raises:
        ValueError: If a kernel has other operands.
    """

    def __init__(self, network: DynamicNetwork, decision: Decision, run: Collection[int]) -> None:
        table, rows = network.dims, []
        pairs_of_kinds = zip(decision.kernels, network.record.rows_of_kinds, strict=True)
        for chosen, own in (each for kind, each in enumerate(pairs_of_kinds) if kind in run):
            for row, operand in zip(own, chosen.kernel.desc.operands, strict=True):
                first, count = int(table.first[row]), len(operand.dims)
                if not int(table.rank[row]) <= count <= network.room[row]:
                    raise ValueError("a kernel was chosen that has other dimensions")
                pairs = table.pairs[first : first + count].tolist()
                rows += [(*pair, d.extent, d.stride, d.min, d.max, d.multiple)
                         for pair, d in zip(pairs, operand.dims, strict=True)]  # fmt: skip
        columns = np.array([*dict.fromkeys(rows)], np.int64).reshape(-1, 7).T
        self._extent, self._stride, extents, strides, self._min, most, self._multiple = columns
        self._has_extent, self._has_stride = (np.flatnonzero(each != FREE) for each in (extents, strides))
        self._extents, self._strides = extents[self._has_extent], strides[self._has_stride]
        self._max = np.where(most == FREE, np.iinfo(np.int64).max, most)

    def keep(self, numbers: Array) -> bool:
        """Return whether all kernels may run on these numbers: the judgement of ``OpDesc.problem`` on each."""
        extents, strides = numbers[self._extent], numbers[self._stride]
        kept = (extents >= self._min) & (extents <= self._max) & (extents % self._multiple == 0)
        same = np.array_equal(extents[self._has_extent], self._extents)
        return same and np.array_equal(strides[self._has_stride], self._strides) and bool(kept.all())


class _SharedState:
    """The state that bindings share that make the same calls.

    Attributes:
        modules: A module of the kernels on each device that has some.
        calls: The calls as they are prepared.
        soundness: What is to be looked at in their numbers.
        notes: Of their records.
        idle: For each buffer whether it is a temporary that only steps touch that are not run.
        order: For each step its number in the record.
    """

    def __init__(self, network: DynamicNetwork, decision: Decision, counts: Sequence[int], numbers: Array) -> None:
        record, symbolic, chosen = network.record, symbolic_of(network.record), decision.kernels
        self.modules = {each.kernel.desc.device: each.kernel.module for each in reversed(chosen)}
        self._of_arguments: Any = slice(None)
        self._times: Array | None = None
        steps = record.steps
        rank = network.dims.rank.copy()
        for each, rows in zip(chosen, record.rows_of_kinds, strict=True):
            rank[rows] = [len(operand.dims) for operand in each.kernel.desc.operands]
        kinds = [
            CallKind(each.kernel.symbol, kind.arguments, kind.dtypes, each.work, kind.writes)
            for each, kind in zip(chosen, steps.kinds, strict=False)
        ]
        kinds += [kind._replace(work=_work_of(number, record, numbers)) for number, kind in
                  enumerate(steps.kinds[len(chosen) :], len(chosen))]  # fmt: skip
        steps = steps.with_(kinds=tuple(kinds), dims=network.dims.with_(rank=rank))
        self.order = np.arange(len(steps))
        self.idle, self._unread = np.zeros(len(record.buffers), np.bool_), np.zeros(0, np.int64)
        if counts:
            order, times = _order(record, counts)
            self.order = order
            self._of_arguments, of_each = steps.arguments_of(order)
            self._times = times[of_each]
            touched, shapes = steps.buffer, steps.shape
            steps = steps.ordered(order, self._of_arguments)
            if 0 in counts:
                self.idle[np.setdiff1d(touched, steps.buffer)] = True
                self.idle &= record.buffers.is_of("temporary")
                for call in steps.hosts:
                    self.idle[[view.buffer for view in (*call.inputs, *call.outputs) if view is not None]] = False
                unread = np.setdiff1d(shapes, steps.shape)
                first, room = network.dims.first[unread].tolist(), np.array(network.room)[unread].tolist()
                self._unread = np.array(
                    [n for at, count in zip(first, room, strict=True) for n in range(at, at + count)]
                )
        self._steps, self._more = steps, symbolic.more[self._of_arguments] if counts else None
        self._hosts = bool(steps.hosts)
        self.notes = {
            **record.notes,
            KERNELS: {each.kernel.symbol: [each.kernel.desc.family, dict(each.kernel.desc.variant)] for each in chosen},
        }
        constants = _with_tables(record.constants, [0] * len(symbolic.tables))
        own = replace(record, steps=steps, constants=constants, notes=self.notes, symbolic=None)
        self.soundness = Soundness(own)
        wrong = self.soundness.structure()
        if wrong:
            raise ValueError(wrong)
        callees = [Callee(each.kernel.function, each.kernel.module, _tasks(each)) for each in chosen]
        callees += [_check(kind, self.modules.get(CPU)) for kind in kinds[len(chosen) :]]
        self.calls = Calls(own, callees, network.constants)

    def steps(self, numbers: Array) -> Steps:
        """Return the steps in a size."""
        steps = self._steps
        pairs, offset = numbers[steps.dims.pairs], numbers[steps.offset]
        if len(self._unread):
            pairs[self._unread] = 1, 0
        if self._times is not None and self._more is not None:
            offset = offset + numbers[self._more] * self._times
        hosts = [host_call(each, numbers) for each in steps.hosts] if self._hosts else steps.hosts
        return steps.with_(offset=offset, dims=steps.dims.with_(pairs=pairs), hosts=hosts)


def _remembered(known: dict[tuple[Any, ...], T], key: tuple[Any, ...], make: Callable[[], T]) -> T:
    """Return the value of a key, made if there is none; of more than ``MOST_BUCKETS`` the one not used longest goes."""
    found = known.pop(key, None)
    known[key] = found = make() if found is None else found
    if len(known) > MOST_BUCKETS:
        known.pop(next(iter(known)))
    return found


@lru_cache(maxsize=2**12)
def _bucket_of(extent: int) -> int:
    """Return the bucket of an extent: kernels and plans for extents of one are about equally good."""
    return extent if extent < EXACT else extent >> (extent.bit_length() - BITS) << EXACT | extent.bit_length()


def _tasks(chosen: ChosenKernel) -> int:
    return host_machine().tasks(chosen.work, chosen.kernel.module.num_threads)


def _check(kind: CallKind, module: Module | None) -> Callee:
    """Return the callee that refuses indices."""
    if module is None:
        raise ValueError("there is no code that refuses indices")
    return Callee(module.kernel(kind.symbol), module, host_machine().tasks(kind.work, module.num_threads))


def _work_of(kind: int, record: Record, numbers: Array) -> int:
    """Return the nanoseconds that a check of indices takes."""
    steps = record.steps
    end = int(steps.ends[(steps.called == kind).argmax()])
    first = steps.dims.first[steps.shape[end - steps.kinds[kind].arguments]]
    return work_of(int(numbers[steps.dims.pairs[first, 0]]))


def _with_tables(constants: Places, nbytes: Sequence[int]) -> Places:
    """Return the places of constants with tables behind them."""
    if not nbytes:
        return constants
    offset = np.append(constants.offset, np.zeros(len(nbytes), np.int64))
    return Places(np.append(constants.nbytes, nbytes), [*constants.digests, *("" for _ in nbytes)], offset)


def _table(table: Table, numbers: Array) -> Array:
    """Return the bytes of a table."""
    made = TABLES[table.name](*[argument(each, numbers) for each in table.arguments])
    return np.ascontiguousarray(made).reshape(-1).view(np.uint8)


def _order(record: Record, counts: Sequence[int]) -> tuple[Array, Array]:
    """Return the steps as they are run, and for each how often it was run before.

    Raises:
        ValueError: If they are more than can be run, or something is run less than never.
    """
    order, times, done = [np.arange(0)], [np.arange(0)], 0
    total = len(record.steps)
    for each, count in zip(symbolic_of(record).repetitions, counts, strict=True):
        length = each.end - each.first
        total += length * (count - 1)
        if count < 0 or total > MOST_STEPS:
            raise ValueError(f"it would run {total} steps, {count} times the same")
        order += [np.arange(done, each.first), np.tile(np.arange(each.first, each.end), count)]
        times += [np.zeros(each.first - done, np.int64), np.repeat(np.arange(count), length)]
        done = each.end
    rest = np.arange(done, len(record.steps))
    return np.concatenate([*order, rest]), np.concatenate([*times, np.zeros_like(rest)])
