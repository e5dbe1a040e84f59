"""The meeting place of the ranks of ``opbuild launch``: a thread of the launcher that answers when all have arrived.

Messages are lines. A rank says its number once, then one line for each operation: what it does. When every rank has
said its line they are compared, and each gets ``go``, or ``no`` and what differs. Data do not pass through here.

Whatever else connects, or says something else, is let go. If it was a rank, no meeting can be complete any more: the
others get ``lost`` and why. So does whoever waits for a rank that let go of its connection and does not come back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from opbuild.platform.background import begin
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple, dataclass, field

SOCKET = "hub"
CHUNK = 1 << 16
LONGEST_LINE = 1 << 12
"""Bytes of a line; what an operation is takes a hundred."""

GO = "go"
NO = "no "
LOST = "lost "

MOST_AHEAD = 16
"""Operations that a rank may have said before the others have said one: it waits for each."""

MOST_STRANGERS = 16
"""Connections of which nobody has said a rank."""

YOUTH = 1.0
"""Seconds in which a rank says its own, however busy the machine is."""

GRACE = 3.0
"""Seconds in which a rank that let go of its connection may come back, or end: then its end is what is told."""

PAUSE = 0.1
"""Seconds until a connection is taken again where the system has no room for it."""


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Give a path for a socket that is short enough for the system, however long the folder's is."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def has_hub(folder: Path) -> bool:
    """Return whether a job's folder has a hub's socket, or something in its place."""
    return os.path.lexists(folder / SOCKET)


def connect(folder: Path) -> socket.socket:
    """Connect to the hub of a job, if there is one and it is this user's."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if not stat.S_ISSOCK((folder / SOCKET).lstat().st_mode):
            raise OSError(errno.ENOTSOCK, f"{folder / SOCKET} is no socket")
        with short_path(folder / SOCKET) as path:
            link.connect(path)
        _, user, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        if user not in (0, os.geteuid()):
            raise OSError(errno.EPERM, f"{folder / SOCKET} is user {user}'s")
    except OSError:
        link.close()
        raise
    return link


def difference(descriptions: dict[int, str]) -> str:
    """Return the ranks that do something else than most; empty if all do the same."""
    groups: dict[str, list[int]] = {}
    for rank in sorted(descriptions):
        groups.setdefault(descriptions[rank], []).append(rank)
    if len(groups) < 2:
        return ""
    named = [f"rank{'s' * (len(g) > 1)} {', '.join(map(str, g))}: {text}" for text, g in groups.items()]
    return "the ranks do not do the same: " + "; ".join(named)


@dataclass
class Meeting:
    """Who has arrived; knows no sockets."""

    size: int
    _waiting: dict[int, list[str]] = field(default_factory=dict)

    def arrive(self, rank: int, text: str) -> str:
        """Take note of a rank's next operation; return the answer for all ranks if it was the last, else "".

        A rank that says two things before the others have said one is asked to wait by getting no answer.
        """
        self._waiting.setdefault(rank, []).append(text)
        if len(self._waiting) < self.size:
            return ""
        first = {rank: texts.pop(0) for rank, texts in self._waiting.items()}
        self._waiting = {rank: texts for rank, texts in self._waiting.items() if texts}
        problem = difference(first)
        return NO + problem if problem else GO

    def ahead(self, rank: int) -> int:
        """Return the number of a rank's operations that have no answer yet."""
        return len(self._waiting.get(rank, ()))

    def forget(self, rank: int) -> None:
        """Forget the messages of a rank before it connected once more."""
        self._waiting.pop(rank, None)


@dataclass(eq=False)
class _Peer:
    """Who has connected.

    Attributes:
        rank: What it says it is; None: nothing yet.
        unread: The beginning of a line.
        refusal: The answer to all that it says; empty: none is refused.
    """

    link: socket.socket
    since: float = field(default_factory=time.monotonic)
    rank: int | None = None
    unread: bytes = b""
    refusal: str = ""

    def say(self, answer: str) -> bool:
        """Send an answer; return whether it was taken: who does not read his answers is not waited for."""
        data = answer.encode(errors="replace") + b"\n"
        try:
            return self.link.send(data) == len(data)
        except OSError:
            return False


class _Absence(NamedTuple):
    """A rank whose connection is gone; ``others`` were connected then, later ones may meet it when it is back."""

    reason: str
    until: float
    others: list[_Peer]


