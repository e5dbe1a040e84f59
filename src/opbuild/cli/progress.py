"""Progress of a build: a bar on a terminal, a plain line now and then where there is none."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from opbuild.background import begin
from opbuild.cli.interrupt import INTERRUPTS
from opbuild.events import (
    BuildFinished,
    BuildStarted,
    CompileFinished,
    CompileStarted,
    Event,
    Observer,
    Taken,
    Waiting,
    Warned,
)
from opbuild.plural import counted

QUIET_SECONDS = 10.0
"""A build without a terminal never stays silent for longer than this."""

PATIENCE = 2.0
"""Seconds after which a terminal shows that a model is being read; most are read sooner."""

REFRESH = 0.1
"""Seconds between two pictures of the bar."""

READING, ENDING = "reading the model", "putting the network together"
"""What happens before the first operator is looked at, and after the last one is there."""


class BuildState:
    """What a build is doing, kept from its events.

    Args:
        clock: Returns the time in seconds.

    Attributes:
        network: The network's name; empty before the build started.
        done: Operators compiled so far, here or by others.
        to_compile: Operators to compile in all.
        running: Names of the operators that workers compile now, in the order they began.
        waiting: Names of the operators that others compile for this build, with who does it.
        ending: Whether all operators are there: what is left is to link them and to pack weights.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self.network = ""
        self.done = 0
        self.to_compile = 0
        self.running: list[str] = []
        self.waiting: dict[str, str] = {}
        self.ending = False

    def update(self, event: Event) -> None:
        """Take one event into account."""
        match event:
            case BuildStarted():
                self.network, self.done, self.to_compile = event.network, 0, event.to_compile
                self.running, self.waiting, self.ending = [], {}, event.to_compile == 0
                self._started = self._clock()
            case CompileStarted():
                self.running.append(event.name)
                self.waiting.pop(event.name, None)
            case Waiting():
                self.waiting[event.name] = event.holder
            case Taken():
                self.done, self.to_compile = event.done, event.to_compile
                self.waiting.pop(event.name, None)
            case CompileFinished():
                self.done, self.to_compile = event.done, event.to_compile
                if event.name in self.running:
                    self.running.remove(event.name)
            case BuildFinished():
                self.running, self.waiting, self.ending = [], {}, True
            case _:
                pass

    @property
    def interrupted(self) -> str:
        """How far it got; empty while there is nothing to count."""
        return f"{self.done} of {counted(self.to_compile, 'operator')} compiled" if self.to_compile else ""

    @property
    def elapsed(self) -> float:
        """Seconds since the build started; before it did, since it is watched."""
        return self._clock() - self._started

    @property
    def left(self) -> float | None:
        """Seconds until all operators are compiled if they go on as they did; None before the first is."""
        return self.elapsed / self.done * (self.to_compile - self.done) if self.done else None


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
        self._begun = threading.Event()
        self._ended = threading.Event()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.fields[network]}", style="bold", markup=False, table_column=Column(no_wrap=True)),
            BarColumn(bar_width=20, table_column=Column(min_width=20)),
            MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=5)),
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
            self._show(event)

    def _show(self, event: Event) -> None:
        if isinstance(event, Warned):
            self._console.print(Text(f"warning: {event.message}", style="yellow"))
        elif isinstance(event, BuildStarted):
            self._begun.set()
            if event.to_compile:
                self._draw(total=event.to_compile, network=event.network, running="", left="")
        elif self._task is not None:
            left = self.state.left
            self._progress.update(
                self._task,
                completed=self.state.done,
                running=ENDING if self.state.ending else _doing(self.state),
                left="" if left is None or self.state.ending else f"{duration(left)} left",
                refresh=True,
            )

    def begin(self) -> None:
        """Draw something if nothing is compiled for a while."""
        begin(self._show_reading, "opbuild-progress")

    def close(self) -> None:
        """Take the bar away; what was built is shown by the report."""
        self._begun.set()
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
        while not self._ended.wait(REFRESH):
            with self._lock, suppress(OSError):
                if not self._closed:
                    self._progress.refresh()

    def _show_reading(self) -> None:
        if not self._begun.wait(self._patience) and not self.state.network:
            with suppress(OSError):
                self._draw(total=None, network="", running=READING, left="")

    def _draw(self, *, total: int | None, **fields: Any) -> None:
        """Show the bar, or what it shows from now on."""
        with self._lock:
            if self._closed:
                return
            if self._task is None:
                self._progress.start()
                self._task = self._progress.add_task("", total=total, **fields)
                begin(self._refresh, "opbuild-progress")
            elif total is not None:
                self._progress.update(self._task, total=total, **fields)


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
        self._stop: threading.Event | None = None

    def __call__(self, event: Event) -> None:
        """Observe one event."""
        self.state.update(event)
        match event:
            case Warned():
                self._write(f"warning: {event.message}")
            case BuildStarted(network=network, total=total, to_compile=to_compile) if to_compile:
                if self._ends:
                    self._write(f"{network}: {to_compile} of {total} operators to compile")
                self.begin()
            case BuildFinished(network=network, built=built, reused=reused, seconds=seconds):
                if self._ends:
                    self._write(f"{network}: {built} operators built, {reused} reused, {seconds:.2f} s")
            case _:
                pass

    def tick(self) -> None:
        """Write where the build is."""
        state = self.state
        if not state.network:
            self._write(f"{READING}, {duration(state.elapsed)}")
            return
        if state.ending:
            self._write(f"{state.network}: {ENDING}, {duration(state.elapsed)}")
            return
        left = "" if state.left is None else f", about {duration(state.left)} left"
        doing = f", compiling {_names(state.running)}" if state.running else _doing(state) and f", {_doing(state)}"
        done = f"{state.done} of {state.to_compile} operators compiled"
        self._write(f"{state.network}: {done}, {duration(state.elapsed)}{left}{doing}")

    def close(self) -> None:
        """End the lines in between."""
        if self._stop is not None:
            self._stop.set()
            self._stop = None

    def begin(self) -> None:
        """Begin with the lines in between; each comes an interval after the one before."""
        self.close()
        stop = self._stop = threading.Event()

        def ticking() -> None:
            while not stop.wait(self._interval):
                self.tick()

        begin(ticking, "opbuild-progress")


@contextmanager
def build_progress(console: Console, *, ends: bool = True) -> Iterator[Observer]:
    """Give an observer that shows a build on ``console`` as suits it, and clean up after it.

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
                console.print(line, markup=False, highlight=False, soft_wrap=True)

        observer = LineProgress(write, ends=ends)
    observer.begin()
    try:
        with INTERRUPTS.described(lambda: observer.state.interrupted):
            yield observer
    finally:
        observer.close()


def duration(seconds: float) -> str:
    """Return a time for people: ``8 s``, ``2 min 05 s``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _doing(state: BuildState) -> str:
    """Return what is compiled here, or who compiles what this build waits for."""
    if state.running or not state.waiting:
        return _names(state.running)
    name, holder = next(iter(state.waiting.items()))
    more = f" and {len(state.waiting) - 1} more" if len(state.waiting) > 1 else ""
    return f"waiting for {_names([name])}{more}, which {holder} compiles"


def _names(running: list[str]) -> str:
    """Return the operators' types; the numbers in their names say nothing while one waits."""
    shown = ", ".join(re.sub(r"_\d+_\d+$", "", name) for name in running[:3])
    return shown + (f" and {len(running) - 3} more" if len(running) > 3 else "")
