"""Record: everything needed to run a built network but its code and its constants' bytes; plain data.

A network that was just built and one that starts from its stored image run from the same record, so both are checked
by the same code: every view lies inside its buffer, every kernel may run on its views.

A record has thousands of buffers and arguments. They are columns of numbers, so that a start reads, checks and makes
ready all of them with a few array operations; objects are made for who asks for single ones: reports, messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, get_args, overload

import numpy as np

from opbuild import dtypes
from opbuild.graph.cut import Cut
from opbuild.graph.types import Array
from opbuild.platform.lazily import lazily
from opbuild.platform.records import NamedTuple, dataclass, field
from opbuild.program import BufferKind, HostCall, Port, View

T = TypeVar("T")

ALIGNMENT = 64
"""Bytes; every buffer begins on a cache line."""
CHECKED_ORDER = "check_flag"
"""The note of a record that lists the kernels to be checked by ``runtime.order_check``."""
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


class Storage(NamedTuple):
    """One buffer of a built network.

    Attributes:
        kind: Whose memory it is, as in ``program.Buffer``.
        dtype: Element type, a numpy name.
        size: Number of elements.
        place: For a temporary its first byte in the arena; for a constant its index in ``Record.constants``; for an
            input or output its index among them.
    """

    kind: BufferKind
    dtype: str
    size: int
    place: int

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
    """Where the bytes of a constant are.

    Attributes:
        nbytes: Size in bytes.
        digest: BLAKE3 of the bytes, for a constant that has a file of its own, shared with other networks; else empty.
        offset: First byte in the image's own file of small constants; 0 with ``digest``.
    """

    nbytes: int
    digest: str
    offset: int


class Kind(NamedTuple):
    """What calls of a kernel have in common whatever they read and write: as ``KernelStep``."""

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

    @lazily
    def rows(self) -> tuple[T, ...]:
        """The elements."""
        return tuple(self._made())

    def _made(self) -> Iterable[T]:
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self.rows[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self.rows)


class Storages(_Rows[Storage]):
    """All buffers of a record.

    Args:
        sorts: The kinds and element types that there are.
        sort: For each buffer the index of its kind and element type.
        size: For each its elements.
        place: For each its place, see ``Storage``.
    """

    def __init__(self, sorts: Sequence[tuple[BufferKind, str]], sort: Array, size: Array, place: Array) -> None:
        _refuse_others(sort, len(sorts))
        self.sorts, self.sort, self.size, self.place = tuple(sorts), sort, size, place
        self.itemsize = np.array([itemsize(dtype) for _, dtype in sorts], np.int64)[sort]

    @staticmethod
    def of(buffers: Iterable[Storage]) -> Storages:
        """Return buffers as columns."""
        sorts: dict[tuple[BufferKind, str], int] = {}
        rows = [(sorts.setdefault((kind, dtype), len(sorts)), size, place) for kind, dtype, size, place in buffers]
        return Storages(tuple(sorts), *np.array(rows, np.int64).reshape(-1, 3).T)

    def is_of(self, *kinds: BufferKind) -> Array:
        """Return for each buffer whether it is of one of some kinds."""
        return np.array([kind in kinds for kind, _ in self.sorts], np.bool_)[self.sort]

    def __len__(self) -> int:
        return len(self.sort)

    def _made(self) -> Iterator[Storage]:
        columns = (self.sort.tolist(), self.size.tolist(), self.place.tolist())
        for sort, size, place in zip(*columns, strict=True):
            kind, dtype = self.sorts[sort]
            yield Storage(kind, dtype, size, place)


class Places(_Rows[Constant]):
    """Where all constants of a record are.

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

    def _made(self) -> Iterable[Constant]:
        return map(Constant, self.nbytes.tolist(), self.digests, self.offset.tolist())


class Pieces(_Rows[Array]):
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

    def _made(self) -> Iterator[Array]:
        for nbytes, digest, offset in self._places:
            yield self._weights[digest] if digest else self._small[offset : offset + nbytes]


def addresses(arrays: Sequence[Array]) -> Array:
    """Return where arrays begin in memory."""
    return arrays.addresses if isinstance(arrays, Pieces) else np.array([each.ctypes.data for each in arrays], np.int64)


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
        kinds: Sequence[Kind],
        kind: Array,
        nodes: Sequence[Sequence[str]],
        hosts: Sequence[HostCall],
        dims: Sequence[Dims],
        buffer: Array,
        offset: Array,
        shape: Array,
    ) -> None:
        self.kinds, self.kind, self.nodes, self.hosts, self.dims = tuple(kinds), kind, nodes, tuple(hosts), tuple(dims)
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
    def of(steps: Iterable[KernelStep | HostCall]) -> Steps:
        """Return calls as columns."""
        kinds: dict[Kind, int] = {}
        dims: dict[Dims, int] = {}
        hosts: list[HostCall] = []
        kind, nodes, views = [], [], []
        for step in steps:
            if isinstance(step, HostCall):
                hosts.append(step)
                kind.append(HOST)
                continue
            own = Kind(step.symbol, len(step.views), step.dtypes, step.work, step.writes)
            kind.append(kinds.setdefault(own, len(kinds)))
            nodes.append(step.nodes)
            views += [(buffer, offset, dims.setdefault(own, len(dims))) for buffer, offset, own in step.views]
        columns = np.array(views, np.int64).reshape(-1, 3).T
        return Steps(tuple(kinds), np.array(kind, np.int64), nodes, hosts, tuple(dims), *columns)

    @lazily
    def step(self) -> Array:
        """For each argument of a kernel the step."""
        return np.repeat(self.kernels, np.diff(self.ends, prepend=0))

    @lazily
    def wrote(self) -> Array:
        """For each argument of a kernel whether it is written."""
        written = [[n >= each.arguments - each.writes for n in range(each.arguments)] for each in self.kinds]
        return self.of_arguments(written).astype(np.bool_)

    def of_arguments(self, values: Sequence[Sequence[Any]]) -> Array:
        """Return for each argument of a kernel one of the values that are given for the arguments of each kind."""
        found: Array = np.array([value for each in values for value in each])[self.slot]
        return found

    def __len__(self) -> int:
        return len(self.kind)

    def _made(self) -> Iterator[KernelStep | HostCall]:
        dims = [self.dims[index] for index in self.shape.tolist()]
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
    """A built network for one input signature.

    Attributes:
        name: The network's name.
        buffers: All buffers.
        steps: Kernel and host calls in execution order.
        inputs: Input ports in order.
        outputs: Output ports in order.
        arena_size: Bytes of the arena that holds the temporaries.
        constants: Where constants are; buffers refer to them by index.
        notes: JSON values for the report.
        cut: What comes after it, if it is a part of a network; None: it is a whole one.
        zeroed: Bytes at the beginning of the arena that hold padding, which must be zero before the first call.
    """

    name: str
    buffers: Storages
    steps: Steps
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    arena_size: int
    constants: Places
    notes: Mapping[str, Any] = field(default_factory=dict)
    cut: Cut | None = None
    zeroed: int = 0
