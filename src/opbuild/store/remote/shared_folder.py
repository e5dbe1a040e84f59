"""SharedFolder: a remote store that is a folder, on storage that may stop to answer.

    <path of the blob>             its bytes, renamed to their place once they are whole
    .publish-... beside it         one that is being written, see ``platform.files.private``

A mount whose server went away holds whoever asks it, and nothing ends that. So each request is a thread's, which is
left behind once its time is over. A fork begins threads of its own, and asks as any process does.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from opbuild.kernel.reason import Reason
from opbuild.platform.background import begin
from opbuild.platform.files.private import PREFIX, publish, remove_rubbish
from opbuild.platform.files.writing import make_folder, write_new
from opbuild.platform.paths import Path
from opbuild.store.blobs import Data, Files
from opbuild.store.remote.failures import ABSENT, DAMAGED, EXISTS, SLOW, UNKNOWN, Transient, failure_of
from opbuild.store.remote.traffic import Traffic

T = TypeVar("T")

LEAST_RATE = 2**20
"""Bytes a second of one object, below which a service is slow."""

_PIECE = 2**20
_MODE = 0o775
"""Of folders that are made, as far as the umask allows it: not everybody may write to them."""


class SharedFolder:
    """Blobs in a folder that others share, each asked for once. Threads may share it.

    Args:
        folder: Its path; made when something is written.
        limit: Returns how long an answer or a piece of one may take that begins now.

    Attributes:
        traffic: What went to and fro so far.
    """

    def __init__(self, folder: str, limit: Callable[[], float]) -> None:
        self.folder = folder
        self.traffic = Traffic()
        self._limit = limit

    def get(self, name: str, most: int) -> bytes | Reason:
        """Return a blob, or why not; one of more than ``most`` bytes is not read to its end."""
        pieces: list[bytes] = []

        def nbytes() -> int:
            return sum(map(len, pieces))

        def read() -> bytes:
            with self._path(name).open("rb", buffering=0) as file:
                while piece := file.read(min(_PIECE, most + 1 - nbytes())):
                    pieces.append(piece)
            self.traffic.count(bytes_read=nbytes())
            return b"".join(pieces)

        data = self._ask(read, nbytes)
        if isinstance(data, bytes) and len(data) > most:
            return Reason(DAMAGED, f"it has more than {most} bytes")
        return data

    def size(self, path: str) -> int | Reason:
        """Return the bytes of a blob, or the reason that they are not known."""
        return self._ask(lambda: self._path(path).stat().st_size)

    def put(self, files: Files) -> Reason | None:
        """Write blobs; return None, or why not."""
        return next(filter(None, (self.write(path, data) for path, data in files)), None)

    def write(self, path: str, data: Data, *, only_new: bool = False) -> Reason | None:
        """Write a blob; return None, or why not: ``exists`` where only a new one was to be written."""

        def written() -> None:
            place = self._path(path)
            make_folder(place.parent, _MODE)
            (write_new if only_new else publish)(place, data)
            self.traffic.count(bytes_written=len(data))

        return self._ask(written)

    def delete(self, *names: str) -> Reason | None:
        """Remove blobs if they are there; return None, or why not."""
        answers = (self._ask(partial(self._remove, name)) for name in names)
        return next((each for each in answers if each is not None and each.code != ABSENT), None)

    def names(self, folder: str = "", at_most: int | None = None) -> tuple[str, ...] | Reason:
        """Return the names in a folder, which ends with a slash, sorted, or why not; what killed writers left goes."""

        def listed() -> tuple[str, ...]:
            found = []
            with os.scandir(self._path(folder)) as listing:
                for item in listing:
                    if item.name.startswith(PREFIX):
                        remove_rubbish(item)
                    elif not item.is_dir():
                        found.append(item.name)
            return tuple(sorted(found))

        names = self._ask(listed)
        if isinstance(names, Reason):
            return () if names.code == ABSENT else names
        return names[:at_most]

    def writes_only_new(self) -> bool:
        """Return True: of many writers of one new file one succeeds."""
        return True

    def _remove(self, name: str) -> None:
        self._path(name).unlink()

    def _path(self, name: str) -> Path:
        return Path(self.folder, name)

    def _ask(self, work: Callable[[], T], nbytes: Callable[[], int] = lambda: 0) -> T | Reason:
        self.traffic.count(requests=1)
        return answer(work, self._limit(), nbytes)


def answer(work: Callable[[], T], seconds: float, nbytes: Callable[[], int] = lambda: 0) -> T | Reason:
    """Return the result of a function that asks a storage, or why there is none: its error, or that it takes too long.

    Where the system allows no further thread it is waited for.

    Args:
        work: The function.
        seconds: How long it may take.
        nbytes: Returns how many bytes came so far, for which it has time at the least rate.
    """
    answers: list[T | Reason] = []
    done = threading.Event()

    def ask() -> None:
        try:
            answers.append(work())
        except Exception as error:
            answers.append(_failure(error))
        done.set()

    if begin(ask, "opbuild-folder") is None:
        ask()
    before = 0
    while not done.wait(seconds):
        now = nbytes()
        seconds, before = (now - before) / LEAST_RATE, now
        if not seconds:
            return Reason(SLOW, "no answer in time")
    return answers[0]


def _failure(error: Exception) -> Reason:
    if isinstance(error, FileNotFoundError):
        return Reason(ABSENT, "it has no such object")
    if isinstance(error, FileExistsError):
        return Reason(EXISTS, "the object is there")
    if isinstance(error, OSError) and error.errno == errno.ESTALE:  # another host replaced it meanwhile
        return Transient(*UNKNOWN)
    if isinstance(error, OSError) and error.errno is not None:
        return failure_of(OSError(error.errno, os.strerror(error.errno)))  # without the path, which may hold any word
    return failure_of(error)
