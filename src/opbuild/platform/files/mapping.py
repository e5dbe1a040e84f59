"""Files of stored networks: mapped for reading, recognised when nobody touched them."""

from __future__ import annotations

import contextlib
import ctypes
import io
import mmap
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from opbuild.config import available_cores
from opbuild.platform.background import parallel_map
from opbuild.platform.digest import blake3_of, blake3_of_file
from opbuild.platform.files.private import boot, publish
from opbuild.platform.files.trust import PRIVATE, Trust
from opbuild.platform.finalizers import Finalizer
from opbuild.platform.locks import libc
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple

Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]

_SETTLED = 10**9
"""Nanoseconds since a file's last change after which a further change surely gives it another time of change."""


_PART = 32 * 2**20
"""Bytes that one thread reads at once: whole huge pages, and enough that starting it pays."""

_READERS = 4

MAP_FAILED = ctypes.c_void_p(-1).value
"""The address of a map that cannot be made."""


def map_file(path: Path, nbytes: int | None, trust: Trust = PRIVATE) -> tuple[Array, list[Any]]:
    """Map a file for reading, which must have so many bytes; None: any number.

    Returns:
        Its bytes, ``uint8`` of shape ``[nbytes]``, read-only, and its state: see ``verified``.

    Raises:
        OSError: If it cannot be read or has another size, or others can write to it.
    """
    descriptor, stat = trust.open(path)
    try:
        if nbytes not in (None, stat.st_size):
            raise OSError(f"{path.name} has {stat.st_size} bytes, not {nbytes}")
        state = _state(stat)
        if stat.st_size == 0:
            return np.zeros(0, np.uint8), state
        return map_pages(descriptor, stat.st_size), state
    finally:
        os.close(descriptor)


class ShownMemory:
    """Memory at an address, as numpy asks for it: an array of it keeps this object, which keeps the memory's owner."""

    __slots__ = ("__array_interface__", "__weakref__", "_owner")

    def __init__(
        self, address: int, shape: tuple[int, ...], typestr: str, owner: object = None, *, is_writable: bool = True
    ) -> None:
        self._owner = owner
        data = address, not is_writable
        self.__array_interface__ = {"shape": shape, "typestr": typestr, "data": data, "version": 3}


def map_pages(descriptor: int, nbytes: int, protection: int = mmap.PROT_READ) -> Array:
    """Return a shared map of an open file, ``uint8``; it goes with the array.

    A map of ``mmap`` keeps a descriptor, of which a process may have a thousand, and its file's pages once others have
    taken their place.

    Raises:
        OSError: If it cannot be mapped.
    """
    address = address_of_map(nbytes, protection, mmap.MAP_SHARED, descriptor)
    pages = ShownMemory(address, (nbytes,), "|u1", is_writable=bool(protection & mmap.PROT_WRITE))
    Finalizer(pages, partial(libc().munmap, ctypes.c_void_p(address), ctypes.c_size_t(nbytes)))
    memory: Array = np.asarray(pages)
    return memory


def address_of_map(nbytes: int, protection: int, flags: int, descriptor: int = -1) -> int:
    """Map memory, or a file's, and return where.

    Raises:
        OSError: If it cannot be mapped.
    """
    c = libc()
    c.mmap.restype = ctypes.c_void_p
    c.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    address: int | None = c.mmap(None, nbytes, protection, flags, descriptor, 0)
    if address is None or address == MAP_FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return address


def copy_file(path: Path, trust: Trust = PRIVATE) -> tuple[Array, list[Any]]:
    """Read a file into memory of this process, which nobody can change or cut afterwards.

    Returns:
        Its bytes, ``uint8``, and its state: see ``verified``.

    Raises:
        OSError: If it cannot be read or becomes shorter meanwhile, or others can write to it.
    """
    descriptor, stat = trust.open(path)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        return _read(file, stat.st_size, path.name), _state(stat)


def digest_file(path: Path, trust: Trust = PRIVATE) -> str:
    """Return the BLAKE3 of a file, mapped rather than read.

    Raises:
        OSError: If it cannot be read or others can write to it.
    """
    return blake3_of(map_file(path, None, trust)[0].data)


def verified(
    path: Path, nbytes: int | None, digest: str, remembered: Any, trust: Trust = PRIVATE, *, copies: bool = False
) -> tuple[Array, list[Any]]:
    """Map a file whose contents are known by their digest, or copy it.

    The bytes are read and compared with the digest, unless the file's state (device, inode, size, times of
    modification and of change, and the boot of the machine) is the one that was remembered when they were: the time
    of change cannot be set back, and a crash of the machine, which may lose what was written, is a new boot. A copy
    is compared always: it has just been read, and what is compared is what stays.

    Returns:
        Its bytes and its state, to be remembered.

    Raises:
        OSError: If it cannot be read, or is not what the digest says.
    """
    array, state = copy_file(path, trust) if copies else map_file(path, nbytes, trust)
    if nbytes not in (None, array.nbytes):
        raise OSError(f"{path.name} has {array.nbytes} bytes, not {nbytes}")
    if (copies or state != remembered) and blake3_of(array.data) != digest:
        raise OSError(f"{path.name} does not have the digest it should have")
    return array, state


