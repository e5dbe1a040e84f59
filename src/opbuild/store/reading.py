"""Reading what a cache holds: without a trace, and with one reason for each way in which it is refused."""

from __future__ import annotations

import contextlib
import errno
import os
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
