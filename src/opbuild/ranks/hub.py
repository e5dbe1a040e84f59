"""Where the ranks of ``opbuild launch`` meet: a thread of the launcher that answers when all have arrived.

Messages are lines. A rank says its number once, then one line for each operation: what it does. When every rank has
said its line they are compared, and each gets ``go``, or ``no`` and what differs. Data do not pass through here.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path

from opbuild.platform.background import begin
from opbuild.platform.records import dataclass

SOCKET = "hub"
LONGEST_LINE = 1 << 16
GO = "go"
NO = "no "


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Give a path for a socket that is short enough for the system, however long the folder's is."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def connect(folder: Path) -> socket.socket:
    """Connect to the hub of a job.

    Raises:
        OSError: If there is none.
    """
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_path(folder / SOCKET) as path:
            link.connect(path)
    except OSError:
        link.close()
        raise
    return link


def difference(descriptions: dict[int, str]) -> str:
    """Return which ranks do something else than most; empty if all do the same."""
    groups: dict[str, list[int]] = {}
    for rank in sorted(descriptions):
        groups.setdefault(descriptions[rank], []).append(rank)
    if len(groups) < 2:
        return ""
    named = [f"rank{'s' * (len(g) > 1)} {', '.join(map(str, g))}: {text}" for text, g in groups.items()]
    return "the ranks do not do the same: " + "; ".join(named)


@dataclass
class Meeting:
    """Who has arrived; knows no sockets.

    Args:
        size: The number of ranks.
    """

    size: int
    _said: dict[int, list[str]] = field(default_factory=dict)

    def arrive(self, rank: int, text: str) -> str:
        """Take note of what a rank does next; return the answer for all ranks if it was the last, else "".

        A rank that says two things before the others have said one is asked to wait by getting no answer.
        """
        self._said.setdefault(rank, []).append(text)
        if len(self._said) < self.size:
            return ""
        first = {rank: texts.pop(0) for rank, texts in self._said.items()}
        self._said = {rank: texts for rank, texts in self._said.items() if texts}
        problem = difference(first)
        return NO + problem if problem else GO


class Hub:
    """The meeting point of one job.

    Args:
        folder: The job's folder.
        size: The number of ranks.

    Raises:
        OSError: If the socket can not be made, or there can be no thread that serves it.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self._meeting = Meeting(size)
        self._size = size
        self._unread: dict[socket.socket, bytes] = {}
        self._ranks: dict[socket.socket, int] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_path(folder / SOCKET) as path:
            self._listener.bind(path)
        self._listener.listen(size)
        self._selector.register(self._listener, selectors.EVENT_READ)
        if not begin(self._serve, "opbuild-hub", is_needed=True):
            raise OSError(errno.EAGAIN, "can't start new thread")

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    link, _ = self._listener.accept()
                    self._unread[link] = b""
                    self._selector.register(link, selectors.EVENT_READ)
                elif isinstance(key.fileobj, socket.socket):
                    self._read(key.fileobj)

    def _read(self, link: socket.socket) -> None:
        try:
            data = link.recv(LONGEST_LINE)
        except OSError:
            data = b""
        *lines, rest = (self._unread[link] + data).split(b"\n")
        self._unread[link] = rest
        if not data or len(rest) > LONGEST_LINE:
            self._drop(link)
        for line in lines:
            self._take(link, line.decode(errors="replace"))

    def _take(self, link: socket.socket, line: str) -> None:
        if link in self._ranks:
            answer = self._meeting.arrive(self._ranks[link], line)
            for each in self._ranks if answer else ():
                with contextlib.suppress(OSError):
                    each.sendall(answer.encode() + b"\n")
        elif line.isdecimal() and int(line) < self._size and int(line) not in self._ranks.values():
            self._ranks[link] = int(line)
        else:
            self._drop(link)

    def _drop(self, link: socket.socket) -> None:
        """Forget a rank that went away; who waits for it learns from the launcher."""
        self._ranks.pop(link, None)
        self._unread.pop(link, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(link)
        link.close()
