"""Waits for the other ranks, and says so."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

from opbuild.config import Config
from opbuild.errors import RankError
from opbuild.ranks.patience import Patience
from opbuild.ranks.progress import NOT_WAITING, progress_of, read_snapshot

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
                sys.stderr.write("".join(f"opbuild: {line}\n" for line in lines))
                sys.stderr.flush()
        finally:
            if own is not None:
                own.say(waiting=NOT_WAITING)
