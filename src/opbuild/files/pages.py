"""Pages: memory for a file's future contents; once the file is there, its pages take the place of these.

So whoever has the memory goes on with the same addresses, and shares the file's pages with all processes that map it.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from math import prod
from typing import Any

import numpy as np

from opbuild.files.mapping import Array
from opbuild.platform.locks import libc

LEAST = 2**16
"""Bytes below which memory is the allocator's."""

_MAY_MOVE, _FIXED = 1, 2
_FAILED = ctypes.c_void_p(-1).value
"""``MREMAP_MAYMOVE``, ``MREMAP_FIXED`` and ``MAP_FAILED``."""

_own: dict[int, weakref.ref[Array]] = {}
"""Memory on pages of its own, by its address."""


def new_pages(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return memory for an array, on pages of its own if it is large; its content is undefined."""
    nbytes = prod(shape) * np.dtype(dtype).itemsize
    if nbytes < LEAST:
        return np.empty(shape, dtype)
    # Not on huge pages: where memory has been in use for a while the system moves other pages about to have some.
    memory = np.frombuffer(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
    address = memory.ctypes.data
    _own[address] = weakref.ref(memory, lambda gone: _forget(address, gone))
    array: Array = memory.view(dtype).reshape(shape)
    return array


def has_own_pages(array: Array) -> bool:
    """Return whether an array is all of some memory that ``new_pages`` gave, which nobody else can know."""
    known = _own.get(array.ctypes.data)
    memory = None if known is None else known()
    return memory is not None and memory.nbytes == array.nbytes


def exchange_pages(array: Array, mapped: Array) -> None:
    """Put the pages of a file in the place of an array's, which holds the same; where that cannot be, it stays.

    Any thread may read the array meanwhile.

    Args:
        array: Has its own pages.
        mapped: A shared map of the file, from its beginning.
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
    return bool(mremap(source, moved, nbytes, _MAY_MOVE | _FIXED, place) != _FAILED)


def _forget(address: int, gone: weakref.ref[Array]) -> None:
    if _own.get(address) is gone:  # else other memory is there already
        del _own[address]
