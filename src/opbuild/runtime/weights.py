"""The constants of a program, packed as kernels read them: large ones as weights that networks share.

Constants below ``SMALL`` travel in the image of their network instead, one file for all of them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from opbuild.config import available_cores
from opbuild.dtypes import itemsize, numpy_dtype
from opbuild.errors import BuildError
from opbuild.events import Watch, unwatched
from opbuild.graph.extents import example_value
from opbuild.graph.types import Array
from opbuild.kernel.networks import Weight
from opbuild.kernel.reason import Reason
from opbuild.platform.background import parallel_map
from opbuild.platform.digest import blake3_in_this_thread, blake3_of
from opbuild.platform.files.held import digest_of, exchange_pages, has_own_pages, new_pages
from opbuild.platform.files.mapping import anonymous
from opbuild.platform.files.shared_pages import end_sharing, new_shared_pages, sharing_new_pages
from opbuild.platform.limits import has_room
from opbuild.platform.records import NamedTuple
from opbuild.program import Buffer, Program
from opbuild.runtime.devices.cpu.library import keep_freed_memory
from opbuild.runtime.record import ALIGNMENT, Constant
from opbuild.runtime.sharing import Sharing
from opbuild.text.canonical import canonical_json
from opbuild.text.plural import counted

if TYPE_CHECKING:
    from opbuild.kernel.interfaces import WeightStore

SMALL = 64 * 1024
"""Bytes below which a constant has no file of its own."""

_THREADS = 8
"""Threads at most that pack: beyond that memory and the file system are what they wait for."""

_PAUSE = 0.001
"""Seconds until it is looked again whether another process has packed something."""

LEAST_WAITING, MOST_WAITING = 2**22, 2**30
"""Bytes of weights for whose storing no thread is started, and those that wait for it at most: so long they are memory
of this process, and the program's end waits for them."""


