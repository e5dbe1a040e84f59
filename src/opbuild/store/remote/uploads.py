"""Uploads: entries built here are written to the remote store in the background, in the order in which they came.

When the program ends, what is left is written for a while (``ending``), and then abandoned.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable

from opbuild.platform.background import BACKGROUND_WRITER, begin
from opbuild.store.remote.ending import ENDING, Ending
from opbuild.text.plural import counted, verb

UPLOAD_SECONDS = 5.0
"""How long an answer may take: nobody waits for it, and a disk that others write to takes seconds to be sure."""


class Uploads:
    """Writes one thing after the other. Threads may share it; a fork has nothing to write.

    Args:
        tell: Told what could not be written.
        ending: How much time is left once the program has ended.
    """

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
        while True:
            with self._changed:
                if not self._waiting or not self._ending.left():
                    self._busy = False
                    self._changed.notify_all()
                    return
                write = self._waiting.popleft()
            problem = write()
            if problem is not None:
                self._failed.append(problem)
