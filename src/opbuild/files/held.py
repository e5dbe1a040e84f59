"""A file that others may write to, held as it is: mapped while a lease keeps writers waiting, or read.

Reading a large file fills new memory, which costs several times what mapping it does. But a file that is cut while it
is mapped ends the process, and one that is overwritten changes under it. A read lease prevents both: who opens the file
for writing, or cuts it, waits until the lease is given back, at most ``/proc/sys/fs/lease-break-time`` (45 s). Whoever
waited that long is let in; ``is_certain`` tells it. So a file is held for as long as it is worked on, and what is kept
of it for longer is moved into memory of this process first.

A file is replaced by renaming another one, as by most programs, without any waiting.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref

import numpy as np

from opbuild.files.digested import forget
from opbuild.files.mapping import Array, read_file
from opbuild.files.pages import remap
from opbuild.files.writers import give_back_lease, has_lease, take_lease
from opbuild.platform.locks import libc
from opbuild.platform.paths import Path

LEAST = 2**20
"""Bytes from which a file is mapped."""

_FAILED = ctypes.c_void_p(-1).value
"""``MAP_FAILED``."""


class HeldFile:
    """The bytes of a file; ``hold_file`` makes it.

    Attributes:
        contents: The bytes, ``uint8``; none when they were taken.

    Args:
        contents: The bytes.
        mapped: The map that they are in, if they were not read.
        descriptor: What has the lease then.
    """

    def __init__(self, contents: Array, mapped: mmap.mmap | None = None, descriptor: int | None = None) -> None:
        self.contents = contents
        self._taken = False
        self._mapped = None if mapped is None else weakref.ref(mapped)
        self._descriptor = descriptor

    def __del__(self) -> None:
        self._close()  # a map that is still used has a copy of the descriptor, and so the lease

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
            self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


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
    c = libc()
    c.mmap.restype = ctypes.c_void_p
    c.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    place, nbytes = np.frombuffer(mapped, np.uint8).ctypes.data, len(mapped)
    protection, kind = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    copy = c.mmap(None, nbytes, protection, kind, -1, 0)
    if copy == _FAILED:
        raise MemoryError(f"{nbytes} bytes for a copy of a file")
    ctypes.memmove(copy, place, nbytes)
    if not remap(copy, nbytes, nbytes, place):
        c.munmap(ctypes.c_void_p(copy), ctypes.c_size_t(nbytes))
        raise MemoryError(f"a copy of a file of {nbytes} bytes cannot take its place")
