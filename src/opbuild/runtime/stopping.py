"""Stopping: calls that are under way end at their next kernel when another thread says so.

A call runs through a list of steps. Who stops it empties that list, so that no step of a call that may be stopped takes
longer.
"""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from opbuild.errors import StoppedError

S = TypeVar("S")
T = TypeVar("T")


class StopFlag:
    """A flag that ends the calls that watch it. Any thread may set it.

    Attributes:
        is_set: Whether calls that watch it are to end, also those that have not begun.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._steps: dict[int, list[list[Any]]] = {}

    def set(self) -> None:
        """End the calls that watch it."""
        self.is_set = True
        for calls in [*self._steps.values()]:
            for steps in [*calls]:
                steps.clear()

    def clear(self) -> None:
        """Let calls that begin later run."""
        self.is_set = False

    def run(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call a function whose calls of networks in this thread watch the flag.

        Raises:
            StoppedError: If it is set.
        """
        self.check()
        thread = get_ident()
        outer = STOPPABLE.get(thread)
        STOPPABLE[thread] = self
        try:
            return function(*args, **kwargs)
        finally:
            if outer is None:
                del STOPPABLE[thread]
            else:
                STOPPABLE[thread] = outer
            if outer is not self:
                self._steps.pop(thread, None)

    def watch(self, steps: Sequence[S]) -> list[S]:
        """Return steps that a loop leaves at the next one when the flag is set: they are fewer then.

        What ends without an error is left by ``leave``.
        """
        own = [*steps]
        self._steps.setdefault(get_ident(), []).append(own)
        if self.is_set:  # since before the steps were there to be taken away
            own.clear()
        return own

    def leave(self) -> None:
        """Watch the steps of the call that ended no more; those of the one round it are still watched."""
        self._steps[get_ident()].pop()

    def check(self) -> None:
        """Refuse to go on if the flag is set.

        Raises:
            StoppedError: If it is.
        """
        if self.is_set:
            raise stopped_error()


def stopped_error() -> StoppedError:
    """Return the error of a call that was stopped."""
    return StoppedError("the call was stopped", "call again")


STOPPABLE: dict[int, StopFlag] = {}
"""What the calls of threads watch, by the threads' numbers: most often there is none."""


def check_stopped() -> None:
    """Refuse to go on if the call of this thread is stopped.

    Raises:
        StoppedError: If it is.
    """
    flag = STOPPABLE.get(get_ident()) if STOPPABLE else None
    if flag is not None:
        flag.check()
