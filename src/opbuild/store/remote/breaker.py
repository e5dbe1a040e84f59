"""Breaker: a service that fails again and again is left alone by this process, and tried again after a while.

What is lost is measured in the time that passed, whoever waited: of requests that fail together one counts, since what
held all of them up is one stall, of the service or of this host. Each answer gives a little of it back, so that a
service which mostly answers is not given up in a program that asks much.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

from opbuild.kernel.reason import Reason

FAILURES = 3
"""Failures one after the other that end it."""

GIVEN_BACK = 0.05
"""What part of a request's limit an answer makes up for: one request of twenty may fail for ever."""

LEFT_ALONE = 30.0
"""Seconds until one request is tried again; twice as many after each that fails."""


class Breaker:
    """Counts what goes wrong with one kind of request. Threads may share it.

    Args:
        limit: Seconds that one request may take; twice as many may be lost by waiting for answers that do not come.
        clock: Returns seconds.

    Attributes:
        reason: Why the service is left alone; None: it is not.
    """

    def __init__(self, limit: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._lost = 0.0
        self._until = -math.inf
        self._again = 0.0
        self._pause = LEFT_ALONE
        self._tries = False
        self.reason: Reason | None = None

    def refuses(self) -> Reason | None:
        """Return the reason that nothing is to be asked now; None: it is, or this one request is to find out."""
        if self.reason is None or self._again == math.inf:
            return self.reason
        with self._lock:
            now = self._clock()
            if now < self._again:
                return self.reason
            self._tries = True
            self._pause *= 2
            self._again = now + self._pause
            return None

    def succeeded(self) -> None:
        """Take note of an answer; that something is absent is one."""
        with self._lock:
            self._failures = 0
            self._lost = max(0.0, self._lost - GIVEN_BACK * self._limit)
            if self._tries:
                self.reason, self._lost, self._pause, self._tries = None, 0.0, LEFT_ALONE, False

    def failed(self, reason: Reason, seconds: float = 0.0) -> None:
        """Take note of a failure that took some time; ``reason`` is there once nothing is to be asked any more."""
        with self._lock:
            now = self._clock()
            began = now - seconds
            self._lost += now - max(began, min(now, self._until))
            self._failures += began >= self._until
            self._until, self._tries = now, False
            if self.reason is None and (self._failures >= FAILURES or self._lost >= 2 * self._limit):
                self.reason = reason
                self._again = now + self._pause

    def stop(self, reason: Reason) -> None:
        """Ask nothing any more, ever; without the lock, which a fork may find held."""
        self._again, self._tries = math.inf, False
        self.reason = self.reason or reason
