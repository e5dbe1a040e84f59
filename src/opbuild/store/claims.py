"""Claims: which process of a host makes or fetches something, so that of many that need it one does, and others wait.

    <folder>/<optype>_<number>.claim    JSON: who compiles an operator; empty or absent: nobody
    <folder>/fetch_<name>.claim         what came so far for him who asks for something, and how it ended
    <folder>/weights_<name>.claim       locked byte by byte, each for weights that somebody packs; a line for each of
                                        them that others may map: its source's digest, process and descriptor

A claim is a lock of the operating system on a small file, not the file: it ends with the process that holds it, however
that ends, so nobody waits for the dead. It never says what is stored. Where there are no claims (a folder that cannot
be written, a file system without locks), whoever needs something makes it, as if it were alone.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import stat
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial

from opbuild.kernel.interfaces import UNCLAIMED, Claim, Holder
from opbuild.kernel.key import Key
from opbuild.platform.files.meeting import open_meeting_file, opened_folder, planted_files, unlink_meeting_file
from opbuild.platform.files.trust import parse_json
from opbuild.platform.files.writing import make_folder
from opbuild.platform.finalizers import Finalizer
from opbuild.platform.locks import Lock, lazy_property
from opbuild.platform.paths import Path

SUFFIX = ".claim"

PATIENCE = 10.0
"""Seconds without a word of him who asks, after which nobody waits for him: twice what one request may take."""

_LEAST_PAUSE, _LONGEST_PAUSE, _PAUSES_GROW = 0.002, 0.05, 1.5
"""Seconds until it is looked again whether it is one's turn."""

_ENDED = b"ended "

_FLAGS = os.O_RDWR

_TRIES = 10
"""How often a claim is tried whose file or folder its last holder has just removed."""

_LENGTH = 512
"""Bytes of every claim, so that none is cut before it is written: closing a file that was cut waits for the disk."""

_LINE = 96
"""Bytes of a line of a shared file."""

_OPEN: dict[int, Finalizer] = {}
"""What closes the descriptors of the claims that this process holds or asks for."""


class ClaimFile:
    """A claim's open file, and the claim once it is locked. A fork holds none of its parent's.

    Who drops it unreleased, as an error may, leaves an unlocked file: nobody's claim.

    Attributes:
        is_held: Whether this process has the claim, in a file that others see.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor
        self.is_held = False
        self._closing = Finalizer(self, partial(_OPEN.pop, descriptor, None), partial(os.close, descriptor))
        _OPEN[descriptor] = self._closing

    @staticmethod
    def opened(path: Path, flags: int = 0) -> ClaimFile | None:
        """Return a claim's file, made with its folder where they are missing; None: there are no claims."""
        for _ in range(_TRIES):
            try:
                return ClaimFile(path, open_meeting_file(path, _FLAGS | os.O_CREAT | flags))
            except FileNotFoundError:  # the first claim, or somebody has just removed the folder
                with contextlib.suppress(OSError):  # it may go while it is made; the next try tells
                    make_folder(path.parent)
            except OSError:
                return None
        return None

    @staticmethod
    def shared(path: Path) -> ClaimFile | None:
        """Return a claim's file that others use, too, and nobody removes while one of them does; None as ``opened``."""
        for _ in range(_TRIES):
            file = ClaimFile.opened(path, os.O_APPEND)
            if file is None:
                return None
            with contextlib.suppress(OSError):
                fcntl.flock(file._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                if os.fstat(file._descriptor).st_nlink:
                    return file
            file.release()  # its last user is just removing it, or there are no locks here
        return None

    @property
    def is_own(self) -> bool:
        """Whether opbuild may have put the file there; raises ``OSError`` if the file system does not say."""
        state = os.fstat(self._descriptor)
        return stat.S_ISREG(state.st_mode) and state.st_uid == os.geteuid() and state.st_nlink <= 1

    @property
    def _is_open(self) -> bool:
        """Whether the descriptor is this file's: it is closed in a fork, and may be another file's then."""
        return _OPEN.get(self._descriptor) is self._closing

    def lock(self) -> bool:
        """Lock the file unless somebody has; return whether this process has now. It may have been removed meanwhile.

        Raises:
            OSError: If there are no locks here.
        """
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            return False
        self.is_held = os.fstat(self._descriptor).st_nlink > 0
        return True

    def lock_byte(self, kind: int, place: int) -> bool:
        """Lock or unlock one of the file's bytes; return whether nobody else has it, also where there are no locks."""
        if not self._is_open:
            return True
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, place, 1, 0))
        except OSError as error:
            return error.errno not in (errno.EAGAIN, errno.EACCES)
        return True

    def say(self, text: bytes) -> bool:
        """Write something for those who wait; return whether that could be: a full disk takes nothing from the lock."""
        with contextlib.suppress(OSError):
            return os.pwrite(self._descriptor, text.ljust(_LENGTH), 0) > 0
        return False

    def said(self) -> bytes:
        """Return the holder's last words."""
        return os.pread(self._descriptor, _LENGTH, 0).strip()

    def add_line(self, line: str) -> None:
        """Add a line to a shared file, whole; on a full disk nobody is told."""
        with contextlib.suppress(OSError):
            if self._is_open:
                os.write(self._descriptor, line.encode().ljust(_LINE - 1) + b"\n")

    def lines_from(self, place: int) -> list[list[str]]:
        """Return the words of a shared file's lines from one on; none where it cannot be read."""
        with contextlib.suppress(OSError, ValueError):
            count = os.fstat(self._descriptor).st_size // _LINE - place if self._is_open else 0
            if count > 0:
                text = os.pread(self._descriptor, count * _LINE, place * _LINE).decode("ascii")
                return [text[start : start + _LINE].split() for start in range(0, len(text), _LINE)]
        return []

    def release(self) -> None:
        """Give the claim up if it is held, and close its file; harmless if it was, and in a fork."""
        if not self._is_open:
            return
        if self.is_held:
            with contextlib.suppress(OSError):
                unlink_meeting_file(self._path)  # while it is locked: nobody else removes it
            with contextlib.suppress(OSError):
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        self._closing.run()


