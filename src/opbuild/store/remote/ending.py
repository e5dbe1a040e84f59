"""Ending: a program that has ended is kept for ``EXIT_SECONDS`` by its last writes, whoever in it writes.

It is one budget for all remote stores, threads, requests and retries of a process. It begins once everything is built
and stored here; from then on a request is begun only if it ends within what is left.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable

from opbuild.platform.background import BACKGROUND_WRITER

EXIT_SECONDS = 10.0
"""How long a program that has ended is kept by what it still writes."""

_STEPS = 3
"""What a request to a service consists of at most, each of which is limited in time: opening, sending, closing."""

_SHORTEST = 0.05
"""Seconds below which a step is not worth beginning."""


class Ending:
    """The time that is left for requests. Threads may share it.

    Args:
        seconds: For how long after the end there may be requests.
        clock: Returns seconds.
    """

    def __init__(self, seconds: float = EXIT_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._until = math.inf
        self._is_watched = False

    @property
    def has_begun(self) -> bool:
        """Whether the program has ended."""
        return self._until < math.inf

    def left(self) -> float:
        """Return for how many seconds there may be requests; infinite as long as the program runs."""
        return self._until if self._until == math.inf else max(0.0, self._until - self._clock())

    def limit(self, usual: float, hurried: float) -> float:
        """Return the seconds that each step of a request may take that begins now; 0: it is not to begin.

        Args:
            usual: As long as the program runs.
            hurried: At most, once it has ended: then somebody waits.
        """
        limit = min(usual, hurried, self.left() / _STEPS) if self.has_begun else usual
        return limit if limit >= _SHORTEST else 0.0

    def watch(self) -> None:
        """Begin when the program ends, before threads of pools are waited for."""
        if not self._is_watched:
            self._is_watched = True
            with contextlib.suppress(RuntimeError, AttributeError):  # it is ending, or an unknown Python: see ``begin``
                threading._register_atexit(self._finish)  # type: ignore[attr-defined]

    def begin(self) -> None:
        """Let the time run, unless it does."""
        if not self.has_begun:
            self._until = self._clock() + self.seconds

    def _finish(self) -> None:
        BACKGROUND_WRITER.finish()  # which may have more to write
        self.begin()


ENDING = Ending()
"""The process's one."""
