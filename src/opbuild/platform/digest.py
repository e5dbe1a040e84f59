"""Digests: SHA-256 for users, BLAKE3, several times faster, for files that only opbuild reads."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import import_module
from os import PathLike
from sys import modules
from typing import Any, cast

from blake3 import blake3

from opbuild.platform.locks import Lock

_MANY = 2**24
"""Bytes from which several threads take a digest; for less it does not pay to start them."""

_LONG = 2**20
"""Bytes of which OpenSSL takes a SHA-256 sooner, even if it must be loaded first."""

_PATIENCE = 0.1
"""Seconds in which a thread that has nothing left to do ends."""

_trying = Lock()
_threads = [0]
"""How many threads BLAKE3 uses; 0: it was not yet tried whether there can be more than one."""


def _use_one_thread() -> None:
    _threads[0] = 1


# The pool's threads stay in the parent: a fork that asked it for a digest would wait for ever.
os.register_at_fork(after_in_child=_use_one_thread)


def sha256(data: bytes) -> str:
    """Return the SHA-256 of ``data`` as 64 hexadecimal digits."""
    made: str = (_hashlib_sha256() if len(data) > _LONG or "hashlib" in modules else _small_sha256())(data).hexdigest()
    return made


@lru_cache(maxsize=1)
def _small_sha256() -> Callable[[bytes], Any]:
    """Return Python's own SHA-256, for which nothing is loaded; it is several times slower."""
    for name in ("_sha2", "_sha256"):  # since Python 3.12, and before
        with contextlib.suppress(ImportError):
            return cast("Callable[[bytes], Any]", import_module(name).sha256)
    return _hashlib_sha256()


def _hashlib_sha256() -> Callable[[bytes], Any]:
    from hashlib import sha256  # loads OpenSSL, which takes as long as 1 MB does without it

    return sha256


def blake3_of(data: bytes | memoryview) -> str:
    """Return the BLAKE3 digest of ``data`` as 64 hexadecimal digits."""
    return blake3_of_parts((data,))


def blake3_in_this_thread(data: bytes | memoryview) -> str:
    """Return the same, taken by the calling thread alone: threads that it began would have its priority."""
    return blake3(data).hexdigest()


def blake3_of_parts(parts: Iterable[bytes | memoryview]) -> str:
    """Return the BLAKE3 digest of several pieces, one after the other."""
    pieces = tuple(parts)
    nbytes = sum(memoryview(piece).nbytes for piece in pieces)
    return _fast(lambda hasher: [hasher.update(piece) for piece in pieces], nbytes)


def is_digest(text: object) -> bool:
    """Return whether something is a digest as these functions return them."""
    return isinstance(text, str) and len(text) == 64 and not text.strip("0123456789abcdef")


def blake3_of_file(path: str | PathLike[str]) -> str:
    """Return the BLAKE3 digest of a file, mapped rather than read."""
    return _fast(lambda hasher: hasher.update_mmap(path), os.stat(path).st_size)  # noqa: PTH116  paths stay out of kernels' keys


def _fast(update: Callable[[blake3], object], nbytes: int) -> str:
    """Return the digest of the bytes that ``update`` feeds; in one thread where the system allows no more."""
    threads = _hashing_threads() if nbytes >= _MANY else 1
    hasher = blake3(max_threads=threads)
    try:
        update(hasher)
    except BaseException as error:
        if type(error).__name__ != "PanicException" or threads == 1:
            raise
        _use_one_thread()  # the pool could not be made: somebody took the last threads
        return _fast(update, nbytes)
    return hasher.hexdigest()


def _hashing_threads() -> int:
    """Return the number of threads that BLAKE3 is to use, found out once for the process.

    A pool that finds no threads panics, with a message on the standard error. So as many as it takes are tried first.
    Where memory is limited their stacks would take what is needed for other things.
    """
    import resource

    if _threads[0] == 0:  # never in a fork, in which the lock may be held for ever
        with _trying:
            limits = {resource.getrlimit(number)[0] for number in (resource.RLIMIT_AS, resource.RLIMIT_DATA)}
            many = limits == {resource.RLIM_INFINITY} and _can_start(os.cpu_count() or 1)
            _threads[0] = _threads[0] or (int(blake3.AUTO) if many else 1)
    return _threads[0]


def _can_start(count: int) -> bool:
    """Return whether so many threads can run at once; those that tried it have ended then."""
    import threading

    stop, tried = threading.Event(), list[int]()

    def wait() -> None:
        tried.append(threading.get_native_id())
        stop.wait()

    try:
        for _ in range(count):
            threading.Thread(target=wait, name="opbuild-digest", daemon=True).start()
        enough = True
    except RuntimeError:
        enough = False
    finally:
        stop.set()
    latest = time.monotonic() + _PATIENCE
    while any(os.path.exists(f"/proc/self/task/{thread}") for thread in tried) and time.monotonic() < latest:  # noqa: PTH110
        time.sleep(1e-4)
    return enough
