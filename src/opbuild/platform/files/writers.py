"""Who may be writing to a file through a map, which changes it without a trace.

The first store through a map to a page that is clean gives the file another time; further ones, until the system has
written the page back, do not. So a file's times say nothing as long as somebody has it mapped for writing. Whether
anybody has, the kernel tells who asks for a read lease: it is granted only if nobody has the file open or mapped for
writing. Once nobody has, whoever maps it anew stores to clean pages first, and the times move.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import stat

from opbuild.platform.locks import libc
from opbuild.platform.paths import Path

_DISKS = frozenset({0xEF53, 0x58465342, 0x9123683E, 0xF2F52010})
"""ext2 to ext4, XFS, Btrfs, F2FS: what is written there through a map comes from this machine, by their own code, which
sets the times and counts who writes. Others do not: tmpfs sets no time after a page was read, an overlay counts a map
elsewhere once its file is closed, network file systems have writers on other machines."""

_READ_ONLY = frozenset({0x73717368, 0xE0F5E1E2, 0x9660, 0x28CD3D45})
"""SquashFS, EROFS, ISO 9660, cramfs: nobody writes there."""

_Statfs = ctypes.c_ulong * (256 // ctypes.sizeof(ctypes.c_ulong))
"""More than a ``struct statfs`` has; the first word of it is the type."""


def is_unwritten(path: Path) -> bool:
    """Return whether it is certain that nobody writes to a file now, so that later writing changes its times.

    A file that nobody may write to (``chmod a-w``) counts on every file system, as its user's word.

    Raises:
        OSError: If the file cannot be opened.
    """
    if not path.is_file():  # a pipe's writer would be let in
        return False
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        kind = _file_system(descriptor)
        if kind in _READ_ONLY:
            return True
        refused = _refusal(descriptor) if kind in _DISKS else errno.ENOTSUP
        if refused in (0, errno.EAGAIN):
            return not refused
        return not os.fstat(descriptor).st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)
    finally:
        os.close(descriptor)


def take_lease(descriptor: int) -> bool:
    """Take a read lease on a file that lies where leases hold, if nobody has it open for writing; return whether.

    It lasts until it is given back or all copies of the descriptor are closed. Who would write to the file waits.
    """
    return _file_system(descriptor) in _DISKS and not _lease(descriptor)


def give_back_lease(descriptor: int) -> None:
    """Let those write who wait for it; forks and maps may have copies of the descriptor."""
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def has_lease(descriptor: int) -> bool:
    """Return whether a lease that was taken is still there, and nobody waits for it to end."""
    return fcntl.fcntl(descriptor, fcntl.F_GETLEASE) == fcntl.F_RDLCK


def _refusal(descriptor: int) -> int:
    """Return the error of a read lease on a file, 0 if it is granted: ``EAGAIN`` if somebody has it open for writing.

    It is given back at once, so that nobody waits who opens the file for writing meanwhile.
    """
    refused = _lease(descriptor)
    if not refused:
        give_back_lease(descriptor)
    return refused


def _lease(descriptor: int) -> int:
    """Take a read lease; return why there is none, 0 if there is one."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # which is ignored, where SIGIO ends the process
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return error.errno or errno.EINVAL
    return 0


def _file_system(descriptor: int) -> int:
    """Return the number of the type of the file system that holds a file, 0 if it is unknown."""
    told = _Statfs()
    return int(told[0]) if libc().fstatfs(descriptor, told) == 0 else 0
