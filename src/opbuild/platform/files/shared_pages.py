"""Memory that other processes of its user may map: files without a path (``memfd_create``), found by descriptors.

``/proc/<process>/fd/<descriptor>`` opens one for who may look into that process: another of the same user that sees it.
Pages are there until no descriptor is open and nobody maps them, so a process that is killed leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from opbuild.platform.files.mapping import Array, map_pages
from opbuild.platform.finalizers import Finalizer
from opbuild.platform.locks import local

PREFIX = "opbuild-pages-"
"""The beginning of such a file's name."""

_PART = 4
"""The part of the descriptors that a process may have that shared memory takes at most: one for each piece."""

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
"""Who maps it cannot be ended by a cut."""

_open: dict[int, tuple[int, Finalizer]] = {}
"""The descriptors of shared memory, and what closes them, by its address."""

_current = local()
_current.name = ""


@contextmanager
def sharing_new_pages(name: str) -> Iterator[None]:
    """Have the pages that ``held.new_pages`` gives this thread shared under a name; empty: they are its own."""
    before = getattr(_current, "name", "")
    _current.name = name
    try:
        yield
    finally:
        _current.name = before


def new_shared_pages(nbytes: int, name: str = "") -> Array | None:
    """Return new memory under a name, by default that of this thread; None where it has none, or there can be none."""
    import resource  # who is alone needs it not

    name = name or getattr(_current, "name", "")
    if not name or len(_open) >= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _PART:
        return None
    with suppress(OSError):
        descriptor = os.memfd_create(PREFIX + name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, nbytes)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
            memory = map_pages(descriptor, nbytes, mmap.PROT_READ | mmap.PROT_WRITE)
        except BaseException:
            os.close(descriptor)
            raise
        address = memory.ctypes.data
        closing = Finalizer(memory, partial(_open.pop, address, None), partial(os.close, descriptor))
        _open[address] = descriptor, closing
        return memory
    return None


def shared_descriptor(memory: Array) -> int | None:
    """Return the descriptor by which others may map memory; None: it is not shared, or no longer."""
    known = _open.get(memory.ctypes.data)
    return None if known is None else known[0]


def end_sharing(memory: Array) -> None:
    """Let nobody else map memory from now on; harmless if nobody could."""
    known = _open.get(memory.ctypes.data)
    if known is not None:
        known[1].run()


def map_shared_pages(process: int, descriptor: int, name: str, nbytes: int) -> Array | None:
    """Return the memory that another process shares under a name, read-only; None: it is not there, or not for us."""
    with suppress(OSError):
        own = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            stat = os.fstat(own)
            there = os.readlink(f"/proc/self/fd/{own}")  # noqa: PTH115  no path
            is_named = there == f"/memfd:{PREFIX}{name} (deleted)"  # numbers of descriptors are used again
            is_whole = fcntl.fcntl(own, fcntl.F_GET_SEALS) & _SEALS == _SEALS and stat.st_size == nbytes
            if is_named and is_whole and stat.st_uid == os.geteuid():
                return map_pages(own, nbytes)
        finally:
            os.close(own)
    return None
