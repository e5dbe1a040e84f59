"""Uploads: entries built here are written to the remote store in the background, in the order in which they came.

A program that has ended is kept for ``EXIT_SECONDS`` by its last writes, whoever in it writes; what is left then is
abandoned. It is one budget for all remote stores, threads, requests and retries of a process. It begins once everything
is built and stored here; from then on a request is begun only if it ends within what is left.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable

from opbuild.platform.background import BACKGROUND_WRITER, begin
from opbuild.text.plural import counted, verb

EXIT_SECONDS = 10.0
"""How long a program that has ended is kept by what it still writes."""

_STEPS = 3
"""Parts of a request to a service at most, each of which is limited in time: opening, sending, closing."""

_SHORTEST = 0.05
"""Seconds below which a step is not worth beginning."""


class Ending:
    """The time that is left for requests, in seconds after the end. Threads may share it."""

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


UPLOAD_SECONDS = 5.0
"""How long an answer may take: nobody waits for it, and a disk that others write to takes seconds to be sure."""


class Uploads:
    """Writes one thing after the other; tells failures. Threads may share it; a fork has nothing to write."""

    def __init__(self, tell: Callable[[str], None], ending: Ending = ENDING) -> None:
        self._tell = tell
        self._ending = ending
        self._changed = threading.Condition()
        self._waiting: deque[Callable[[], str | None]] = deque()
        self._failed: list[str] = []
        self._busy = False
        self._process = os.getpid()
        ending.watch()
        atexit.register(self.finish)

    def add(self, write: Callable[[], str | None]) -> None:
        """Write something soon; ``write`` does it, and returns None, or why it could not."""
        with self._changed:
            self._waiting.append(write)
            if self._busy:
                return
            self._busy = True
        if not begin(self._work, "opbuild-upload"):
            self._work()  # there can be no more threads

    def wait(self) -> list[str]:
        """Wait until everything is written or given up; return why, for each object since the last call."""
        with self._changed:
            while self._busy:
                self._changed.wait(0.05)
            failed, self._failed = self._failed, []
        return failed

    def finish(self) -> None:
        """Wait until everything is written, or the time is over; tell of the rest. To be called when all is built.

        A request that was under way when the program ended may still be when the time is over, where a service answers
        each of its steps just in time; Python then ends beside it.
        """
        if os.getpid() != self._process:
            return
        BACKGROUND_WRITER.finish()  # which may have more to upload
        self._ending.begin()
        with self._changed:
            while self._busy and self._ending.left():
                self._changed.wait(min(0.05, self._ending.left()))
            left = len(self._waiting) + self._busy
            self._waiting.clear()
        if left:
            what = f"{counted(left, 'object')} {verb(left, 'was', 'were')} not written in {self._ending.seconds:g} s"
            self._tell(f"uploads to the remote store were abandoned: {what}")

    def _work(self) -> None:
        try:
            while (write := self._next()) is not None:
                problem = _problem_of(write)
                if problem is not None:
                    self._failed.append(problem)
        except BaseException:  # Ctrl-C, where there is no thread for it
            with self._changed:
                self._busy = False
            raise

    def _next(self) -> Callable[[], str | None] | None:
        """Return the next write; None: there is none, and what comes then begins anew."""
        with self._changed:
            if self._waiting and self._ending.left():
                return self._waiting.popleft()
            self._busy = False
            self._changed.notify_all()
            return None


def _problem_of(write: Callable[[], str | None]) -> str | None:
    try:
        return write()
    except Exception as error:  # one that nobody foresaw: the others are still to be written
        return f"{type(error).__name__}: {error}"
