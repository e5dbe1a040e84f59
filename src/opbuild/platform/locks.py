"""Locks, without loading ``threading``: a start that begins no thread does not need it.

A thread that has one stays in the parent when another forks, so in the child all of them are open.
"""

from __future__ import annotations

import _thread
import os
from _thread import _local as local
from _weakref import ref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Lock", "RLock", "local"]

_made: set[ref[Any]] = set()


def Lock() -> Any:  # noqa: N802  as threading has it
    """Return a lock."""
    return _noted(_thread.allocate_lock())


def RLock() -> Any:  # noqa: N802  as threading has it
    """Return a lock that the thread that has it can take again."""
    return _noted(_thread.RLock())


def _noted(lock: Any) -> Any:
    _made.add(ref(lock, _made.discard))
    return lock


def _open_all() -> None:
    for each in tuple(_made):
        lock = each()
        if lock is not None:
            lock._at_fork_reinit()


os.register_at_fork(after_in_child=_open_all)
