"""Memory that is used again: a call's arrays that nobody looks at any more are there for those of the next call.

Large arrays of numpy lie on pages of their own, which go back to the system with them: the next call would fault in
every page again, and wait for each to be cleared.
"""

from __future__ import annotations

import ctypes
from collections import Counter, deque
from collections.abc import Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from opbuild.errors import RunError
from opbuild.graph.types import Array
from opbuild.platform.files.mapping import anonymous
from opbuild.platform.finalizers import Finalizer
from opbuild.platform.limits import hint_for
from opbuild.platform.records import NamedTuple

LEAST = 64 * 1024
"""Bytes from which on an array's memory is kept; the allocator keeps smaller ones itself."""

_STEPS = 8
"""Sizes of memory between a power of two and the next: an array that grows from call to call fits what is there."""


class MemoryRequest(NamedTuple):
    """An array to make.

    Attributes:
        shape: Its shape.
        dtype: Its element type.
        size: Bytes of the memory that it is to lie in; 0 if none is kept for it.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    size: int


class Lent:
    """Memory in the hands of a caller: it goes back when the array that lies in it and all views of that are gone.

    Attributes:
        memory: Its pages.
    """

    memory: Array


class ReusedMemory:
    """Makes the arrays of one call after the other. Any thread may ask for some.

    It keeps as much memory as those of the latest call take, beside what somebody still looks at.
    """

    def __init__(self) -> None:
        self._latest: tuple[Sequence[MemoryRequest], dict[int, deque[Array]]] = ((), {})

    def take(self, arrays: Sequence[MemoryRequest]) -> list[Array]:
        """Return arrays with any contents, in whose memory nothing else lies.

        Raises:
            RunError: If there is no memory.
        """
        latest, free = self._latest
        if arrays is not latest:
            counts = Counter(each.size for each in arrays if each.size)
            free = {size: _places(free.get(size), count) for size, count in counts.items()}
            self._latest = arrays, free
        return [
            np.ndarray(shape, dtype, _lend(free[size], size)) if size else np.empty(shape, dtype)
            for shape, dtype, size in arrays
        ]


def memory_request(shape: tuple[int, ...], dtype: np.dtype[Any]) -> MemoryRequest:
    """Return the need of memory of an array of a shape and an element type."""
    nbytes = prod(shape) * dtype.itemsize
    step = 2 ** (nbytes.bit_length() - 1) // _STEPS if nbytes else 1
    return MemoryRequest(shape, dtype, -(-nbytes // step) * step if nbytes >= LEAST else 0)


def new_array(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    """Return an array with any contents where calls' arrays lie.

    Raises:
        RunError: If there is no memory.
    """
    (made,) = ReusedMemory().take([memory_request(shape, np.dtype(dtype))])
    return made


def copied(array: Array) -> Array:
    """Return a copy of an array where calls' arrays lie.

    Raises:
        RunError: If there is no memory.
    """
    made = new_array(array.shape, array.dtype)
    made[...] = array
    return made


def owns_memory(array: Array) -> bool:
    """Return whether no other array has the memory of this one, unless it is a view of it."""
    return array.flags.owndata or isinstance(array.base, Lent)


def new_memory(nbytes: int, what: str) -> Array:
    """Return memory on pages of its own.

    Raises:
        RunError: If there is none; it says for what.
    """
    try:
        return anonymous(nbytes)
    except (OSError, OverflowError, ValueError) as error:
        message = f"there is no memory for {nbytes} bytes of {what}: {error}"
        raise RunError(message, f"give smaller inputs, or {hint_for(error) or 'free memory'}") from error


def _places(free: deque[Array] | None, count: int) -> deque[Array]:
    """Return the arrays of a size that wait: in the same places as before, if they are as many."""
    return free if free is not None and free.maxlen == count else deque(free or (), count)


def _lend(free: deque[Array], size: int) -> Any:
    try:
        memory = free.pop()
    except IndexError:
        memory = new_memory(size, "an array")
    lent = _lent_class(size).from_address(memory.ctypes.data)
    lent.memory = memory
    Finalizer(lent, partial(free.append, memory))
    return lent


@lru_cache(maxsize=64)
def _lent_class(size: int) -> Any:
    """Return the class of lent memory of a size: numpy asks it for its bytes, and tells it when nobody needs them."""
    return type("LentBytes", (Lent, ctypes.c_char * size), {})
