"""Uploads: what was built here is written to the remote store in the background, in the order in which it came.

When the program ends, what is left is written for ``EXIT_SECONDS`` more, and then abandoned.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable

from opbuild.platform.background import begin
from opbuild.platform.behind import BEHIND
from opbuild.text.plural import counted, verb

EXIT_SECONDS = 10.0
"""How long a program that has ended is kept by what it still writes; one request more may be under way then."""

UPLOAD_SECONDS = 5.0
"""How long an answer may take: nobody waits for it, and a disk that others write to takes seconds to be sure."""

_REQUEST_SECONDS = UPLOAD_SECONDS + 1.0
"""How long a request under way may take to end; a thread in the midst of one must not meet the end of Python."""


class Uploads:
    """Writes one thing after the other. Threads may share it; a fork has nothing to write.

    Args:
        tell: Told what could not be written.
        seconds: See ``EXIT_SECONDS``.
    """

    def __init__(self, tell: Callable[[str], None], seconds: float = EXIT_SECONDS) -> None:
        self._tell = tell
        self._seconds = seconds
        self._changed = threading.Condition()
        self._waiting: deque[Callable[[], str | None]] = deque()
        self._failed: list[str] = []
        self._busy = False
        self._process = os.getpid()
        self._ended = 0.0
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

    def goes_on(self) -> bool:
        """Return whether there is still time: as long as the program runs, and a while longer."""
        if threading.main_thread().is_alive() and not self._ended:
            return True
        self._ended = self._ended or time.monotonic()
        return time.monotonic() < self._ended + self._seconds

    def wait(self) -> list[str]:
        """Wait until everything is written or given up; return why, for each object since the last call."""
        with self._changed:
            while self._busy:
                self._changed.wait(0.05)
            failed, self._failed = self._failed, []
        return failed

    def finish(self) -> None:
        """Wait until everything is written, or the time is over; tell what is not."""
        if os.getpid() != self._process:
            return
        BEHIND.finish()  # which may have more to upload
        self._ended = self._ended or time.monotonic()
        with self._changed:
            while self._busy and self.goes_on():
                self._changed.wait(0.05)
            left = len(self._waiting) + self._busy
            self._waiting.clear()
            latest = time.monotonic() + _REQUEST_SECONDS
            while self._busy and time.monotonic() < latest:
                self._changed.wait(0.05)
        if left:
            what = f"{counted(left, 'object')} {verb(left, 'was', 'were')} not written in {self._seconds:g} s"
            self._tell(f"uploads to the remote store were abandoned: {what}")
        self._ended = 0.0

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._busy = False
                    self._changed.notify_all()
                    return
                write = self._waiting.popleft()
            problem = write()
            if problem is not None:
                self._failed.append(problem)