class Packer:
    """Packs the constants of programs, each once; those packed before are taken from a store of weights.

    What has pages of its own is not stored at once: it is named by its source until one of ``tasks`` has stored it, or
    ``finish`` all. So is what another process has packed. Threads may share it.

    Args:
        store: Keeps large constants; None: they stay in memory.
        salt: What else decides how sources are packed: a digest of opbuild's own code that does.
        reuse: Whether the store is asked for what was packed before.
        copies: Whether networks get copies of the bytes instead of mappings.
        sharing: The part in what several processes pack just now; None: this one packs all.

    Attributes:
        problem: Why something could not be stored, or empty; then the network has no stored image.
        states: For each digest what the store said of it, to be remembered with the image.
        packed: Number of constants that had to be packed.
    """

    def __init__(
        self,
        store: WeightStore | None = None,
        salt: str = "",
        *,
        reuse: bool = True,
        copies: bool = False,
        sharing: Sharing | None = None,
    ) -> None:
        self._store, self._salt, self._reuse, self._copies = store, salt, reuse, copies
        self._sharing = sharing or Sharing()
        self._known: dict[str, Weight] = {}  # by reference, as all that follows
        self._unwritten: dict[str, Weight] = {}
        self._waiting: dict[str, Array] = {}
        self._waiting_bytes = 0
        self._shared: dict[str, Array] = {}
        self._unshared = deque[str]()
        self._digests: dict[str, str] = {}
        self._counting = threading.Lock()
        self.problem = ""
        self.states: dict[str, Any] = {}
        self.packed = 0

    def reference(self, source: Hashable) -> str:
        """Return the name of a source, and of what it packs to until that is stored."""
        return blake3_of(canonical_json([self._salt, source]).encode())

    def begin(self, reference: str) -> bool:
        """Return whether this process is to find or pack a source; else another one packs it just now."""
        return self._sharing.begin(reference)

    def find(self, reference: str, nbytes: int) -> Weight | None:
        """Return the packed weight of a source that was packed before, or None."""
        known = self._known.get(reference)
        if known is not None and known.array.nbytes == nbytes:
            return known
        return self._taken(reference, nbytes) or self._found(reference, nbytes)

    def is_due(self, reference: str, nbytes: int) -> bool:
        """Return whether this process is to pack a source that another has begun, or had."""
        return self._sharing.is_due(reference, nbytes) or self._sharing.begin(reference)

    def packing(self, reference: str | None) -> AbstractContextManager[None]:
        """Return the context in which a source is packed: into pages that others may map, where there are any."""
        return sharing_new_pages(reference if reference is not None and self._sharing.gives else "")

    def _taken(self, reference: str, nbytes: int) -> Weight | None:
        """Return the packed weight of a source as another process has it in memory, or None."""
        array = self._sharing.take(reference, nbytes)
        if array is None:
            return None
        with self._counting:
            self._waiting_bytes += nbytes
        weight = self._known[reference] = Weight(reference, array)
        self._waiting[reference] = array
        return weight

    def _found(self, reference: str, nbytes: int) -> Weight | None:
        """Return the packed weight of a source as it is stored, perhaps by another process just now, or None."""
        if self._store is None or not self._reuse:
            return None
        found = self._store.find(reference, nbytes)
        if isinstance(found, Reason):
            return None
        self._sharing.end(reference)
        self.states[found.digest] = found.state
        return found

    def count(self, nbytes: int, seconds: float) -> None:
        """Count a constant that had to be packed, and the time that it took."""
        self._sharing.packed(nbytes, seconds)
        with self._counting:
            self.packed += 1

    def put(self, array: Array, reference: str | None) -> Weight:
        """Store packed bytes, now or later; return them as they are stored, or as they are if they are not."""
        if reference is not None and self._waits(array):
            weight = self._known[reference] = Weight(reference, array)
            self._waiting[reference] = array
            if self._sharing.offer(reference, array):
                self._shared[reference] = array
            else:
                self._unshared.append(reference)
            return weight
        if self._copies:
            array = array.copy()  # it may be the mapping of a model's data
        weight = Weight(digest_of(array), array)  # known, if it is a tensor as the model has it
        stored = self._stored(weight)
        if stored is not None and reference is not None:
            self._known[reference] = self._unwritten[reference] = stored
        return stored or weight

    def give(self) -> None:
        """Let others map what was packed before any was met, as long as as much comes from them."""
        while self._unshared and self._sharing.gives and self._sharing.owes:
            with contextlib.suppress(IndexError):  # another thread has just taken it
                reference = self._unshared.popleft()
                array = self._waiting.get(reference)
                pages = None if array is None else new_shared_pages(array.nbytes, reference)
                if array is not None and pages is not None:
                    pages[:] = array
                    exchange_pages(array, pages)
                    self._shared[reference] = pages
                    self._sharing.offer(reference, pages, is_copy=True)

    @property
    def is_worth_waiting(self) -> bool:
        """Whether as much waits to be stored, or did, that it should be in the background of the program."""
        return self._waiting_bytes >= LEAST_WAITING

    def tasks(self) -> list[Callable[[], object]]:
        """Return the tasks that store the waiting weights, in parallel or in order; a failure is noted.

        What others have said that they pack comes last, and backwards: they store it from its front.
        """
        own = [each for each in self._waiting if self._sharing.is_own(each)]
        others = [each for each in self._waiting if not self._sharing.is_own(each)]
        return [partial(self._store_waiting, each) for each in (*own, *reversed(others))]

    def finish(self) -> None:
        """Store the weights that still wait."""
        for task in self.tasks():
            task()

    def named(self, places: Iterable[Constant]) -> tuple[Constant, ...]:
        """Return the places of constants as they are stored: by their digests."""
        return tuple(each._replace(digest=self._digests.get(each.digest, each.digest)) for each in places)

    def _waits(self, array: Array) -> bool:
        """Return whether packed bytes are to be stored later, and count them then."""
        if self._store is None or not has_own_pages(array) or not has_room():
            return False
        with self._counting:
            waits = self._waiting_bytes + array.nbytes <= MOST_WAITING
            self._waiting_bytes += array.nbytes * waits
        return waits

    def _store_waiting(self, reference: str) -> None:
        """Store weights for who believes their source, unless another process has."""
        array = self._waiting.pop(reference, None)
        if array is None:
            return
        try:
            found = self._found(reference, array.nbytes)
            stored = found or self._stored(Weight(blake3_in_this_thread(array.data), array))
        except Exception as error:  # nobody is there to whom it could be raised
            self.problem = self.problem or f"packed weights cannot be stored: {type(error).__name__}: {error}"
            return
        if stored is not None:
            self._digests[reference] = stored.digest
            if stored.array is not array and not self._copies:
                exchange_pages(array, stored.array)
                self._known[reference] = stored
            if found is None:
                self._remember(reference, stored)
            if (pages := self._shared.pop(reference, None)) is not None:
                end_sharing(pages)  # others find it in the store

    def _stored(self, weight: Weight) -> Weight | None:
        """Store weights; return them as they are stored, None if they cannot be."""
        if self._store is None:
            return weight
        stored = self._store.put(weight.digest, weight.array)
        if isinstance(stored, Reason):
            self.problem = self.problem or f"packed weights cannot be stored: {stored.text}"
            return None
        self.states[stored.digest] = stored.state
        return stored

    def remember(self) -> None:
        """Write down which bytes the sources pack to that were packed since.

        To be called once it is certain that no source changed between its digest and its packing: what is written here
        is believed by every network that has such a source.
        """
        while self._unwritten:
            with contextlib.suppress(KeyError):  # another thread has just taken it
                self._remember(*self._unwritten.popitem())

    def close(self) -> None:
        """Leave the rest to others: nothing more will be stored."""
        self._sharing.close()
        while self._shared:
            end_sharing(self._shared.popitem()[1])

    def _remember(self, reference: str, weight: Weight) -> None:
        problem = self._store.remember(reference, weight) if self._store is not None else None
        if problem and not self.problem:
            self.problem = f"packed weights cannot be stored: {problem}"
        self._sharing.end(reference)


