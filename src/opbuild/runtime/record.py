"""Record: everything needed to run a built network but its code and its constants' bytes; plain data.

A network that was just built and one that starts from its stored image run from the same record, so both are checked
by the same code: every view lies inside its buffer, every kernel may run on its views.

A record has thousands of buffers and arguments. They are columns of numbers, so that a start reads, checks and makes
ready all of them with a few array operations; objects are made for who asks for single ones: reports, messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, TypeVar, get_args, overload

import numpy as np

from opbuild import dtypes
from opbuild.errors import RunError
from opbuild.graph.breaks import GraphBreak
from opbuild.graph.types import Array, TensorType
from opbuild.platform.locks import lazy_property
from opbuild.platform.records import NamedTuple, dataclass, field
from opbuild.program import BufferKind, HostCall, Port, View
from opbuild.target.level import CPU

if TYPE_CHECKING:
    from typing_extensions import Self

    from opbuild.runtime.symbols import Symbolic

T = TypeVar("T")

ALIGNMENT = 64
"""Bytes; every buffer begins on a cache line."""
CHECKED_ORDER = "check_flag"
"""The note of a record that lists the kernels to be checked by ``runtime.devices.cpu.order_check``."""
CHOICES = "choices"
"""The note of a record that has what tuning answered families, and with which arguments, where it was not their own."""
KERNELS = "kernels"
"""The note of a record that has the family and the variant of each kernel, by symbol."""
CHECKS = {True: "opbuild_indices", False: "opbuild_places"}
"""What refuses indices in every network's library, and writes nothing, by whether indices may be negative."""
HOST = -1
"""Stands for a kind where the host backend is called."""
KINDS: tuple[BufferKind, ...] = get_args(BufferKind)
itemsize = cache(dtypes.itemsize)

Dims = tuple[tuple[int, int], ...]
"""Extents and strides of a view, as ``View.dims``."""


class Sort(NamedTuple):
    """The facts that many buffers have in common.

    Attributes:
        kind: Whose memory they are, as in ``program.Buffer``.
        dtype: Element type, a numpy name.
        device: The class of devices that they lie on.
    """

    kind: BufferKind
    dtype: str
    device: str = CPU


class Storage(NamedTuple):
    """One buffer of a built network.

    Attributes:
        kind: Whose memory it is, as in ``program.Buffer``.
        dtype: Element type, a numpy name.
        size: Number of elements.
        place: For a temporary its first byte in the arena of its device; for a constant its index in
            ``Record.constants``; for an input or output its index among them.
        device: The class of devices that it lies on.
    """

    kind: BufferKind
    dtype: str
    size: int
    place: int
    device: str = CPU

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.size * itemsize(self.dtype)


class KernelStep(NamedTuple):
    """One call of a kernel.

    Attributes:
        symbol: The kernel in the network's library.
        views: A view for each argument.
        nodes: Names of the model's nodes that it computes.
        dtypes: Element types of the arguments, where some are not those of their buffers (kernels that only move
            elements take them as unsigned integers); else empty. Only kernels with checks look at them.
        work: Nanoseconds that it takes on one core, roughly.
        writes: How many of the arguments, the last ones, it writes.
    """

    symbol: str
    views: tuple[View, ...]
    nodes: tuple[str, ...]
    dtypes: tuple[str, ...] = ()
    work: int = 0
    writes: int = 1

    def argument_types(self, buffers: Sequence[Storage]) -> tuple[str, ...]:
        """Return the element types of the arguments."""
        return self.dtypes or tuple([buffers[view.buffer].dtype for view in self.views])


class Constant(NamedTuple):
    """The place of the bytes of a constant.

    Attributes:
        nbytes: Size in bytes.
        digest: BLAKE3 of the bytes, for a constant that has a file of its own, shared with other networks; else empty.
        offset: First byte in the image's own file of small constants; 0 with ``digest``.
    """

    nbytes: int
    digest: str
    offset: int


class CallKind(NamedTuple):
    """The part of a kernel's calls that is the same whatever they read and write: as ``KernelStep``."""

    symbol: str
    arguments: int
    dtypes: tuple[str, ...]
    work: int
    writes: int


def _refuse_others(indices: Array, count: int) -> None:
    if indices.size and not 0 <= indices.min() <= indices.max() < count:
        raise ValueError(f"one of {count} is meant by {indices.min()} to {indices.max()}")


