"""Reading what a cache holds: with one reason for each way in which it is refused, and knowing when it was last used.

The time of the last use is the access time of a commit mark. It is set by hand, because file systems are mounted
without access times, and seldom, because a write for each reading would cost more than the reading.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path

from opbuild.files.trust import PRIVATE, SignatureError, Trust, UntrustedError
from opbuild.kernel.reason import Reason

REFUSED = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError)
"""What reading raises, and taking apart what was read where nothing of it is believed."""

_QUIETLY = getattr(os, "O_NOATIME", 0)
"""Setting an access time back writes to the disk, for each of 150,000 files; not changing it does not."""


def read_quietly(path: Path, most: int, trust: Trust = PRIVATE) -> bytes:
    """Return a file's contents without changing its access time, by which ageing knows when it was last used.

    Raises:
        OSError: If it can not be read, has more than ``most`` bytes, or others can write to it.
    """
    before = path.stat()
    try:
        data = trust.read(path, most, _QUIETLY)
    except UntrustedError:
        raise
    except PermissionError:  # another user's file
        data = trust.read(path, most)
    with contextlib.suppress(OSError):
        after = path.stat()
        if after.st_atime_ns != before.st_atime_ns and after.st_mtime_ns == before.st_mtime_ns:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return data


def reason_of(error: Exception, what: str = "", *, missing: str = "incomplete") -> Reason:
    """Return why something is not used, by what reading it raised.

    Args:
        error: One of ``REFUSED``.
        what: What was read, for people; default the name of the error's file.
        missing: The code where it is not there.
    """
    what = what or Path(str(getattr(error, "filename", None) or "it")).name
    if isinstance(error, SignatureError):
        return Reason(error.code, str(error))
    if isinstance(error, UntrustedError):
        return Reason("untrusted", f"{what} is not used: {error.strerror}")
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return Reason(missing, f"{what} is missing")
    if isinstance(error, OSError) and error.errno is not None:
        code = "damaged" if error.errno == errno.EFBIG else "unreadable"
        return Reason(code, f"{what} can not be read: {error.strerror}")
    return Reason("damaged", str(error) if isinstance(error, (OSError, ValueError)) else "it is not what was written")


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
