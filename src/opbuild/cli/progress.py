"""Progress of a build: a bar on a terminal, a plain line now and then where there is none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from opbuild.cli.build_state import BuildState
from opbuild.cli.interrupt import INTERRUPTS
from opbuild.cli.tables import say
from opbuild.events import BuildFinished, BuildStarted, Event, Observer, Warned
from opbuild.platform.background import begin
from opbuild.platform.background_writer import BACKGROUND_WRITER
from opbuild.text.plural import counted

QUIET_SECONDS = 10.0
"""A build without a terminal never stays silent for longer than this."""

PATIENCE = 2.0
"""Seconds after which a terminal shows that a model is being read; most are read sooner."""

REFRESH = 0.1
"""Seconds between two pictures of the bar."""


class BarProgress:
    """Draws a bar with the operators in work, from a while after ``begin`` or the first compile until ``close``.

    Args:
        console: A terminal.
        clock: Returns the time in seconds.
        patience: Seconds after which ``begin`` draws something although nothing is compiled yet.
    """

    def __init__(
        self, console: Console, clock: Callable[[], float] = time.monotonic, patience: float = PATIENCE
    ) -> None:
        self._console = console
        self.state = BuildState(clock)
        self._lock = threading.Lock()
        self._patience = patience
        self._ended = threading.Event()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[network]}", style="bold", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=20, table_column=Column(min_width=20)),
            TextColumn("{task.fields[count]}", table_column=Column(no_wrap=True, min_width=5)),
            TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True, min_width=9)),
            TextColumn("{task.fields[running]}", style="dim", markup=False, table_column=Column(no_wrap=True, ratio=1)),
            console=console,
            transient=True,
            expand=True,
            auto_refresh=False,  # the thread for it might be one too many
        )
        self._task: TaskID | None = None
        self._closed = False

    def __call__(self, event: Event) -> None:
        """Observe one event."""
        self.state.update(event)
        with suppress(OSError):  # the terminal is gone: the build goes on unseen
            if isinstance(event, Warned):
                self._console.print(Text(f"warning: {event.message}", style="yellow"))
            elif self._task is not None or (isinstance(event, BuildStarted) and event.to_compile):
                self._draw()

    def begin(self) -> None:
        """Draw something if nothing is compiled for a while."""
        begin(self._show_later, "opbuild-progress")

    def close(self) -> None:
        """Take the bar away; the report shows the result."""
        self._ended.set()
        with self._lock:
            if self._task is not None:
                with suppress(OSError):
                    self._progress.stop()
                    self._progress.remove_task(self._task)
                self._task = None
            self._closed = True

    def _refresh(self) -> None:
        """Let the spinner turn."""
        with self._lock, suppress(OSError):
            if not self._closed:
                self._progress.refresh()

    def _show_later(self) -> None:
        if not self._ended.wait(self._patience):
            with suppress(OSError):
                self._draw()

    def _draw(self) -> None:
        """Show the bar, or its new state."""
        state = self.state
        if state.compiling or not state.step.total:
            done, total, count = state.done, state.to_compile or None, f"{state.done}/{state.to_compile}"
            step = state.step_text
        else:
            done, total = state.step.done, state.step.total
            step = state.step.step if done < total else state.step_text
            count = "{}/{} MB".format(*state.step_megabytes)
        left, doing = state.left, ", ".join(filter(None, (step, state.compiled_by)))
        shown: dict[str, Any] = {
            "network": state.network,
            "count": count if total else "",
            "left": f"{duration(left)} left" if left is not None else "",
            "running": doing,
        }
        with self._lock:
            if self._closed:
                return
            if self._task is None:
                self._progress.start()
                self._task = self._progress.add_task("", total=total, completed=done, **shown)
                begin(lambda: ticking(self._ended, REFRESH, REFRESH, self._refresh), "opbuild-progress")
            else:
                self._progress.update(self._task, total=total, completed=done, refresh=True, **shown)


class LineProgress:
    """Writes a line when a build starts, when it ends, and at least every ten seconds from ``begin`` until ``close``.

    Args:
        write: Takes one line without its end.
        interval: Seconds between lines.
        clock: Returns the time in seconds.
        ends: Whether to write the lines at the start and at the end.
    """

    def __init__(
        self,
        write: Callable[[str], None],
        interval: float = QUIET_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        *,
        ends: bool = True,
    ) -> None:
        self._write = write
        self._interval = interval
        self._ends = ends
        self.state = BuildState(clock)
        self._stop = threading.Event()
        self._closed = False

    def __call__(self, event: Event) -> None:
        """Observe one event."""
        self.state.update(event)
        match event:
            case Warned():
                self._write(f"warning: {event.message}")
            case BuildStarted(network=network, total=total, to_compile=to_compile) if to_compile:
                if self._ends:
                    self._write(f"{network}: {to_compile} of {counted(total, 'operator')} to compile")
                self.begin()
            case BuildFinished(network=network, built=built, reused=reused, seconds=seconds):
                if self._ends:
                    self._write(f"{network}: {counted(built, 'operator')} built, {reused} reused, {seconds:.2f} s")

    def tick(self) -> None:
        """Write where the build is."""
        state = self.state
        before = f"{state.network}: " if state.network else ""
        done = state.interrupted if state.compiling else ""
        left = f"about {duration(state.left)} left" if state.left is not None else ""
        doing = f"compiling {state.compiled_by}" if state.running else state.compiled_by
        self._write(before + ", ".join(filter(None, (done, state.step_text, duration(state.elapsed), left, doing))))

    def close(self) -> None:
        """End the lines in between, also those of builds to come: a segment of a network may be built as it runs."""
        self._closed = True
        self._stop.set()

    def begin(self) -> None:
        """Begin with the lines in between; each comes an interval after the one before."""
        self._stop.set()
        if self._closed:
            return
        stop = self._stop = threading.Event()
        begin(lambda: ticking(stop, self._interval, self._interval, self.tick), "opbuild-progress")


@contextmanager
def build_progress(console: Console, *, ends: bool = True) -> Iterator[Observer]:
    """Give an observer that shows a build on ``console`` as suits it; at the end all is stored, and cleaned up after.

    Args:
        console: Where to show it; the standard error, so that output stays clean.
        ends: Whether to write, without a terminal, when a build starts and ends; if not, only long ones write anything.
    """
    observer: BarProgress | LineProgress
    if console.is_terminal:
        observer = BarProgress(console)
    else:

        def write(line: str) -> None:
            with suppress(OSError):  # nobody reads, a full disk: the build goes on unseen
                say(line, console, soft_wrap=True)

        observer = LineProgress(write, ends=ends)
    observer.begin()
    try:
        with INTERRUPTS.described(lambda: observer.state.interrupted):
            yield observer
            BACKGROUND_WRITER.finish()
    finally:
        observer.close()


def ticking(stop: threading.Event, first: float, interval: float, call: Callable[[], object]) -> None:
    """Call a function after some seconds, and then again each interval, until ``stop`` is set."""
    while not stop.wait(first):
        call()
        first = interval


def duration(seconds: float) -> str:
    """Return a time for people: ``8 s``, ``2 min 05 s``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
