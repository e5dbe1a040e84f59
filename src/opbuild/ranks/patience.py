"""Waiting for the other ranks, with a clock that runs only while no rank makes progress.

Progress is a change of what a rank says of itself (an operator finished, a build begun or ended, a rank that arrived),
or an operator that has been compiling for less than the time that one compile may take. That a process exists is none.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping

from opbuild.config import Config
from opbuild.errors import RankError
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass, field
from opbuild.ranks.progress import NOT_WAITING, Snapshot, progress_of, read_snapshot
from opbuild.text.plural import counted
from opbuild.text.visible import visible

FIRST_LINE = 3.0
EACH_LINE = 10.0
"""Seconds until the first line of a wait, and from one line to the next."""

LONGEST_STEP = 1.0
"""Seconds from one look to the next that count at most: a rank that was stopped itself has not waited."""


@dataclass
class Patience:
    """Judges one wait.

    Args:
        rank: Who waits.
        size: The number of ranks.
        what: What for, for messages.
        number: The number of the operation: who waits for this one or a later one has arrived.
        limit: Seconds without progress; ``inf`` for no limit.
        limit_name: The variable that sets it.
        compile_timeout: Seconds that one compile may take.
        started: When the wait began.
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
        """Return the lines to say now.

        Args:
            now: The time, on the clock of ``started``.
            ranks: What each rank says of itself; None or absent: nothing.

        Raises:
            RankError: If a rank that is waited for ended, or no rank made progress for too long; it names the rank.
        """
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
    """Waits for one operation after the other. The first two connect: the meeting, and the first that has data.

    Args:
        config: The rank, the number of ranks and the limits.
        folder: The job's folder; None: nothing is known of the others.

    Attributes:
        folder: The same; it may become known later.
    """

    def __init__(self, config: Config, folder: Path | None) -> None:
        self._config = config
        self.folder = folder
        if folder is not None:
            progress_of(folder, config.rank_id).say()
        self._number = 0

    def wait(self, what: str, ready: Ready) -> None:
        """Wait until ``ready``.

        Args:
            what: What for, for messages.
            ready: Waits a little.

        Raises:
            RankError: If a rank that is needed ended, or no rank made progress for too long.
        """
        number, self._number = self._number, self._number + 1
        if not ready(SHORT):
            self._wait_long(what, number, ready)

    def _wait_long(self, what: str, number: int, ready: Ready) -> None:
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
