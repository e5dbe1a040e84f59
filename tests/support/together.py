"""Threads that do the same at once."""

from __future__ import annotations

import threading
from collections.abc import Callable


def shut() -> threading.Lock:
    """Return a lock that is taken already: who takes it waits until another thread lets him; a quick semaphore."""
    lock = threading.Lock()
    lock.acquire()
    return lock


def run_together(work: Callable[[int], None], count: int) -> list[Exception]:
    """Call a function with each number below ``count`` in a thread of its own; return what was raised."""
    raised: list[Exception] = []

    def run(number: int) -> None:
        try:
            work(number)
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised
