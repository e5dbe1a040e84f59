"""Progress of a command that goes through many files: a bar on a terminal, a line now and then where there is none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

from opbuild.cli.interrupt import INTERRUPTS
from opbuild.cli.progress import PATIENCE, QUIET_SECONDS, duration, ticking
from opbuild.cli.tables import say
from opbuild.cli.terminal import Terminal
from opbuild.platform.background import begin

_REDRAW_SECONDS = 0.1


class Count:
    """The progress of a command. It is told by being called (``events.Watch``), from any thread.

    Args:
        doing: What it does with each item, e.g. ``removing``.
        past: The same, done, e.g. ``removed``.
        rest: What there is to say of the rest when it is interrupted.
        clock: Returns the time in seconds.

    Attributes:
        done: Number of items that are done.
        total: Number of items; None while they are listed.
    """

    def __init__(self, doing: str, past: str, rest: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.doing = doing
        self.past = past
        self.rest = rest
        self.done = 0
        self.total: int | None = None
        self._clock = clock
        self._started = self._listed = clock()

    def __call__(self, done: int, total: int) -> None:
        """Take note of how far it is."""
        if done == 0 or self.total is None:
            self._listed = self._clock()
        self.done, self.total = max(done, self.done) if total == self.total else done, total

    @property
    def left(self) -> str:
        """The time left at the same pace, for people; empty while that is not known."""
        if not self.done or not self.total:
            return ""
        return duration((self._clock() - self._listed) / self.done * (self.total - self.done))

    @property
    def line(self) -> str:
        """One line that says how far it is."""
        elapsed = duration(self._clock() - self._started)
        if self.total is None:
            return f"listing the cache, {elapsed}"
        left = f", about {self.left} left" if self.left else ""
        return f"{self.doing}: {self.done} of {self.total}, {elapsed}{left}"

    @property
    def interrupted(self) -> str:
        """The progress when it was interrupted."""
        so_far = f"{self.done} of {self.total} {self.past}" if self.total is not None else f"nothing {self.past} yet"
        return f"{so_far}; {self.rest}"


class _Lines:
    """Writes a line now and then."""

    first = interval = QUIET_SECONDS

    def __init__(self, console: Console, count: Count) -> None:
        self._console = console
        self._count = count

    def show(self) -> None:
        say(self._count.line, self._console, soft_wrap=True)

    def close(self) -> None:
        """Take away lines that should not stay."""


class _Bar(_Lines):
    """Draws a bar that goes again."""

    first, interval = PATIENCE, _REDRAW_SECONDS

    def __init__(self, console: Console, count: Count) -> None:
        super().__init__(console, count)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}", markup=False),
            console=console,
            transient=True,
        )
        self._task = self._progress.add_task("listing the cache", total=None, left="")

    def show(self) -> None:
        self._progress.start()
        count = self._count
        if count.total is not None:
            left = f"{count.left} left" if count.left else ""
            self._progress.update(
                self._task, description=count.doing, completed=count.done, total=count.total, left=left
            )

    def close(self) -> None:
        self._progress.stop()


@contextmanager
def count_progress(doing: str, past: str, rest: str, console: Console | None = None) -> Iterator[Count]:
    """Give a watch that shows on ``console``, as suits it, how far a command is, and how far it got if interrupted.

    Args:
        doing: What the command does with each item, e.g. ``removing``.
        past: The same, done.
        rest: What there is to say of the rest when the command is interrupted.
        console: Where to show it; None: the standard error, so that output stays clean.
    """
    console = console or Terminal(stderr=True)
    count = Count(doing, past, rest)
    shown = (_Bar if console.is_terminal else _Lines)(console, count)
    stop = threading.Event()
    thread = begin(lambda: ticking(stop, shown.first, shown.interval, shown.show), "opbuild-progress")
    try:
        with INTERRUPTS.described(lambda: count.interrupted):
            yield count
    finally:
        stop.set()
        if thread:
            thread.join()
        shown.close()
