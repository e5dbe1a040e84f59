"""Faster bindings that are made behind calls, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from opbuild.platform.background import begin
from opbuild.platform.locks import Lock
from opbuild.runtime.binding import Bound, Improvement

MOST_IMPROVED = 16
"""Bindings that wait for faster ones at once."""


class Improvements:
    """See the module. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: deque[tuple[Improvement, Callable[[Bound], None]]] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether none is made, or waits to be."""
        return not self._waiting

    def add(self, better: Improvement, take: Callable[[Bound], None]) -> bool:
        """Have a faster binding made, and handed over if there is one; return whether there was room for it.

        Calls that are under way keep what they use.
        """
        with self._lock:
            if len(self._waiting) >= MOST_IMPROVED:
                return False
            self._waiting.append((better, take))
            is_first = len(self._waiting) == 1
        if is_first:
            begin(self._make, "opbuild-improve")
        return True

    def _make(self) -> None:
        while True:
            better, take = self._waiting[0]
            found = better.bind()
            if found is not None:
                take(found)
            with self._lock:
                self._waiting.popleft()
                if not self._waiting:
                    return
