"""Claims: which process compiles which operator, so that of many that need it one does and the others wait.

    <folder>/<optype>_<number>.claim    JSON: who holds it; empty or absent: nobody

A claim is a lock of the operating system on a small file, not the file: it ends with the process that holds it, however
that ends, so nobody waits for the dead. It says who compiles, never what is stored. Where there are no claims (a
folder that cannot be written, a file system without locks), whoever needs an operator compiles it, as if it were
alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import stat
from functools import lru_cache

from opbuild.files.meeting import open_met, opened_folder, planted_in, unlink_met
from opbuild.files.trust import parse_json
from opbuild.files.writing import make_folder
from opbuild.kernel.interfaces import UNCLAIMED, Claim, Holder
from opbuild.kernel.key import Key
from opbuild.platform.paths import Path

SUFFIX = ".claim"

_FLAGS = os.O_RDWR

_TRIES = 10
"""How often a claim is tried whose file or folder its last holder has just removed."""

_LENGTH = 512
"""Bytes of every claim, so that none is cut before it is written: closing a file that was cut waits for the disk."""

_OPEN: set[int] = set()
"""Descriptors of the claims that this process holds or asks for."""


class FolderClaims:
    """Claims as locks on files in one folder. Threads and processes may share it; a fork holds none of its parent's.

    Args:
        folder: Where the files lie while operators are compiled; made when it is needed.
        rank: This process's rank, to tell others.
    """

    def __init__(self, folder: Path, rank: int = 0) -> None:
        self.folder = folder
        self.rank = rank

    @property
    def problem(self) -> str:
        """The files of somebody else where claims lie, which are not made there; empty if there are none."""
        return planted_in(self.folder)

    def take(self, key: Key, patience: float = math.inf) -> Claim | Holder:
        """Return the claim on an operator, or who has it; where there can be no claims, one that binds nobody.

        None of these holders is far: each is seen to end.
        """
        path = self.folder / (key.stem + SUFFIX)
        for _ in range(_TRIES):
            descriptor = open_claim(path)
            if descriptor is None:
                return UNCLAIMED
            try:
                claim = self._lock(descriptor, path)
            except OSError:
                claim = UNCLAIMED
            if not isinstance(claim, _HeldClaim):
                close_claim(descriptor)
            if claim is not None:
                return claim
        return UNCLAIMED

    def close(self) -> None:
        """Remove the folder if nobody uses it."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _lock(self, descriptor: int, path: Path) -> Claim | Holder | None:
        """Return the claim, its holder, or None if the file is no longer the one that others see.

        Raises:
            OSError: If there are no locks here.
        """
        if not is_claim(descriptor):
            return UNCLAIMED  # it is left as it is
        if not lock_claim(descriptor):
            return _holder(descriptor)
        if os.fstat(descriptor).st_nlink == 0:
            return None
        who = json.dumps({"process": os.getpid(), "host": _host(), "rank": self.rank}).encode()
        with contextlib.suppress(OSError):  # a full disk takes nothing from the lock
            os.pwrite(descriptor, who.ljust(_LENGTH), 0)
        return _HeldClaim(descriptor, path)


class _HeldClaim:
    """A claim that this process holds.

    Args:
        descriptor: Of its locked file; closed when the claim is released.
        path: Of its file, removed before.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path
        self._process = os.getpid()

    def release(self) -> None:
        """Give it up; harmless if it was, and in a fork of the process that took it."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0 or self._process != os.getpid():
            return
        give_up(descriptor, self._path)

    def __del__(self) -> None:
        self.release()


def open_claim(path: Path) -> int | None:
    """Return a descriptor of a claim's file, to be closed by ``close_claim`` or ``give_up``; None: there are no claims.

    The file and its folder are made where they are missing.
    """
    for _ in range(_TRIES):
        try:
            descriptor = open_met(path, _FLAGS | os.O_CREAT)
        except FileNotFoundError:  # the first claim, or somebody has just removed the folder
            with contextlib.suppress(OSError):  # it may go while it is made; the next try tells
                make_folder(path.parent)
        except OSError:
            return None
        else:
            _OPEN.add(descriptor)
            return descriptor
    return None


def close_claim(descriptor: int) -> None:
    """Close the file of a claim that is not held."""
    _OPEN.discard(descriptor)
    os.close(descriptor)


def is_claim(descriptor: int) -> bool:
    """Return whether a file may be one that opbuild has put there.

    Raises:
        OSError: If the file system does not say.
    """
    state = os.fstat(descriptor)
    return stat.S_ISREG(state.st_mode) and state.st_uid == os.geteuid() and state.st_nlink <= 1


def lock_claim(descriptor: int) -> bool:
    """Take a claim unless somebody holds it; return whether it is this process's now.

    Raises:
        OSError: If there are no locks here.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise
        return False
    return True


def give_up(descriptor: int, path: Path) -> None:
    """Remove a claim that this process holds, and close its file."""
    with contextlib.suppress(OSError):
        unlink_met(path)  # while it is locked: nobody else removes it
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    close_claim(descriptor)


def sweep_claims(folder: Path) -> None:
    """Remove the claims that nobody holds, and the folder if none is left; those that cannot be removed stay."""
    try:
        with opened_folder(folder) as descriptor:
            names = [name for name in os.listdir(descriptor) if name.endswith(SUFFIX)]  # noqa: PTH208  no path
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            descriptor = open_met(folder / name, _FLAGS)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_nlink == 1:
                    unlink_met(folder / name)
            finally:
                os.close(descriptor)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _holder(descriptor: int) -> Holder:
    """Return the holder of a claim, as it says itself."""
    try:
        said = parse_json(os.pread(descriptor, _LENGTH, 0))
        return Holder(int(said["process"]), str(said["host"])[:255], int(said["rank"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Holder()  # it has not said so yet


@lru_cache(maxsize=1)
def _host() -> str:
    return os.uname().nodename


def _let_go() -> None:
    """Close a fork's copies of its parent's descriptors, so that they end with the parent."""
    for descriptor in _OPEN:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _OPEN.clear()


os.register_at_fork(after_in_child=_let_go)
