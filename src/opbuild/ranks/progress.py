"""The progress of a rank: one small file for each rank in the job's folder, replaced at each event of a build."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from functools import cache
from typing import Any

from opbuild.config import Config
from opbuild.events import BuildFinished, BuildStarted, CompileFinished, CompileStarted, Event, Observer, Taken, Waiting
from opbuild.files.meeting import publish_met, read_met
from opbuild.files.trust import MEMO, parse_json
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass, field

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
        content = parse_json(read_met(folder / FOLDER / f"{rank}.json", MEMO))
        found = {name: type(usual)(content[name]) for name, usual in vars(Snapshot()).items()}
        return Snapshot(**{**found, "compiling": tuple(map(str, found["compiling"]))})
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return None


def write_snapshot(folder: Path, rank: int, snapshot: Snapshot) -> None:
    """Replace a rank's snapshot. A folder that is gone is no failure: nobody waits any more."""
    with contextlib.suppress(OSError):
        publish_met(folder / FOLDER / f"{rank}.json", json.dumps(vars(snapshot)).encode())


@dataclass
class RankProgress:
    """The progress of this rank; any thread may use it.

    Args:
        folder: The job's folder.
        rank: This rank.
    """

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
        """Write the present state again, with its changes.

        Args:
            started: An operator that begins to be compiled.
            finished: One that is compiled.
            changed: Fields of the snapshot.
        """
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
