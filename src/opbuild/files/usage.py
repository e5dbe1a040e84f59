"""Which entries this process uses, and when each was last used by anybody: what ageing must leave alone.

The time of the last use is the access time of an entry's commit mark. It is set by hand, because file systems are
mounted without access times, and seldom, because a write for each reading would cost more than the reading.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

KNOWN_SECONDS = 600.0
"""A use that was noted less than this long ago is not noted again; well below the half hour that a use protects."""

_USED: set[str] = set()


def mark_used(mark: Path, *, keep_time: bool) -> None:
    """Note that this process uses an entry.

    Args:
        mark: The entry's commit mark.
        keep_time: Whether to write the time of use too; what can not be written is left.
    """
    _USED.add(str(mark))
    if not keep_time:
        return
    with contextlib.suppress(OSError):
        state = mark.stat()
        if abs(time.time() - state.st_atime) > KNOWN_SECONDS:
            os.utime(mark, ns=(time.time_ns(), state.st_mtime_ns))


def is_used_here(mark: str) -> bool:
    """Return whether this process uses the entry with this commit mark."""
    return mark in _USED