class PackedConstants(NamedTuple):
    """The constants of a program, packed.

    Attributes:
        positions: For each constant buffer its index in ``places``.
        places: Where their bytes are, as the record says it.
        arrays: Their bytes, ``uint8``.
        small: The bytes of all that have no file of their own.
    """

    positions: dict[int, int]
    places: tuple[Constant, ...]
    arrays: tuple[Array, ...]
    small: Array


def pack_constants(program: Program, packer: Packer, watch: Watch = unwatched) -> PackedConstants:
    """Pack the constants of a program; equal ones once, those packed before not again.

    Args:
        program: The program.
        packer: Packs them.
        watch: Told how many of the bytes are packed.

    Raises:
        BuildError: If packing gives something else than the buffer that it is for.
    """
    keep_freed_memory()
    constants = ((number, each) for number, each in enumerate(program.buffers) if each.kind == "constant")
    buffers = {number: each for number, each in constants if each.table is None}
    threads = min(_THREADS, available_cores())
    sources = parallel_map(_source, list(buffers.values()), threads, "opbuild-pack")
    identities = [
        ("buffer", number) if source is None else ("source", source)
        for number, source in zip(buffers, sources, strict=True)
    ]
    different = list(dict.fromkeys(identities))
    index = {identity: position for position, identity in enumerate(different)}
    positions = {number: index[identity] for number, identity in zip(buffers, identities, strict=True)}
    tasks = {positions[number]: (buffers[number], source) for number, source in zip(buffers, sources, strict=True)}
    packing = _Packing(
        [
            _Task(buffer, _nbytes(buffer), _reference(buffer, source, packer))
            for _, (buffer, source) in sorted(tasks.items())
        ],
        packer,
        watch,
    )
    # digest (empty: a small one) and bytes
    found = packing.done_by(threads)
    offsets, end = [], 0
    for digest, array in found:
        offsets.append(0 if digest else end)
        end += 0 if digest else -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    small = anonymous(end)
    places = tuple(
        Constant(array.nbytes, digest, offset) for (digest, array), offset in zip(found, offsets, strict=True)
    )
    arrays = [array for _, array in found]
    for position, place in enumerate(places):
        if not place.digest:
            target = small[place.offset : place.offset + place.nbytes]
            target[:] = arrays[position]
            arrays[position] = target
    return PackedConstants(positions, places, tuple(arrays), small)


class _Task(NamedTuple):
    """A constant to be packed; one that has no file of its own, or no source, has no reference."""

    buffer: Buffer
    nbytes: int
    reference: str | None