class KnownFile(NamedTuple):
    """The state of a file that others may change, when it was read.

    Attributes:
        digest: The BLAKE3 of its bytes.
        state: Its state before it was read: see ``verified``.
        lasts: Whether it has these bytes for as long as it has this state. Not if it had only just changed, and might
            change again within a tick of the clock; nor if somebody may write to it through a map.
    """

    digest: str
    state: list[Any]
    lasts: bool

    def is_outdated(self, path: Path) -> bool:
        """Return whether the file has other bytes by now; it is read again only where its state does not tell.

        Raises:
            OSError: If it cannot be read.
        """
        return state_of(path) != self.state or (not self.lasts and blake3_of_file(path) != self.digest)


def digest_of(
    path: Path,
    memo: Path | None,
    digest_file: Callable[[Path], str] | None = None,
    trust: Trust = PRIVATE,
    *,
    is_unwritten: Callable[[Path], bool] | None = None,
    settled: int = _SETTLED,
) -> KnownFile:
    """Return a file's digest, from ``memo`` if the file's state is the one for which it was written there.

    Only what lasts is remembered: see ``KnownFile`` and ``platform.files.writers``.

    Args:
        path: The file.
        memo: File in which state and digest are remembered, replaced if it is not right; None remembers nothing.
        digest_file: Reads the file and returns its digest; default ``blake3_of_file``.
        trust: Whose memo is believed.
        is_unwritten: Says whether nobody writes to the file; default ``platform.files.writers``.
        settled: Nanoseconds since the file's last change after which another surely shows.

    Raises:
        OSError: If ``path`` cannot be read; a memo that cannot be written costs only the reading next time.
    """
    remembered = remembered_digest(path, memo, trust) if memo is not None else None
    if remembered is not None:
        return remembered
    if is_unwritten is None:
        from opbuild.platform.files import writers  # a start from memos never needs it

        is_unwritten = writers.is_unwritten
    unwritten = is_unwritten(path)  # before anything is read: what is mapped later shows by its time of change
    stat, now = path.stat(), time.time_ns()
    known = KnownFile(
        (digest_file or blake3_of_file)(path), _state(stat), unwritten and now - stat.st_ctime_ns > settled
    )
    if memo is not None:
        with contextlib.suppress(OSError):
            if known.lasts and state_of(path) == known.state:
                publish(memo, trust.write_memo(memo, {"blake3": known.digest, "state": known.state}))
            elif memo.exists():
                memo.unlink()  # who finds one takes the file for edited since
    return known


def remembered_digest(path: Path, memo: Path, trust: Trust = PRIVATE) -> KnownFile | None:
    """Return a file's digest as ``memo`` has it, None if that is of another state; the file is not read."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        remembered = trust.read_memo(memo)
        digest, state = str(remembered["blake3"]), state_of(path)
        if remembered["state"] == state and len(digest) == 64:
            return KnownFile(digest, state, lasts=True)
    return None


def read_file(path: Path) -> Array:
    """Return a file's bytes, ``uint8``, in memory of their own: a file that is mapped may be cut while it is read.

    Raises:
        OSError: If it cannot be read, or becomes shorter meanwhile.
    """
    with path.open("rb", buffering=0) as file:
        return _read(file, os.fstat(file.fileno()).st_size, path.name)


def state_of(path: Path) -> list[Any]:
    """Return a file's state: see ``verified``.

    Raises:
        OSError: If there is no such file.
    """
    return _state(path.stat())


def state_of_open(descriptor: int) -> list[Any]:
    """Return the state of a file that is open: see ``verified``."""
    return _state(os.fstat(descriptor))


def anonymous(nbytes: int) -> Array:
    """Return zeroed memory on its own pages, on huge ones where the system has them."""
    if nbytes == 0:
        return np.zeros(0, np.uint8)
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if nbytes >= 2 * 1024 * 1024 and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # advice only
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def _read(file: io.FileIO, nbytes: int, name: str) -> Array:
    """Read a file's first bytes, a large one in several threads: new memory is slower to get than to fill."""
    contents = anonymous(nbytes)

    def read_part(start: int) -> None:
        end = min(start + _PART, nbytes)
        while start < end:
            count = os.preadv(file.fileno(), [contents.data[start:end]], start)
            if not count:
                raise OSError(f"{name} became shorter while it was read")
            start += count

    parallel_map(read_part, range(0, nbytes, _PART), min(_READERS, available_cores()), "opbuild-read")
    return contents


def _state(stat: os.stat_result) -> list[Any]:
    return [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, boot()]
