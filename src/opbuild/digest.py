"""Digests: SHA-256 for what users compare, BLAKE3 for what only opbuild reads, because it is several times faster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from os import PathLike

from blake3 import blake3

_threads = [int(blake3.AUTO)]
"""How many threads BLAKE3 uses; one where it can have no more."""


def _use_one_thread() -> None:
    _threads[0] = 1


# The pool's threads stay in the parent: a fork that asked it for a digest would wait for ever.
os.register_at_fork(after_in_child=_use_one_thread)


def sha256(data: bytes) -> str:
    """Return the SHA-256 of ``data`` as 64 hexadecimal digits."""
    import hashlib  # loads OpenSSL, which a network that is already built never needs

    return hashlib.sha256(data).hexdigest()


def fast(data: bytes | memoryview) -> str:
    """Return the BLAKE3 digest of ``data`` as 64 hexadecimal digits."""
    return _fast(lambda hasher: hasher.update(data))


def fast_of(parts: Iterable[bytes | memoryview]) -> str:
    """Return the BLAKE3 digest of several pieces, one after the other."""
    pieces = tuple(parts)
    return _fast(lambda hasher: [hasher.update(piece) for piece in pieces])


def fast_file(path: str | PathLike[str]) -> str:
    """Return the BLAKE3 digest of a file, mapped rather than read.

    Raises:
        OSError: If the file can not be read.
    """
    return _fast(lambda hasher: hasher.update_mmap(path))


def _fast(update: Callable[[blake3], object]) -> str:
    """Return the digest of what ``update`` feeds; in one thread where the system allows no more."""
    hasher = blake3(max_threads=_threads[0])
    try:
        update(hasher)
    except BaseException as error:
        if type(error).__name__ != "PanicException" or _threads[0] == 1:
            raise
        _use_one_thread()  # a limit on processes: the pool could not be made
        return _fast(update)
    return hasher.hexdigest()
