"""Lagging: the locks of opbuild's modules, behind and before which other threads go first, as on a busy machine.

What is done between the release of a lock and the next step, or between a look and the lock, takes a moment then; a
thread that goes on in that moment finds what it seldom finds otherwise.
"""

from __future__ import annotations

import _thread
import contextlib
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from opbuild.platform import locks

Lag = Callable[[], object]
"""Lets others go first, or not."""


class LaggingLock:
    """A lock behind which others go first.

    Args:
        lock: What it is otherwise; default: one that its owner can take again.
        lag: Called before it is taken, and behind its release; default: a moment behind each release.
    """

    def __init__(self, lock: Any = None, lag: Lag | None = None) -> None:
        self._lock = threading.RLock() if lock is None else lock
        self._before, self._behind = lag or (lambda: None), lag or (lambda: time.sleep(1e-4))

    def acquire(self, *arguments: Any, **named: Any) -> bool:
        """Take it, as its kind of lock is taken."""
        self._before()
        return bool(self._lock.acquire(*arguments, **named))

    def release(self) -> None:
        """Give it up, and let others go first."""
        self._lock.release()
        self._behind()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)  # what conditions and forks do with it


def random_lag(seed: int) -> Lag:
    """Return a lag that a seed decides: how often each thread lags, and for how long."""
    chance, own = random.Random(seed), threading.local()
    pauses = chance.choice(((0.0,), (0.0, 1e-4), (1e-4,), (1e-4, 1e-3)))

    def lag() -> None:
        often = getattr(own, "often", None)
        if often is None:
            often = own.often = chance.choice((0.0, 0.1, 0.5, 1.0))
        if chance.random() < often:
            time.sleep(chance.choice(pauses))

    return lag


@contextlib.contextmanager
def lagging_locks(lag: Lag) -> Iterator[None]:
    """Let the locks that opbuild's modules make meanwhile lag, and those that modules have.

    Threads take turns far more often than Python lets them.
    """
    interval = sys.getswitchinterval()
    with pytest.MonkeyPatch.context() as patch:
        made = {"allocate_lock": _thread.allocate_lock, "Lock": _thread.allocate_lock, "RLock": _thread.RLock}
        lagging = {name: _lagging(make, lag) for name, make in made.items()}
        patch.setattr(locks, "_thread", SimpleNamespace(allocate_lock=lagging["allocate_lock"], RLock=lagging["RLock"]))
        for name in ("Lock", "RLock"):
            patch.setattr(threading, name, _for_opbuild(getattr(threading, name), lagging[name]))
        for module in [each for name, each in [*sys.modules.items()] if name.startswith("opbuild.")]:
            for name, lock in _locks_of(module):
                patch.setattr(module, name, LaggingLock(lock, lag))
        sys.setswitchinterval(1e-5)
        try:
            yield
        finally:
            sys.setswitchinterval(interval)


def _lagging(make: Callable[[], Any], lag: Lag) -> Callable[[], LaggingLock]:
    return lambda: LaggingLock(make(), lag)


def _for_opbuild(make: Callable[[], Any], lagging: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that makes lagging locks for opbuild's modules, conditions and events of theirs too."""

    def made() -> Any:
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__") == "threading":
            frame = frame.f_back
        return (lagging if str(frame.f_globals.get("__name__")).startswith("opbuild") else make)()

    return made


def _locks_of(module: ModuleType) -> list[tuple[str, Any]]:
    kinds = (_thread.LockType, _thread.RLock)
    return [(name, each) for name, each in vars(module).items() if isinstance(each, kinds)]
