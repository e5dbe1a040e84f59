"""Files held as they are while they are worked on, and memory that has digests or pages of its own.

A file that others may write to is mapped while a lease keeps writers waiting, or read.

Reading a large file fills new memory, which costs several times what mapping it does. But a file that is cut while it
is mapped ends the process, and one that is overwritten changes under it. A read lease prevents both: who opens the file
for writing, or cuts it, waits until the lease is given back, at most ``/proc/sys/fs/lease-break-time`` (45 s). Whoever
waited that long is let in; ``is_certain`` tells it. So a file is held for as long as it is worked on, and what is kept
of it for longer is moved into memory of this process first.

A file is replaced by renaming another one, as by most programs, without any waiting.

Memory for a file's future contents has pages of its own; once the file is there, its pages take the place of these. So
whoever has the memory goes on with the same addresses, and shares the file's pages with all processes that map it.

Of memory of which a digest was taken in parts nobody need read a part again for its digest. Nobody may write to it, and
what is known of it ends with it: the same place may be other memory then. Who maps a file again whose bytes are the
same says so by the digests that were known of it (``know_parts``).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from opbuild.config import available_cores
from opbuild.platform.background import parallel_map
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.mapping import MAP_FAILED, Array, address_of_map, read_file
from opbuild.platform.files.shared_pages import new_shared_pages
from opbuild.platform.files.writers import give_back_lease, has_lease, take_lease
from opbuild.platform.finalizers import Finalizer
from opbuild.platform.locks import libc
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple

LEAST = 2**20
"""Bytes from which a file is mapped."""


class HeldFile:
    """The bytes of a file; ``hold_file`` makes it.

    Attributes:
        contents: The bytes, ``uint8``; none when they were taken.
    """

    def __init__(self, contents: Array, mapped: mmap.mmap | None = None, descriptor: int | None = None) -> None:
        self.contents = contents
        self._taken = False
        self._mapped = None if mapped is None else weakref.ref(mapped)
        self._descriptor = descriptor
        if descriptor is not None:  # a map that is still used has a copy of the descriptor, and so the lease
            self._closing = Finalizer(self, partial(os.close, descriptor))

    def take(self) -> Array | None:
        """Return the bytes, ``uint8``, once; None thereafter. They live as long as whoever has them keeps them."""
        if self._taken:
            return None
        contents, self.contents, self._taken = self.contents, np.zeros(0, np.uint8), True
        return contents

    @property
    def descriptor(self) -> int | None:
        """The open file, while there is a lease on it."""
        return self._descriptor

    def mapped(self) -> Array | None:
        """Return the bytes as they are mapped, if somebody has them."""
        mapped = None if self._mapped is None else self._mapped()
        return None if mapped is None else np.frombuffer(mapped, np.uint8)

    def is_certain(self) -> bool:
        """Return whether the bytes are surely those that the file had when it was opened."""
        if self._mapped is None:
            return True
        return self._descriptor is not None and has_lease(self._descriptor)

    def release(self) -> None:
        """Let others write to the file; parts of it that are still used are memory of this process from now on.

        Raises:
            MemoryError: If there is no memory for that; it is not released then.
        """
        self.take()
        mapped = None if self._mapped is None else self._mapped()
        if self._descriptor is not None:
            if mapped is not None:
                if not self.is_certain():
                    forget(np.frombuffer(mapped, np.uint8))
                _replace(mapped)
            give_back_lease(self._descriptor)
            self._descriptor = None
            self._closing.run()


def hold_file(path: Path) -> HeldFile:
    """Return a file's bytes: mapped where it is large, and nobody writes to it or will until it is released, else read.

    Raises:
        OSError: If it cannot be read, or becomes shorter meanwhile.
    """
    return lease_file(path) or HeldFile(read_file(path))


def lease_file(path: Path) -> HeldFile | None:
    """Return a file's bytes, mapped, where ``hold_file`` would map it; None where it would read it.

    Raises:
        OSError: If the file cannot be opened.
    """
    if not path.is_file():  # a pipe's writer would be let in
        return None
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        if os.fstat(descriptor).st_size >= LEAST and take_lease(descriptor):
            return _mapped(descriptor)
    except (OSError, ValueError):  # reading it tells what is wrong, if anything is
        pass
    os.close(descriptor)
    return None


def _mapped(descriptor: int) -> HeldFile:
    mapped = mmap.mmap(descriptor, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    return HeldFile(np.frombuffer(mapped, np.uint8), mapped, descriptor)


def _replace(mapped: mmap.mmap) -> None:
    """Put a copy in the place of a map of a file, for all who have parts of it.

    Writing to private pages would copy them too, but a file that is cut takes those along.

    Raises:
        MemoryError: If there is no memory for it.
    """
    place, nbytes = np.frombuffer(mapped, np.uint8).ctypes.data, len(mapped)
    protection, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    try:
        copy = address_of_map(nbytes, protection, kind)
    except OSError as error:
        raise MemoryError(f"{nbytes} bytes for a copy of a file") from error
    ctypes.memmove(copy, place, nbytes)
    if not remap(copy, nbytes, nbytes, place):
        libc().munmap(ctypes.c_void_p(copy), ctypes.c_size_t(nbytes))
        raise MemoryError(f"a copy of a file of {nbytes} bytes cannot take its place")


LEAST_PAGES = 2**16
"""Bytes below which memory is the allocator's."""