class Hub:
    """The meeting point of one job.

    Attributes:
        problem: Why nobody is served any more; empty: all are.

    Raises:
        OSError: If the socket cannot be made, there can be no thread that serves it, or the ranks' connections are
            more than the files that may be open.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self.problem = ""
        self._meeting = Meeting(size)
        self._numbers = {str(rank): rank for rank in range(size)}
        self._peers: list[_Peer] = []  # in the order in which they came
        self._absent: dict[int, _Absence] = {}
        self._faults: dict[int, str] = {}  # of ranks that were let go and are not back
        self._closed_until = 0.0  # since there is no room for more
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_path(folder / SOCKET) as path:
            self._listener.bind(path)
        self._listener.listen(size + MOST_STRANGERS)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._spare: list[int] = []  # descriptors in place of those that ranks need
        for _ in range(size):
            self._spare.append(os.open(os.devnull, os.O_RDONLY))
        if not begin(self._serve, "opbuild-hub", is_needed=True):
            raise OSError(errno.EAGAIN, "can't start new thread")

    def _serve(self) -> None:
        try:
            while True:
                self._step()
        except Exception as error:  # nobody may wait for a thread that is no more
            self.problem = f"the ranks cannot meet any more: {type(error).__name__}: {error}"
            self._listener.close()
            for peer in self._peers:
                peer.say(LOST + self.problem)
                peer.link.close()

    def _step(self) -> None:
        due = [each.until for each in self._absent.values()] + [self._closed_until] * bool(self._closed_until)
        wait = max(0.0, min(due) - time.monotonic()) if due else None
        for key, _ in self._selector.select(wait):
            if key.fileobj is self._listener:
                self._accept()
            elif key.data in self._peers:  # nobody has let go of it in this step
                self._read(key.data)
        now = time.monotonic()
        for rank, absence in list(self._absent.items()):
            if now >= absence.until:
                del self._absent[rank]
                for peer in absence.others:
                    self._refuse(peer, absence.reason)
        if 0.0 < self._closed_until <= now:
            self._closed_until = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _accept(self) -> None:
        strangers = [each for each in self._peers if each.rank is None]
        try:
            if len(strangers) >= MOST_STRANGERS:
                raise OSError(errno.EMFILE, "")
            link, _ = self._listener.accept()
        except BlockingIOError:
            return  # it is gone
        except OSError as error:
            self._make_room(strangers if error.errno == errno.EMFILE else [])
            return
        link.setblocking(False)
        peer = _Peer(link)
        self._peers.append(peer)
        self._selector.register(link, selectors.EVENT_READ, peer)

    def _make_room(self, strangers: list[_Peer]) -> None:
        """Close a file in place of which a connection may be open; where there is none, take no more for a moment."""
        now = time.monotonic()
        if self._spare and len(strangers) < MOST_STRANGERS:
            os.close(self._spare.pop())
        elif strangers and now >= strangers[0].since + YOUTH:
            self._drop(strangers[0], "has not said in time which rank it is")
        else:
            self._closed_until = strangers[0].since + YOUTH if strangers else now + PAUSE
            self._selector.unregister(self._listener)

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.link.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, peer.unread = (peer.unread + data).split(b"\n")
        for line in lines:
            problem = self._take(peer, line.decode(errors="replace"))
            if problem:
                self._drop(peer, problem)
            if peer not in self._peers:
                return
        if not data:
            self._drop(peer, "closed its connection to the launcher", GRACE)
        elif len(peer.unread) > LONGEST_LINE:
            self._drop(peer, "said a line that has no end")

    def _take(self, peer: _Peer, line: str) -> str:
        """Carry out a line; return its problem, or the empty text."""
        if len(line) > LONGEST_LINE or not line.isprintable():
            return "said a line that is no operation"
        if peer.rank is None:
            return self._introduce(peer, line)
        if peer.refusal:
            return "" if peer.say(peer.refusal) else "does not read its answers"
        if self._meeting.ahead(peer.rank) >= MOST_AHEAD:
            return "does not wait for the others"
        answer = self._meeting.arrive(peer.rank, line)
        for each in [each for each in self._peers if each.rank is not None] if answer else ():
            if not each.say(answer):
                self._drop(each, "does not read its answers")
        return ""

    def _introduce(self, peer: _Peer, line: str) -> str:
        rank = self._numbers.get(line)
        if rank is None:
            return "said no rank of this job"
        if any(each.rank == rank for each in self._peers):
            return f"says that it is rank {rank}, which is connected"
        peer.rank = rank
        self._meeting.forget(rank)
        self._absent.pop(rank, None)
        self._faults.pop(rank, None)
        for reason in self._faults.values():
            self._refuse(peer, reason)
        return ""

    def _drop(self, peer: _Peer, problem: str, grace: float = 0.0) -> None:
        """Let go of a connection. If it was a rank's, those who wait for it learn that it does not come."""
        self._peers.remove(peer)
        self._selector.unregister(peer.link)
        peer.say(f"{LOST}{'this process' if peer.rank is None else f'rank {peer.rank}'} {problem}")
        peer.link.close()
        if len(self._spare) + len(self._peers) < len(self._numbers):
            with contextlib.suppress(OSError):
                self._spare.append(os.open(os.devnull, os.O_RDONLY))
        if peer.rank is not None:
            reason = f"{LOST}rank {peer.rank} {problem}"
            if not grace:
                self._faults[peer.rank] = reason
            others = [each for each in self._peers if each.rank is not None]
            self._absent[peer.rank] = _Absence(reason, time.monotonic() + grace, others)

    def _refuse(self, peer: _Peer, reason: str) -> None:
        """Tell a rank that the operation that it waits for does not come; it may have let go meanwhile."""
        peer.refusal = peer.refusal or reason
        if peer in self._peers:
            peer.say(peer.refusal)
