"""Forks while other threads import: the child would wait for ever for modules that nobody there goes on to load.

The interpreter has a lock for each module that is being loaded, and what is loaded half when another thread forks stays
so in the child, locked. So a fork waits for what is being loaded, which takes moments. Where that takes longer, or
waits for the thread that forks, the child loads anew what it finds half loaded; a library that cannot be loaded twice
says so then.
"""

from __future__ import annotations

import sys
import time
from _thread import get_ident
from importlib import _bootstrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PATIENCE = 10.0
"""Seconds for which a fork waits at most; the largest libraries are loaded in less."""

_PAUSE = 2e-4


def await_imports() -> None:
    """Wait until no other thread is loading a module; not for those that may be waiting for this one."""
    latest = time.monotonic() + _PATIENCE
    while (
        (loading := _loading())
        and not any(_waits_for_this_thread(each) for each in loading)
        and time.monotonic() < latest
    ):
        time.sleep(_PAUSE)


def forget_imports() -> None:
    """Let a child load modules that other threads of its parent were loading."""
    for lock in _loading():
        _locks().pop(lock.name, None)
        spec = getattr(sys.modules.get(lock.name), "__spec__", None)
        if getattr(spec, "_initializing", False):
            del sys.modules[lock.name]


def _locks() -> dict[str, Any]:
    """Return the interpreter's locks of modules that are being loaded: references by name."""
    return getattr(_bootstrap, "_module_locks", {})


def _loading() -> list[Any]:
    """Return the locks of other threads."""
    alive = [each() for each in tuple(_locks().values())]
    return [lock for lock in alive if lock is not None and lock.owner != get_ident()]


def _waits_for_this_thread(lock: Any) -> bool:
    """Return whether the thread that has a lock waits for a module that this thread is loading."""
    blocking = getattr(_bootstrap, "_blocking_on", {}).get(lock.owner)
    wanted = blocking if isinstance(blocking, list) else [blocking]
    return any(each is not None and each.owner == get_ident() for each in wanted)