class _Rows(Sequence[T]):
    """A sequence whose elements are made when the first is asked for."""

    @lazy_property
    def rows(self) -> tuple[T, ...]:
        """The elements."""
        return tuple(self._rows())

    def _rows(self) -> Iterable[T]:
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self.rows[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self.rows)

    def with_(self, **columns: Any) -> Self:
        """Return the same with other columns, which belong together as these do."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, **columns)
        for name in ("rows", "sizes"):  # which were made of the others
            made.__dict__.pop(name, None)
        return made


class DimsTable(_Rows[Dims]):
    """The extents and strides of views.

    Args:
        rank: How many dimensions each has.
        pairs: Extents and strides of all, one after the other, ``[all dimensions, 2]``.
        first: For each where its own begin among them; default: where those of the one before end. At least one pair
            is each one's own; what it has beyond its rank is of one element.
    """

    def __init__(self, rank: Array, pairs: Array, first: Array | None = None) -> None:
        self.rank, self.pairs = rank, pairs
        self.first = np.cumsum(rank) - rank if first is None else first

    @staticmethod
    def of(rows: Iterable[Dims], room: Sequence[int] = (), one: tuple[int, int] = (1, 0)) -> DimsTable:
        """Return extents and strides as columns.

        Args:
            rows: The extents and strides of each view.
            room: For each how many pairs are its own at least.
            one: Extent and stride of a dimension of one element.

        Raises:
            ValueError: If they are none; or ``TypeError``.
        """
        rows = [*rows]
        rank = np.array([*map(len, rows)], np.int64)
        rooms = np.maximum(rank, [*room] or 1)
        filled = (chain(row, repeat(one, more)) for row, more in zip(rows, (rooms - rank).tolist(), strict=True))
        pairs = [*chain.from_iterable(filled)]
        if set(map(len, pairs)) - {2}:
            raise ValueError("a dimension is no extent and stride")
        return DimsTable(rank, np.array(pairs, np.int64).reshape(-1, 2), np.cumsum(rooms) - rooms)

    def followed_by(self, other: DimsTable) -> DimsTable:
        """Return these and others."""
        first = np.append(self.first, other.first + len(self.pairs))
        return DimsTable(np.append(self.rank, other.rank), np.append(self.pairs, other.pairs, 0), first)

    def __len__(self) -> int:
        return len(self.rank)

    def _rows(self) -> Iterator[Dims]:
        pairs = [*map(tuple, self.pairs.tolist())]
        for first, rank in zip(self.first.tolist(), self.rank.tolist(), strict=True):
            yield tuple(pairs[first : first + rank])


class Ports(_Rows[Port]):
    """The inputs or outputs of a record.

    Args:
        names: Their names.
        dtypes: Their element types.
        buffer: For each its buffer.
        rank: For each how many dimensions it has.
        extents: The extents of all, one after the other.
    """

    def __init__(self, names: Sequence[str], dtypes: Sequence[str], buffer: Array, rank: Array, extents: Array) -> None:
        self.names, self.dtypes, self.buffer, self.rank, self.extents = names, dtypes, buffer, rank, extents

    @staticmethod
    def of(ports: Iterable[Port]) -> Ports:
        """Return inputs or outputs as columns."""
        rows = [*ports]
        return Ports(
            [each.name for each in rows],
            [each.type.dtype for each in rows],
            np.array([each.buffer for each in rows], np.int64),
            np.array([len(each.type.shape) for each in rows], np.int64),
            np.array([extent for each in rows for extent in each.type.shape], np.int64),
        )

    @lazy_property
    def sizes(self) -> Array:
        """For each how many elements it has, as floating-point numbers: no product of extents leaves those."""
        return self._products(self.extents)

    @property
    def bounds(self) -> Array:
        """The same, an extent of 0 counted as 1."""
        return self._products(np.maximum(self.extents, 1)) if 0 in self.extents else self.sizes

    def _products(self, extents: Array) -> Array:
        padded = np.append(extents, 1).astype(np.float64)
        starts = np.cumsum(self.rank) - self.rank
        return np.where(self.rank > 0, np.multiply.reduceat(padded, starts), 1.0) if len(self.rank) else padded[:0]

    def __len__(self) -> int:
        return len(self.names)

    def _rows(self) -> Iterator[Port]:
        extents, end = self.extents.tolist(), 0
        columns = (self.names, self.dtypes, self.buffer.tolist(), self.rank.tolist())
        for name, dtype, buffer, rank in zip(*columns, strict=True):
            start, end = end, end + rank
            yield Port(name, TensorType(dtype, tuple(extents[start:end])), buffer)


class Storages(_Rows[Storage]):
    """All buffers of a record.

    Args:
        sorts: The kinds, element types and devices that there are.
        sort: For each buffer the index of its own.
        size: For each its elements.
        place: For each its place, see ``Storage``.
    """

    def __init__(self, sorts: Sequence[Sort], sort: Array, size: Array, place: Array) -> None:
        _refuse_others(sort, len(sorts))
        self.sorts, self.sort, self.size, self.place = tuple(sorts), sort, size, place
        self.itemsize = np.array([itemsize(each.dtype) for each in sorts], np.int64)[sort]

    @staticmethod
    def of(buffers: Iterable[Storage]) -> Storages:
        """Return buffers as columns."""
        sorts: dict[Sort, int] = {}
        rows = [(sorts.setdefault(Sort(kind, dtype, device), len(sorts)), size, place)
                for kind, dtype, size, place, device in buffers]  # fmt: skip
        return Storages(tuple(sorts), *np.array(rows, np.int64).reshape(-1, 3).T)

    def is_of(self, *kinds: BufferKind) -> Array:
        """Return for each buffer whether it is of one of some kinds."""
        return np.array([each.kind in kinds for each in self.sorts], np.bool_)[self.sort]

    @lazy_property
    def all_devices(self) -> tuple[str, ...]:
        """The classes of devices that they lie on, the CPU first."""
        return tuple(dict.fromkeys([CPU, *(each.device for each in self.sorts)]))

    @property
    def devices(self) -> tuple[str, ...]:
        """Those other than the CPU."""
        return self.all_devices[1:]

    @lazy_property
    def device(self) -> Array:
        """For each the index of its class of devices."""
        return np.array([self.all_devices.index(each.device) for each in self.sorts], np.int64)[self.sort]

    def __len__(self) -> int:
        return len(self.sort)

    def _rows(self) -> Iterator[Storage]:
        columns = (self.sort.tolist(), self.size.tolist(), self.place.tolist())
        for sort, size, place in zip(*columns, strict=True):
            kind, dtype, device = self.sorts[sort]
            yield Storage(kind, dtype, size, place, device)


class Places(_Rows[Constant]):
    """The places of all constants of a record.

    Args:
        nbytes: For each its bytes.
        digests: For each its digest, see ``Constant``.
        offset: For each its first byte, see ``Constant``.
    """

    def __init__(self, nbytes: Array, digests: Sequence[str], offset: Array) -> None:
        self.nbytes, self.digests, self.offset = nbytes, digests, offset

    @staticmethod
    def of(constants: Iterable[Constant]) -> Places:
        """Return places as columns."""
        rows = [*constants]
        nbytes, offset = (np.array([each[at] for each in rows], np.int64) for at in (0, 2))
        return Places(nbytes, [each.digest for each in rows], offset)

    @property
    def weights(self) -> dict[str, int]:
        """The bytes of those that have files of their own, by digest."""
        return {digest: size for digest, size in zip(self.digests, self.nbytes.tolist(), strict=True) if digest}

    def __len__(self) -> int:
        return len(self.digests)

    def _rows(self) -> Iterable[Constant]:
        return map(Constant, self.nbytes.tolist(), self.digests, self.offset.tolist())


class ConstantPieces(_Rows[Array]):
    """The bytes of constants.

    Args:
        places: Where they are.
        small: The bytes of those that are no weights.
        weights: The others, by digest.

    Attributes:
        addresses: Where each begins in memory.

    Raises:
        OSError: If some are not there.
    """

    def __init__(self, places: Places, small: Array, weights: Mapping[str, Array]) -> None:
        nbytes, offset = places.nbytes, places.offset
        self._places, self._small, self._weights = places, small, weights
        large = [index for index, digest in enumerate(places.digests) if digest]
        own = [weights.get(places.digests[index], small[:0]) for index in large]
        room = small.nbytes - offset
        room[large] = [array.nbytes for array in own]
        wrong = (offset < 0) | (offset > small.nbytes) | (offset % ALIGNMENT != 0) | (nbytes < 0) | (nbytes > room)
        wrong[large] |= room[large] != nbytes[large]
        if wrong.any():
            first = int(wrong.argmax())
            raise OSError(f"a constant of {nbytes[first]} bytes lies at {offset[first]} of {small.nbytes}")
        self.addresses = small.ctypes.data + offset
        self.addresses[large] = [array.ctypes.data for array in own]

    def __len__(self) -> int:
        return len(self._places)

    def _rows(self) -> Iterator[Array]:
        for nbytes, digest, offset in self._places:
            yield self._weights[digest] if digest else self._small[offset : offset + nbytes]


def addresses(arrays: Sequence[Array]) -> Array:
    """Return the addresses of arrays."""
    return (
        arrays.addresses
        if isinstance(arrays, ConstantPieces)
        else np.array([each.ctypes.data for each in arrays], np.int64)
    )


def window(arrays: Sequence[Array | None], view: View, size: int) -> Array:
    """Return the elements of a dense view, flat."""
    array = arrays[view.buffer]
    if array is None:
        raise RunError("an array of the caller is missing", "this is an error in opbuild; please report it")
    return array.reshape(-1)[view.offset : view.offset + size]


class Steps(_Rows["KernelStep | HostCall"]):
    """All calls of a record in execution order.

    Args:
        kinds: The kinds of calls of kernels that there are.
        kind: For each step the index of its kind; ``HOST`` for a call of the host backend.
        nodes: For each call of a kernel the names of the nodes that it computes.
        hosts: The calls of the host backend.
        dims: The extents and strides that there are.
        buffer: For each argument of a kernel its view's buffer.
        offset: For each its view's first element.
        shape: For each the index of its view's extents and strides.

    Attributes:
        kernels: The steps that call kernels.
        called: For each call of a kernel the index of its kind.
        ends: For each where its arguments end among all; those of the next begin there.
        slot: For each argument its place among the arguments of all kinds, one after the other.

    Raises:
        ValueError: If the columns do not belong together.
    """

    def __init__(
        self,
        kinds: Sequence[CallKind],
        kind: Array,
        nodes: Sequence[Sequence[str]],
        hosts: Sequence[HostCall],
        dims: DimsTable,
        buffer: Array,
        offset: Array,
        shape: Array,
    ) -> None:
        self.kinds, self.kind, self.nodes, self.hosts, self.dims = tuple(kinds), kind, nodes, tuple(hosts), dims
        self.buffer, self.offset, self.shape = buffer, offset, shape
        is_kernel = kind != HOST
        self.kernels, self.called = np.flatnonzero(is_kernel), kind[is_kernel]
        _refuse_others(self.called, len(kinds))
        _refuse_others(shape, len(dims))
        if any(each.arguments > len(buffer) for each in kinds):
            raise ValueError(f"a kernel has more than all {len(buffer)} arguments")
        arguments = np.array([each.arguments for each in kinds], np.int64)
        counts = arguments[self.called]
        self.ends = counts.cumsum()
        lengths = (len(kind) - len(nodes), int(counts.sum()))
        if lengths != (len(hosts), len(buffer)) or not len(buffer) == len(offset) == len(shape):
            raise ValueError(f"{len(kind)} steps of {lengths[1]} arguments are not those of their columns")
        before = (arguments.cumsum() - arguments)[self.called] - (self.ends - counts)
        self.slot = np.arange(len(buffer)) + np.repeat(before, counts)

    @staticmethod
    def of(steps: Iterable[KernelStep | HostCall], known: Iterable[CallKind] = ()) -> Steps:
        """Return calls as columns.

        Args:
            steps: The calls.
            known: Kinds that come first; if there are any, calls of different kinds share no extents and strides.
        """
        kinds = {kind: number for number, kind in enumerate(known)}
        apart = bool(kinds)
        dims: dict[tuple[int, Dims], int] = {}
        hosts: list[HostCall] = []
        kind, nodes, views = [], [], []
        for step in steps:
            if isinstance(step, HostCall):
                hosts.append(step)
                kind.append(HOST)
                continue
            own = CallKind(step.symbol, len(step.views), step.dtypes, step.work, step.writes)
            kind.append(kinds.setdefault(own, len(kinds)))
            nodes.append(step.nodes)
            part = kind[-1] if apart else HOST
            views += [(buffer, offset, dims.setdefault((part, own), len(dims))) for buffer, offset, own in step.views]
        columns = np.array(views, np.int64).reshape(-1, 3).T
        table = DimsTable.of(own for _, own in dims)
        return Steps(tuple(kinds), np.array(kind, np.int64), nodes, hosts, table, *columns)

    @lazy_property
    def step(self) -> Array:
        """For each argument of a kernel the step."""
        return np.repeat(self.kernels, np.diff(self.ends, prepend=0))

    @lazy_property
    def wrote(self) -> Array:
        """For each argument of a kernel whether it is written."""
        written = [[n >= each.arguments - each.writes for n in range(each.arguments)] for each in self.kinds]
        return self.of_arguments(written).astype(np.bool_)

    def arguments_of(self, order: Array) -> tuple[Array, Array]:
        """Return the arguments of steps in an order, and for each which of the order it belongs to."""
        counts = np.zeros(len(self.kind), np.int64)
        counts[self.kernels] = np.diff(self.ends, prepend=0)
        first = np.cumsum(counts) - counts
        own = counts[order]
        step = np.repeat(np.arange(len(order)), own)
        return np.arange(len(step)) - (np.cumsum(own) - own)[step] + first[order][step], step

    def ordered(self, order: Array, arguments: Array) -> Steps:
        """Return steps in an order, of which those of the host are each there once, with their arguments."""
        kernel, kinds = np.cumsum(self.kind != HOST) - 1, self.kind[order]
        nodes = [self.nodes[index] for index in kernel[order[kinds != HOST]].tolist()]
        columns = (self.buffer[arguments], self.offset[arguments], self.shape[arguments])
        return Steps(self.kinds, kinds, nodes, self.hosts, self.dims, *columns)

    def of_arguments(self, values: Sequence[Sequence[Any]]) -> Array:
        """Return for each argument of a kernel one of the values that are given for the arguments of each kind."""
        found: Array = np.array([value for each in values for value in each])[self.slot]
        return found

    def __len__(self) -> int:
        return len(self.kind)

    def _rows(self) -> Iterator[KernelStep | HostCall]:
        table = self.dims.rows
        dims = [table[index] for index in self.shape.tolist()]
        views = [*map(View, self.buffer.tolist(), self.offset.tolist(), dims)]
        hosts, kernels, start = iter(self.hosts), zip(self.ends.tolist(), self.nodes, strict=True), 0
        for kind in self.kind.tolist():
            if kind == HOST:
                yield next(hosts)
                continue
            symbol, _, dtypes_, work, writes = self.kinds[kind]
            end, nodes = next(kernels)
            yield KernelStep(symbol, tuple(views[start:end]), tuple(map(str, nodes)), dtypes_, work, writes)
            start = end


@dataclass(frozen=True, eq=False)
class Record:
    """A built network for one input signature, or for several: then its numbers are places of numbers.

    What is written so in a record for several: sizes of buffers, offsets, extents and strides of views, extents of
    inputs, outputs and what the host evaluates. Its temporaries have no place yet, and its first kinds stand for
    kernels that are not chosen yet (``Symbolic.decided``).

    Attributes:
        name: The network's name.
        buffers: All buffers.
        steps: Kernel and host calls in execution order.
        inputs: Input ports in order.
        outputs: Output ports in order.
        arena_size: Bytes of the arena that holds the temporaries.
        constants: Where constants are; buffers refer to them by index.
        notes: JSON values for the report.
        follows: The graph break behind it, if it is a segment of a network; None: it is a whole one.
        zeroed: Bytes at the beginning of the arena that hold padding, which must be zero before the first call.
        arenas: ``arena_size`` and ``zeroed`` of each device other than the CPU that has temporaries.
        symbolic: What it has besides if it is for several signatures.
    """

    name: str
    buffers: Storages
    steps: Steps
    inputs: Ports
    outputs: Ports
    arena_size: int
    constants: Places
    notes: Mapping[str, Any] = field(default_factory=dict)
    follows: GraphBreak | None = None
    zeroed: int = 0
    symbolic: Symbolic | None = None
    arenas: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def devices_of_kinds(self) -> list[str]:
        """For each kind of calls of kernels the class of devices that its operands lie on."""
        steps, buffers = self.steps, self.buffers
        if not buffers.devices:
            return [CPU] * len(steps.kinds)
        found = [CPU] * len(steps.kinds)
        for kind, buffer in zip(steps.called.tolist(), steps.buffer[steps.ends - 1].tolist(), strict=True):
            found[kind] = buffers.all_devices[buffers.device[buffer]]
        return found

    @lazy_property
    def given(self) -> tuple[list[int], Array]:
        """The ranks of what decides a size, shapes of inputs and other values, and the places of their numbers."""
        values = self.symbolic.values if self.symbolic is not None else ()
        places = np.append(self.inputs.extents, np.array([*chain(*values)], np.int64))
        return [*self.inputs.rank.tolist(), *map(len, values)], places

    @lazy_property
    def rows_of_kinds(self) -> list[list[int]]:
        """For each kind that is decided the rows of extents and strides of its operands; none if it is not called."""
        steps, found = self.steps, [list[int]() for _ in self.steps.kinds]
        ends = steps.ends.tolist()
        for call, kind in enumerate(steps.called.tolist()):
            if not found[kind]:
                found[kind] = steps.shape[ends[call] - steps.kinds[kind].arguments : ends[call]].tolist()
        return found[: len(self.symbolic.decided)] if self.symbolic is not None else found

    def declared(self, ports: Ports) -> Ports:
        """Return inputs or outputs as readers are told: -1 for an extent that differs from signature to signature."""
        if self.symbolic is None:
            return ports
        known = self.symbolic.formulas.known
        return ports.with_(extents=np.array([known(place) for place in ports.extents.tolist()], np.int64))