class _Packing:
    """The packing of some constants in threads, beside other processes that may pack the same."""

    def __init__(self, tasks: Sequence[_Task], packer: Packer, watch: Watch) -> None:
        self._tasks, self._packer = tasks, packer
        self._progress = _Progress(watch, sum(each.nbytes for each in tasks))
        self._done: dict[int, tuple[str, Array]] = {}
        self._others = deque[int]()

    def done_by(self, threads: int) -> list[tuple[str, Array]]:
        """Return digest and bytes of each.

        Large ones come first: what is waited for at the end, because another process has begun it, is small.
        """
        order = sorted(range(len(self._tasks)), key=lambda number: -self._tasks[number].nbytes)
        parallel_map(self._begin, order, threads, "opbuild-pack")
        parallel_map(self._wait_for, list(self._others), threads, "opbuild-pack")
        return [self._done[number] for number in range(len(self._tasks))]

    def _begin(self, number: int) -> None:
        """Pack a constant, unless another process has begun it; then give and take."""
        reference = self._tasks[number].reference
        if reference is None or self._packer.begin(reference):
            self._pack(number)
        else:
            self._others.append(number)
        self._packer.give()
        with contextlib.suppress(IndexError):  # nothing is left of others
            other = self._others.popleft()
            if not self._take(other):
                self._others.append(other)

    def _take(self, number: int) -> bool:
        """Take a constant from another process; return whether it is there."""
        task = self._tasks[number]
        found = None if task.reference is None else self._packer.find(task.reference, task.nbytes)
        if found is not None:
            self._end(number, (found.digest, found.array))
        return found is not None

    def _wait_for(self, number: int) -> None:
        """Take a constant from another process, or pack it once that should have done so."""
        task = self._tasks[number]
        while not self._take(number):
            if task.reference is None or self._packer.is_due(task.reference, task.nbytes):
                self._pack(number)
                return
            self._packer.give()
            time.sleep(_PAUSE)

    def _pack(self, number: int) -> None:
        self._end(number, _packed(self._tasks[number], self._packer))

    def _end(self, number: int, done: tuple[str, Array]) -> None:
        self._done[number] = done
        self._progress.add(self._tasks[number].nbytes)


class _Progress:
    """Tells a watch of the bytes that threads have packed, each number once and in order."""

    def __init__(self, watch: Watch, total: int) -> None:
        self._watch, self._total, self._done = watch, total, 0
        self._lock = threading.Lock()

    def add(self, nbytes: int) -> None:
        with self._lock:
            self._done += nbytes
            self._watch(self._done, self._total)


def _source(buffer: Buffer) -> Hashable | None:
    return None if buffer.source is None else buffer.source()


def _nbytes(buffer: Buffer) -> int:
    return example_value(buffer.size) * itemsize(buffer.dtype)


def _reference(buffer: Buffer, source: Hashable | None, packer: Packer) -> str | None:
    return None if source is None or _nbytes(buffer) < SMALL else packer.reference(source)


def _contiguous(array: Array) -> Array:
    if array.flags.c_contiguous:
        return array
    pages = new_pages(array.shape, array.dtype)
    pages[...] = array
    return pages


def _packed(task: _Task, packer: Packer) -> tuple[str, Array]:
    if task.reference is not None:
        found = packer.find(task.reference, task.nbytes)
        if found is not None:
            return found.digest, found.array
    buffer, begun = task.buffer, time.perf_counter()
    if buffer.pack is None:
        raise BuildError("a constant has no contents", "this is an error in opbuild; please report it")
    with packer.packing(task.reference):
        array = _contiguous(buffer.pack())
    if array.size != example_value(buffer.size) or array.dtype != numpy_dtype(buffer.dtype):
        raise BuildError(
            f"a constant of {counted(example_value(buffer.size), 'element')} of {buffer.dtype} was packed "
            f"to {array.size} of {array.dtype}",
            "this is an error in opbuild; please report it",
        )
    data = array.reshape(-1).view(np.uint8)
    weight = Weight("", data) if task.nbytes < SMALL else packer.put(data, task.reference)
    packer.count(task.nbytes, time.perf_counter() - begun)
    return weight.digest, weight.array