_MAY_MOVE, _FIXED = 1, 2
"""``MREMAP_MAYMOVE`` and ``MREMAP_FIXED``."""

_own: dict[int, weakref.ref[Array]] = {}
"""Memory on pages of its own, by its address."""


def new_pages(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return memory for an array, on pages of its own if it is large; its content is undefined.

    These are shared with other processes where this thread says so; see ``shared_pages``.
    """
    nbytes = prod(shape) * np.dtype(dtype).itemsize
    if nbytes < LEAST_PAGES:
        return np.empty(shape, dtype)
    memory = new_shared_pages(nbytes)
    if memory is None:
        # Not on huge pages: where memory has been in use for a while the system moves other pages about to have some.
        memory = np.frombuffer(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    address = memory.ctypes.data
    _own[address] = Finalizer(memory, partial(_own.pop, address, None))
    array: Array = memory.view(dtype).reshape(shape)
    return array


def has_own_pages(array: Array) -> bool:
    """Return whether an array is all of some memory that ``new_pages`` gave, which nobody else can know."""
    known = _own.get(array.ctypes.data)
    memory = None if known is None else known()
    return memory is not None and memory.nbytes == array.nbytes


def exchange_pages(array: Array, mapped: Array) -> None:
    """Put the pages of a shared map of a file in the place of an array's own, which hold the same; else these stay.

    Any thread may read the array meanwhile.
    """
    # Nothing of a shared map is moved, so the same pages are mapped a second time.
    remap(mapped.ctypes.data, 0, array.nbytes, array.ctypes.data)


def remap(source: int, moved: int, nbytes: int, place: int) -> bool:
    """Put pages in the place of others, at once for all threads; return whether that could be.

    Args:
        source: Address of the pages.
        moved: Bytes that are there no longer; 0: a shared map, which stays where it is too.
        nbytes: Bytes that are replaced.
        place: Address of these.
    """
    mremap = libc().mremap
    mremap.restype = ctypes.c_void_p
    mremap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
    return bool(mremap(source, moved, nbytes, _MAY_MOVE | _FIXED, place) != MAP_FAILED)


_ALONE = 2**16
"""Bytes of a part from which it is worth handing to a thread."""

_THREADS = 2
"""Threads at most that take digests: what is to be loaded for a model is loaded meanwhile."""

Parts = dict[tuple[int, int], str]
"""The digests of parts of memory, by beginning and length."""


class _Known(NamedTuple):
    """Memory of which digests are known."""

    owner: weakref.ref[Array]
    nbytes: int
    parts: Parts


_known: dict[int, _Known] = {}
"""It, by its address."""


def know_parts(contents: Array, parts: Parts) -> None:
    """Know the digests of parts of memory from now on, and keep those that are taken later beside them.

    Args:
        contents: The memory, ``uint8``; who uses a part of it keeps this array alive.
        parts: The digests, which get those that are known of it already.
    """
    start = contents.__array_interface__["data"][0]
    known = _known.get(start)
    if known is not None and known.owner() is contents:
        parts.update(known.parts)
        _known[start] = known._replace(parts=parts)
    elif contents.nbytes:
        _known[start] = _Known(Finalizer(contents, partial(_known.pop, start, None)), contents.nbytes, parts)


def digest_parts(contents: Array, places: Sequence[tuple[int, int]]) -> list[str]:
    """Return the BLAKE3 of parts of memory, and know them from now on.

    Args:
        contents: The memory, ``uint8``; who uses a part of it keeps this array alive.
        places: Beginning and length of each part.
    """
    data = contents.data

    def take(place: tuple[int, int]) -> str:
        begin, size = place
        return blake3_of(data[begin : begin + size])

    large = sorted((place for place in places if place[1] >= _ALONE), key=lambda place: -place[1])
    taken = dict(zip(large, parallel_map(take, large, min(_THREADS, available_cores()), "opbuild-digest"), strict=True))
    digests = [taken.get(place) or take(place) for place in places]
    know_parts(contents, dict(zip(places, digests, strict=True)))
    return digests


def digest_of(array: Array) -> str:
    """Return the BLAKE3 of contiguous ``uint8``, taken now if it is not known."""
    address, nbytes = array.__array_interface__["data"][0], array.nbytes
    for start, known in [*_known.items()]:
        if start <= address and address + nbytes <= start + known.nbytes and known.owner() is not None:
            place = address - start, nbytes
            return known.parts.get(place) or known.parts.setdefault(place, blake3_of(array.data))
    return blake3_of(array.data)


def forget(contents: Array) -> None:
    """Drop the digests of memory that somebody may have written to."""
    known = _known.get(contents.__array_interface__["data"][0])
    if known is not None:
        known.parts.clear()
