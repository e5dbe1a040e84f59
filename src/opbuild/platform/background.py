"""Work in the background, where the system allows it: in a thread of its own, or else by whoever needs it.

A limit on processes or on memory may allow no further thread. Nothing here needs one: what nobody waits for is left out
then, and who waits for something that has not begun does it himself.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from opbuild.platform.limits import has_room, no_process_is_left
from opbuild.platform.paths import Path

if TYPE_CHECKING:
    import threading

T = TypeVar("T")

_PATIENCE = 0.1
"""Seconds in which a thread that has nothing left to do ends."""


def begin(work: Callable[[], object], name: str, *, is_needed: bool = False) -> threading.Thread | None:
    """Call a function in a thread of its own, which ends with the process; return it, or None if there is none.

    Where memory is limited there is none: a thread that finds no memory to begin lets ``start`` wait for ever.

    Args:
        work: The function; it must raise nothing.
        name: The thread's name, for who looks at the process.
        is_needed: Whether it cannot be done without: then also where little memory is left.
    """
    if not is_needed and not has_room():
        return None
    import threading  # most starts begin none

    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        return None
    return thread


def await_end(threads: Sequence[threading.Thread]) -> None:
    """Wait until the system has no more of some threads that have nothing left to do, but not for long."""
    latest = time.monotonic() + _PATIENCE
    while any(Path(f"/proc/self/task/{each.native_id}").exists() for each in threads) and time.monotonic() < latest:
        time.sleep(1e-4)


def without_frames(error: BaseException) -> BaseException:
    """Return a copy of an error for who may have to raise it again.

    A traceback has the frames of all through whom the error passed, and they have what raised it: who keeps that error
    is in a cycle.
    """
    return copy.copy(error)


class Background(Generic[T]):
    """A piece of work that is done once, by a thread of its own or by whoever waits for it first."""

    def __init__(self, work: Callable[[], T], name: str) -> None:
        import threading

        self._work: Callable[[], T] | None = work
        self._name = name
        self._claim = threading.Lock()
        self._done = threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, if there can be a thread for it."""
        self._thread = begin(self._run, self._name)

    def is_left_out(self) -> bool:
        """Return whether nobody has begun; then nobody will."""
        return self._claim.acquire(blocking=False)

    def result(self) -> T:
        """Return the result of the work, or raise its error; do it here if it has not begun.

        Where the thread was the last process that the limit allows, and the work is to start one, it is done here too.
        """
        self._run()
        self._done.wait()
        if self._work is not None and self._thread is not None:
            await_end([self._thread])
            return self._work()
        if self._error is None:
            return self._result[0]
        error, self._error = self._error, without_frames(self._error)
        try:
            raise error
        finally:
            del error

    def await_end(self) -> None:
        """Wait until the thread is no more, but not for long: it counts where processes are limited."""
        if self._thread is not None:
            await_end([self._thread])

    def _run(self) -> None:
        if self._work is None or not self._claim.acquire(blocking=False):
            return  # somebody does it, or did
        try:
            self._result.append(self._work())
        except BaseException as error:  # raised again where the result is asked for
            self._error = error
        finally:
            if not no_process_is_left(self._error):
                self._work = None  # it may have this
            self._done.set()
