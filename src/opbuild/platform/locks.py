"""Locks and lazy attributes in processes that fork while other threads work, and the process's one C library.

``threading`` is not loaded: a start that begins no thread does not need it. A thread that has a lock stays in the
parent when another forks, so in the child all of them are open.
"""

from __future__ import annotations

import _thread
import os
from _thread import _local as local
from _weakref import ref
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    import ctypes

__all__ = ["Lock", "RLock", "lazy_property", "libc", "local", "made_once"]

_made: set[ref[Any]] = set()


def Lock() -> Any:  # noqa: N802  as threading has it
    """Return a lock."""
    return _recorded(_thread.allocate_lock())


def RLock() -> Any:  # noqa: N802  as threading has it
    """Return a lock that the thread that has it can take again."""
    return _recorded(_thread.RLock())


def _recorded(lock: Any) -> Any:
    _made.add(ref(lock, _made.discard))
    return lock


def _open_all() -> None:
    for each in tuple(_made):
        lock = each()
        if lock is not None:
            lock._at_fork_reinit()


os.register_at_fork(after_in_child=_open_all)


T = TypeVar("T")


class lazy_property(Generic[T]):  # noqa: N801  used as a decorator, as ``functools.cached_property`` is
    """``functools.cached_property`` without a lock: below Python 3.12 that holds one while the attribute is made.

    A process that another thread forks meanwhile would wait for that lock for ever. Threads that come at once may
    each make the attribute; all get the same one.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = ""
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> lazy_property[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> lazy_property[T] | T:
        if instance is None:
            return self
        made: T = instance.__dict__.setdefault(self._name, self._make(instance))
        return made


def made_once(make: Callable[..., T]) -> Callable[..., T]:
    """Return a function that makes one value for equal arguments; ``functools.cache`` lets threads make one each."""
    lock, known = RLock(), lru_cache(maxsize=None)(make)

    @wraps(make)
    def made(*given: Any) -> T:
        with lock:
            return known(*given)

    made.cache_clear = known.cache_clear  # type: ignore[attr-defined]
    return made


@lru_cache(maxsize=1)
def libc() -> ctypes.CDLL:
    """Return the C library: one, since each ``CDLL`` is part of a cycle, which stays until the collector runs."""
    import ctypes  # what only compiles does not need it

    return ctypes.CDLL(None, use_errno=True)
