"""The private folder of a job, and a small process that outlives the launcher by a moment and removes it.

The folder's maker holds a lock on it, so that those of killed makers are known and removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator

from opbuild.errors import RankError
from opbuild.files.meeting import open_met
from opbuild.platform.paths import Path

PREFIX = "opbuild-job-"
LOCK = "lock"
GONE = ".gone"
_NAME = re.compile(re.escape(PREFIX) + r"\w{8}" + f"({re.escape(GONE)})?")
YOUNG = 600.0
"""Seconds in which a folder is left alone: its maker may not have locked it yet."""


class JobFolder:
    """A new folder for one job, 0700.

    Attributes:
        path: Where it is.

    Raises:
        RankError: If it cannot be made.
    """

    def __init__(self) -> None:
        try:
            parent = Path(os.path.realpath(tempfile.gettempdir()))
            _sweep(parent)
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise RankError(f"the job gets no folder: {error}", "set TMPDIR to a folder that can be written") from error
        with contextlib.suppress(OSError):  # where there are no locks, a killed job's folder stays
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        remove_folder(self.path)
        os.close(self._lock)


def remove_folder(path: Path) -> None:
    """Remove a job's folder. It is renamed first: files that a rank still writes into it would keep it."""
    gone = path.with_name(path.name.removesuffix(GONE) + GONE)
    with contextlib.suppress(OSError):
        path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove this user's folders of jobs whose makers are gone; a folder without a lock is not a job's."""
    for path in _old_folders(parent):
        with contextlib.suppress(OSError):
            if path.name.endswith(GONE):
                remove_folder(path)
                continue
            lock = open_met(path / LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_folder(path)
            finally:
                os.close(lock)


def _old_folders(parent: Path) -> Iterator[Path]:
    now = time.time()
    with contextlib.suppress(OSError):
        for path in parent.glob(f"{PREFIX}*"):
            state = path.lstat()
            made_here = _NAME.fullmatch(path.name) and state.st_uid == os.getuid()
            if made_here and now - state.st_mtime > YOUNG:
                yield path


END = b"end\n"


class Guard:
    """Watches this process, the launcher; make it before any thread is started.

    Args:
        folder: The job's folder, which it removes if the launcher cannot.
    """

    def __init__(self, folder: Path) -> None:
        read, self._write = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            try:
                os.close(self._write)
                _watch(read, folder)
            finally:
                os._exit(0)
        os.close(read)

    def add(self, group: int) -> None:
        """Take note of a process group that has been started."""
        self._say(b"+%d\n" % group)

    def remove(self, group: int) -> None:
        """Take note that a process group has ended."""
        self._say(b"-%d\n" % group)

    def close(self) -> None:
        """End the guard: there is nothing left to watch."""
        self._say(END)
        os.close(self._write)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._process, 0)

    def _say(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # somebody killed the guard: then nothing guards, and the job goes on
            os.write(self._write, line)


def _watch(read: int, folder: Path) -> None:
    """Wait for the launcher's end, in the guard's process."""
    os.setsid()  # Ctrl-C is for the launcher, which ends the ranks itself
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    said = b""
    while data := os.read(read, 1 << 12):
        said += data
    if said.endswith(END):
        return
    groups: set[int] = set()
    for line in said.split(b"\n")[:-1]:
        (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    remove_folder(folder)