class FolderClaims:
    """Claims on operators, in one folder, which is made when it is needed. Threads and processes may share it.

    Args:
        folder: Where the files lie while operators are compiled.
        rank: This process's rank, to tell others.
    """

    def __init__(self, folder: Path, rank: int = 0) -> None:
        self.folder, self.rank = folder, rank

    @property
    def problem(self) -> str:
        """The files of somebody else where claims lie, which are not made there; empty if there are none."""
        return planted_files(self.folder)

    def take(self, key: Key, patience: float = math.inf) -> Claim | Holder:
        """Return the claim on an operator, or who has it; where there can be no claims, one that binds nobody.

        None of these holders is far: each is seen to end.
        """
        for _ in range(_TRIES):
            file = ClaimFile.opened(self.folder / (key.stem + SUFFIX))
            if file is None:
                return UNCLAIMED
            claim = self._locked(file)
            if claim is not file:
                file.release()
            if claim is not None:
                return claim
        return UNCLAIMED

    def close(self) -> None:
        """Remove the folder if nobody uses it."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()

    def _locked(self, file: ClaimFile) -> Claim | Holder | None:
        """Return the claim, its holder, or None if the file is no longer the one that others see."""
        with contextlib.suppress(OSError):  # there are no locks here
            if not file.is_own:
                return UNCLAIMED  # it is left as it is
            if not file.lock():
                return _holder(file)
            if not file.is_held:
                return None
            file.say(json.dumps({"process": os.getpid(), "host": os.uname().nodename, "rank": self.rank}).encode())
            return file
        return UNCLAIMED


class WeightClaims:
    """Claims on the packing of weights that are to be in one store; any thread may take them.

    All lie in one file: hundreds are taken in a start, and a file for each would cost more than they save.

    Args:
        folder: Where the file lies while somebody packs; made when it is needed.
        name: The store's.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / f"weights_{name}{SUFFIX}"
        self._offered: dict[str, tuple[int, int]] = {}
        self._read, self._reading = 0, Lock()

    @lazy_property
    def _file(self) -> ClaimFile | None:
        return ClaimFile.shared(self._path)

    def take(self, source: str) -> bool:
        """Return whether nobody else packs a source, named by a digest; then this process does."""
        return self._file is None or self._file.lock_byte(fcntl.F_WRLCK, _place(source))

    def give(self, source: str) -> None:
        """Give a claim up; harmless if there is none."""
        if self._file is not None:
            self._file.lock_byte(fcntl.F_UNLCK, _place(source))

    def offer(self, source: str, descriptor: int) -> None:
        """Tell others by which of this process's descriptors they have what a source packs to."""
        if self._file is not None:
            self._file.add_line(f"{source} {os.getpid()} {descriptor}")

    def offered(self, source: str) -> tuple[int, int] | None:
        """Return the process and the descriptor that were offered last for a source; None: none."""
        with self._reading:
            lines = [] if self._file is None else self._file.lines_from(self._read)
            self._read += len(lines)
            for line in lines:
                if len(line) == 3 and line[1].isdecimal() and line[2].isdecimal():
                    self._offered[line[0]] = int(line[1]), int(line[2])
            return self._offered.get(source)

    def close(self) -> None:
        """Give up all claims, and remove the file if nobody else has any."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.lock()
            self._file.release()


def _place(digest: str) -> int:
    return int(digest[:15], 16)  # no file has a byte beyond 2**63


class Flight:
    """The exclusive turn of a process at something that one process of a host does at a time.

    Attributes:
        said: How the turn ended that it waited for; empty: this process has to ask.
    """

    def __init__(self, file: ClaimFile | None = None, said: str = "") -> None:
        self._file, self.said = file, said
        self._things = 0

    def came(self) -> None:
        """Tell those who wait that something came, for which it is worth to wait on; any thread may."""
        self._things += 1
        self._say(b"%d" % self._things)

    def end(self, said: str) -> None:
        """Tell those who wait how it ended, if that spares them to ask; on a full disk they ask themselves."""
        self._say(_ENDED + said.encode())

    def _say(self, text: bytes) -> None:
        if self._file is not None:
            self._file.say(text)


class Flights:
    """Single flight: of several processes of a host that lack the same one asks for it, the others take its result.

    Whoever is next asks where the one before has died. Who has waited for long for one that says nothing more goes on
    alone. Threads and processes may share it.

    Args:
        folder: Where the files lie while somebody asks; made when it is needed.
        patience: For how long it is waited without a word; None: ``PATIENCE``.
        clock: Returns seconds.
        sleep: Lets so many of them pass.
    """

    def __init__(
        self,
        folder: Path,
        patience: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._folder = folder
        self._patience = PATIENCE if patience is None else patience
        self._clock, self._sleep = clock, sleep

    @contextlib.contextmanager
    def turn(self, name: str) -> Iterator[Flight]:
        """Wait until nobody else of this host asks for something, named as a file, and give the turn to ask."""
        file = ClaimFile.opened(self._folder / (name + SUFFIX))
        if file is None:
            yield Flight()
            return
        try:
            is_turn, said = self._wait_for_turn(file)
            yield Flight(file if is_turn else None, said)
        finally:
            file.release()

    def _wait_for_turn(self, file: ClaimFile) -> tuple[bool, str]:
        """Wait; return whether this process has the turn now, and the last message of the one whom it waited for."""
        with contextlib.suppress(OSError):  # there are no locks here
            if not file.is_own:
                return False, ""
            said, has_waited, pause = b"", False, _LEAST_PAUSE
            since = self._clock()
            while not file.lock():
                now, has_waited = file.said(), True
                if now != said:
                    said, since = now, self._clock()
                elif self._clock() - since >= self._patience:
                    return False, ""
                self._sleep(pause)
                pause = min(pause * _PAUSES_GROW, _LONGEST_PAUSE)
            last = file.said()
            ended = last.removeprefix(_ENDED).decode() if has_waited and last.startswith(_ENDED) else ""
            return file.is_held and file.say(b"0"), ended  # else he who ended removed it: others have another file now
        return False, ""


def sweep_claims(folder: Path) -> None:
    """Remove the claims that nobody holds, and the folder if none is left; those that cannot be removed stay."""
    try:
        with opened_folder(folder) as descriptor:
            names = [name for name in os.listdir(descriptor) if name.endswith(SUFFIX)]  # noqa: PTH208  no path
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            file = ClaimFile(folder / name, open_meeting_file(folder / name, _FLAGS))
            file.lock()
            file.release()
    with contextlib.suppress(OSError):
        folder.rmdir()


def _holder(file: ClaimFile) -> Holder:
    """Return the holder of a claim, as it says itself."""
    try:
        said = parse_json(file.said())
        return Holder(int(said["process"]), str(said["host"])[:255], int(said["rank"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Holder()  # it has not said so yet


def _close_inherited() -> None:
    """Close a fork's copies of its parent's descriptors, so that they end with the parent."""
    for closing in [*_OPEN.values()]:
        with contextlib.suppress(OSError):
            closing.run()
    _OPEN.clear()


os.register_at_fork(after_in_child=_close_inherited)
