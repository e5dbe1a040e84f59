"""The progress of ranks, which each tells in a small file, and waiting for the others while any of them makes some."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from opbuild.config import Config
from opbuild.errors import RankError
from opbuild.events import BuildFinished, BuildStarted, CompileFinished, CompileStarted, Event, Observer, Taken, Waiting
from opbuild.platform.files.meeting import publish_meeting_file, read_meeting_file
from opbuild.platform.files.trust import MEMO, parse_json
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass, field
from opbuild.text.plural import counted
from opbuild.text.visible import visible

FOLDER = "progress"
NOT_WAITING = -1


@dataclass(frozen=True)
class Snapshot:
    """The last state that a rank wrote.

    Attributes:
        state: ``running``, ``building`` or ``ended``.
        network: The network that it built last.
        compiling: The operators that it compiles.
        awaited: The operator that it waits for, if all that it lacks is compiled elsewhere.
        holder: Who compiles that.
        done: Operators that it compiled in this build.
        to_compile: Operators that this build compiles.
        waiting: The number of the operation that it waits for; -1: none.
        changes: Grows with each change.
    """

    state: str = "running"
    network: str = ""
    compiling: tuple[str, ...] = ()
    awaited: str = ""
    holder: str = ""
    done: int = 0
    to_compile: int = 0
    waiting: int = NOT_WAITING
    changes: int = 0

    @property
    def doing(self) -> str:
        """The present activity of the rank, for messages."""
        if self.awaited:
            return f"waits for {self.holder} to build {self.awaited}"
        if self.state == "building":
            return f"prepares {self.network}"
        if self.state == "ended":
            return "has ended"
        return f"runs, and built {self.network} last" if self.network else "runs, and has built nothing yet"


def read_snapshot(folder: Path, rank: int) -> Snapshot | None:
    """Return the last state that a rank wrote; None if there is none that can be read."""
    try:
        content = parse_json(read_meeting_file(folder / FOLDER / f"{rank}.json", MEMO))
        found = {name: type(usual)(content[name]) for name, usual in vars(Snapshot()).items()}
        return Snapshot(**{**found, "compiling": tuple(map(str, found["compiling"]))})
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return None


def write_snapshot(folder: Path, rank: int, snapshot: Snapshot) -> None:
    """Replace a rank's snapshot. A folder that is gone is no failure: nobody waits any more."""
    with contextlib.suppress(OSError):
        publish_meeting_file(folder / FOLDER / f"{rank}.json", json.dumps(vars(snapshot)).encode())


@dataclass
class RankProgress:
    """The progress of this rank; any thread may use it."""

    folder: Path
    rank: int
    _said: dict[str, Any] = field(default_factory=dict)
    _compiling: dict[str, None] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def observe(self, event: Event) -> None:
        """Take note of an event of a build."""
        if isinstance(event, BuildStarted):
            self.say(state="building", network=event.network, done=0, to_compile=event.to_compile)
        elif isinstance(event, CompileStarted):
            self.say(started=event.name)
        elif isinstance(event, CompileFinished):
            self.say(finished=event.name, done=event.done, to_compile=event.to_compile)
        elif isinstance(event, Taken):
            self.say(done=event.done, to_compile=event.to_compile)
        elif isinstance(event, Waiting):
            self.say(awaited=event.name, holder=event.holder)
        elif isinstance(event, BuildFinished):
            self.say(state="running")

    def say(self, started: str = "", finished: str = "", **changed: Any) -> None:
        """Write the present state again, with its changes."""
        with self._lock:
            if started:
                self._compiling[started] = None
            self._compiling.pop(finished, None)
            if changed.get("state") == "running":
                self._compiling.clear()
            same = {"awaited": "", "holder": "", "compiling": tuple(self._compiling)} | changed
            if "awaited" not in changed:  # to wait on is no progress
                same["changes"] = self._said.get("changes", 0) + 1
            self._said |= same
            write_snapshot(self.folder, self.rank, Snapshot(**self._said))


def progress_of(folder: Path, rank: int) -> RankProgress:
    """Return the progress of this process in a job; a fork has its own."""
    return _progress_of_process(folder, rank, os.getpid())


@cache
def _progress_of_process(folder: Path, rank: int, _process: int) -> RankProgress:
    return RankProgress(folder, rank)


def report_progress(config: Config, observer: Observer) -> Observer:
    """Return an observer of builds that also tells the other ranks of the job."""
    if config.job_folder is None:
        return observer
    progress = progress_of(config.job_folder, config.rank_id)

    def observe(event: Event) -> None:
        progress.observe(event)
        observer(event)

    return observe


FIRST_LINE = 3.0
EACH_LINE = 10.0
"""Seconds until the first line of a wait, and from one line to the next."""

LONGEST_STEP = 1.0
"""Seconds from one look to the next that count at most: a rank that was stopped itself has not waited."""


