"""Slots: how many compiles run at once on this host, in all processes of a user together.

    <temporary folder>/opbuild-slots-<user>/<kind>-<number>    empty; locked while a compile runs

A slot is a lock of the operating system on a small file, as a claim is: it ends with the processes that hold it,
however they end. Each process takes the slots below its own number of workers, so eight ranks that may use two cores
each keep two compiles busy, not sixteen. Slots save work only: where there are none (a folder of somebody else's, a
file system without locks) each process counts its own compiles alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import tempfile

from opbuild.platform.paths import Path

URGENT, LOW = "compile", "background"
"""Kinds of slots: what nobody waits for never takes the place of what somebody waits for."""

UNLIMITED = -1
"""A slot that binds nobody."""


class Slots:
    """The slots of one kind as one process takes them. One thread at a time may use it."""

    def __init__(self, kind: str, count: int, folder: Path | None = None) -> None:
        self._free = _opened(folder, kind, count)
        self._limits = bool(self._free)

    def take(self) -> int | None:
        """Return a slot, or None if others have them all.

        The highest ones come first: processes that allow fewer compiles can take the lower ones only.
        """
        if not self._limits:
            return UNLIMITED
        for slot in self._free:
            try:
                fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    continue
                return UNLIMITED  # there are no locks here
            self._free.remove(slot)
            return slot
        return None

    def give(self, slot: int) -> None:
        """Give a slot back; the lock ends although forked children may have the file open."""
        if slot != UNLIMITED:
            with contextlib.suppress(OSError):
                fcntl.flock(slot, fcntl.LOCK_UN)
            self._free = sorted([*self._free, slot], reverse=True)


def _opened(folder: Path | None, kind: str, count: int) -> list[int]:
    """Return descriptors of the files of all slots, the highest first; none where others could have put the folder."""
    folder = folder or Path(tempfile.gettempdir()) / f"opbuild-slots-{os.geteuid()}"
    slots: list[int] = []
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        state = folder.lstat()
        if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid() or state.st_mode & 0o022:
            return []
        for number in range(count):
            path = folder / f"{kind}-{number}"
            slots.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    except OSError:  # a full disk: fewer than all would hold this process back alone
        for slot in slots:
            os.close(slot)
        return []
    return slots[::-1]
