"""Waiting for a condition, with a bound: what tests do in place of a pause that may be too short or too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 120.0
"""Seconds after which a test gives up what it waits for: far more than anything takes on a machine that is busy."""


def until(condition: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Return the result of a function as soon as it is true, and the last one when the time is over."""
    end = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.01)
    return found


def until_built_behind() -> None:
    """Wait until the kernels for other sizes, which are built behind a network's first call, are there."""
    until(lambda: not any(thread.name == "opbuild-further" for thread in threading.enumerate()))


def children_of(pid: int) -> list[int]:
    """Return the processes that a process's main thread started and that still are."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, perhaps without anybody having waited for it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def settle(*paths: Path) -> None:
    """Wait until files are so old that their digests are remembered: more than a second."""
    youngest = max(path.stat().st_ctime for path in paths)
    time.sleep(max(0.0, youngest + 1.1 - time.time()))