@dataclass
class Patience:
    """Judges one wait.

    Args:
        number: The number of the operation: who waits for this one or a later one has arrived.
        limit: Seconds without progress; ``inf`` for no limit.
    """

    rank: int
    size: int
    what: str
    number: int
    limit: float
    limit_name: str
    compile_timeout: float
    started: float
    _looked: float = field(init=False)
    _next_line: float = field(init=False)
    _idle: float = 0.0
    _changes: dict[int, int] = field(default_factory=dict)
    _compiling: dict[tuple[int, str], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._looked = self.started
        self._next_line = self.started + FIRST_LINE

    def look(self, now: float, ranks: Mapping[int, Snapshot | None]) -> list[str]:
        """Return the lines to say now; fail if a rank that is missing ended, or none made progress for too long."""
        missing = [rank for rank in range(self.size) if rank != self.rank and not self._arrived(ranks.get(rank))]
        self._idle += min(now - self._looked, LONGEST_STEP)
        self._looked = now
        for rank in range(self.size):
            if rank != self.rank and self._moves(rank, ranks.get(rank), now):
                self._idle = 0.0
        for rank in missing:
            snapshot = ranks.get(rank)
            if snapshot is not None and snapshot.state == "ended":
                raise RankError(
                    f"rank {rank} ended before it reached {self.what}",
                    "every rank must take part in each operation of all ranks",
                )
        if self._idle >= self.limit:
            raise self._too_long(missing, ranks)
        speaks = all(rank in missing for rank in range(self.rank))  # one of those who wait is enough
        if now < self._next_line or not speaks:
            return []
        self._next_line = now + EACH_LINE
        return [f"waiting for {self._describe(rank, ranks.get(rank), now)}" for rank in missing]

    def _arrived(self, snapshot: Snapshot | None) -> bool:
        return snapshot is not None and snapshot.waiting >= self.number

    def _moves(self, rank: int, snapshot: Snapshot | None, now: float) -> bool:
        """Return whether a rank made progress since the last look."""
        if snapshot is None:
            return False
        changed = self._changes.get(rank, snapshot.changes) != snapshot.changes
        self._changes[rank] = snapshot.changes
        names = (*snapshot.compiling, snapshot.awaited) if snapshot.awaited else snapshot.compiling
        known = {name: self._compiling.get((rank, name), now) for name in names}
        for key in [key for key in self._compiling if key[0] == rank]:
            del self._compiling[key]
        self._compiling.update({(rank, name): since for name, since in known.items()})
        return changed or any(now - since < self.compile_timeout for since in known.values())

    def _describe(self, rank: int, snapshot: Snapshot | None, now: float) -> str:
        if snapshot is None:
            return f"rank {rank}, which has said nothing yet"
        if snapshot.compiling:
            name = snapshot.compiling[0]
            seconds = now - self._compiling.get((rank, name), now)
            count = f"{snapshot.done} of {counted(snapshot.to_compile, 'operator')} done"
            return f"rank {rank}, which builds {name} (for {seconds:.0f} s; {count})"
        return f"rank {rank}, which {snapshot.doing}"

    def _too_long(self, missing: list[int], ranks: Mapping[int, Snapshot | None]) -> RankError:
        seconds = f"{self.limit:g} s"
        hint = f"look at what it does there; {self.limit_name} sets how long to wait"
        if not missing:
            return RankError(f"{self.what} did not end within {seconds} although all ranks reached it", hint)
        named = " and ".join(self._describe(rank, ranks.get(rank), self._looked) for rank in missing)
        return RankError(f"no rank made progress for {seconds} on the way to {self.what}: missing is {named}", hint)


SHORT = 0.5
"""Seconds of a wait in which nothing is looked at or said."""
POLL = 0.25

Ready = Callable[[float], bool]
"""Waits up to some seconds and returns whether what was waited for has come."""


class Waiter:
    """Waits for one operation after the other. The first two connect: the meeting, and the first that has data."""

    def __init__(self, config: Config, folder: Path | None) -> None:
        self._config = config
        self.folder = folder
        if folder is not None:
            progress_of(folder, config.rank_id).say()
        self._number = 0

    def wait(self, what: str, ready: Ready) -> None:
        """Wait until ``ready``.

        Raises:
            RankError: If a rank that is needed ended, or no rank made progress for too long.
        """
        number, self._number = self._number, self._number + 1
        if not ready(SHORT):
            self._report_while_waiting(what, number, ready)

    def _report_while_waiting(self, what: str, number: int, ready: Ready) -> None:
        config, folder = self._config, self.folder
        limit, name = config.connect_timeout, "HCCL_CONNECT_TIMEOUT"
        if number > 1:
            limit, name = config.exec_timeout or math.inf, "HCCL_EXEC_TIMEOUT"
        started = time.monotonic()
        patience = Patience(
            config.rank_id, config.rank_size, what, number, limit, name, config.compile_timeout, started
        )
        own = progress_of(folder, config.rank_id) if folder is not None else None
        if own is not None:
            own.say(waiting=number)
        try:
            while not ready(POLL):
                ranks = {} if folder is None else {r: read_snapshot(folder, r) for r in range(config.rank_size)}
                try:
                    lines = patience.look(time.monotonic(), ranks)
                except RankError:
                    if ready(POLL):  # the others were just faster: they went on, and one of them ended
                        return
                    raise
                sys.stderr.write("".join(f"opbuild: {visible(line)}\n" for line in lines))
                sys.stderr.flush()
        finally:
            if own is not None:
                own.say(waiting=NOT_WAITING)
