"""Simulated time: what a test passes in for the clock and the sleep of what would wait."""

from __future__ import annotations

import threading
import time


class Time:
    """A clock that goes on only where something sleeps on it, or a test says so. Threads may share it.

    Attributes:
        now: The seconds that it shows.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._lock = threading.Lock()

    def __call__(self) -> float:
        """Return seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        with self._lock:
            self.now += seconds


class Hurried(Time):
    """The real time, which goes on at once where something sleeps on it."""

    def __call__(self) -> float:
        """Return seconds."""
        return time.monotonic() + self.now
