"""The private folder of a job. Its maker holds a lock on it, so that those of killed makers are known and removed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from opbuild.errors import RankError

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
        RankError: If it can not be made.
    """

    def __init__(self) -> None:
        try:
            parent = Path(os.path.realpath(tempfile.gettempdir()))
            _sweep(parent)
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise RankError(f"the job gets no folder: {error}", "set TMPDIR to a folder that can be written") from error
        with contextlib.suppress(OSError):  # where there are no locks, a killed job's folder stays
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        remove_folder(self.path)
        os.close(self._lock)


def remove_folder(path: Path) -> None:
    """Remove a job's folder. It is renamed first: what a rank still writes into it would keep it."""
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
            lock = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)
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
