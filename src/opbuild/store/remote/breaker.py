"""Breaker: a service that fails again and again is not asked any more by this process."""

from __future__ import annotations

import threading

from opbuild.kernel.reason import Reason

FAILURES = 3
"""Failures one after the other that end it."""

SECONDS = 2.0
"""Seconds in all that may be lost by waiting for answers that do not come."""


class Breaker:
    """Counts what goes wrong with one kind of request. Threads may share it.

    Attributes:
        reason: Why nothing is asked any more; None: it is.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = 0
        self._lost = 0.0
        self.reason: Reason | None = None

    def succeeded(self) -> None:
        """Take note of an answer; that something is absent is one."""
        with self._lock:
            self._failures = 0

    def failed(self, reason: Reason, seconds: float = 0.0) -> None:
        """Take note of a failure that took some time; ``reason`` is there once nothing is to be asked any more."""
        with self._lock:
            self._failures += 1
            self._lost += seconds
            if self.reason is None and (self._failures >= FAILURES or self._lost >= SECONDS):
                self.reason = reason

    def stop(self, reason: Reason) -> None:
        """Ask nothing any more."""
        self.reason = self.reason or reason
