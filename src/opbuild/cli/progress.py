"""Progress of builds, and of commands that go through files: a bar on a terminal, else a plain line now and then."""

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

from opbuild.cli.interrupt import INTERRUPTS
from opbuild.cli.tables import Terminal, say
from opbuild.events import (
    LINKING,
    PACKING,
    BuildFinished,
    BuildStarted,
    CompileFinished,
    CompileStarted,
    Event,
    Observer,
    Taken,
    Waiting,
    Warned,
    Working,
)
from opbuild.platform.background import BACKGROUND_WRITER, begin
from opbuild.text.plural import counted, first_of

READING, ENDING = "reading the model", "putting the network together"
"""What happens before a build says what it does, and after its operators are there."""

_MB = 10**6
_FORETELLING = 1.0
"""Seconds after which what was done says how long the rest takes."""


class BuildState:
    """The state of a build.

    Attributes:
        network: The network's name; empty before the build started.
        done: Operators compiled so far, here or by others.
        to_compile: Operators to compile in all.
        running: Names of the operators that workers compile now, in the order they began.
        waiting: Names of the operators that others compile for this build, with who does it.
        step: What goes on besides compiling.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started = self._step_started = clock()
        self.network = ""
        self.done = 0
        self.to_compile = 0
        self.running: list[str] = []
        self.waiting: dict[str, str] = {}
        self.step = Working(READING)

    def update(self, event: Event) -> None:
        """Take one event into account."""
        match event:
            case BuildStarted():
                self.network, self.done, self.to_compile = event.network, 0, event.to_compile
                self.running, self.waiting = [], {}
                self._started = self._step_started = self._clock()
                self.step = Working(ENDING)
            case CompileStarted():
                self.running.append(event.name)
                self.waiting.pop(event.name, None)
            case Waiting():
                self.waiting[event.name] = event.holder
            case Taken() | CompileFinished():
                self.done, self.to_compile = event.done, event.to_compile
                self.waiting.pop(event.name, None)
                if event.name in self.running:
                    self.running.remove(event.name)
            case BuildFinished():
                self.running, self.waiting, self.done = [], {}, self.to_compile
            case Working():
                if event.step != self.step.step:
                    self._step_started = self._clock()
                self.step = event

    @property
    def compiling(self) -> bool:
        """Whether operators are to be compiled still."""
        return self.done < self.to_compile

    @property
    def interrupted(self) -> str:
        """The progress when it was interrupted; empty while there is nothing to count."""
        return f"{self.done} of {counted(self.to_compile, 'operator')} compiled" if self.to_compile else ""

    @property
    def elapsed(self) -> float:
        """Seconds since the build started; before it did, since it is watched."""
        return self._clock() - self._started

    @property
    def left(self) -> float | None:
        """Seconds until the shown step is done, at the same pace; None while that is not known.

        Linking and writing come after, and are shown as steps of their own.
        """
        known = [self._time_left(self._started, self.done, self.to_compile)] if self.compiling else []
        if self._counts_bytes:
            known.append(self._time_left(self._step_started, self.step.done, self.step.total))
        seconds = [each for each in known if each is not None]
        return max(1.0, *seconds) if seconds and len(seconds) == len(known) else None

    @property
    def step_text(self) -> str:
        """The step that is done besides compiling, and its progress; empty if the build waits for compiling alone."""
        if self._counts_bytes:
            done, total = self.step_megabytes
            return f"{self.step.step}: {done} of {total} MB"
        if not self.step.total:
            return "" if self.compiling else self.step.step
        if self.compiling:
            return ""
        return LINKING if self.step.step == PACKING else self.step.step  # linking comes after packing

    @property
    def step_megabytes(self) -> tuple[int, int]:
        """The progress of the step besides compiling, in megabytes, and its total."""
        return self.step.done // _MB, -(-self.step.total // _MB)

    @property
    def compiled_by(self) -> str:
        """The operators that are compiled here, or the process that compiles those that this build waits for."""
        waiting = [*self.waiting.items()]  # as they are now: who builds goes on meanwhile
        if self.running or not waiting:
            return _names(self.running)
        name, holder = waiting[0]
        more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
        return f"waiting for {_names([name])}{more}, which {holder} compiles"

    @property
    def _counts_bytes(self) -> bool:
        return 0 < self.step.total > self.step.done

    def _time_left(self, started: float, done: int, total: int) -> float | None:
        passed = self._clock() - started
        return passed / done * (total - done) if done and passed >= _FORETELLING else None


def _names(running: list[str]) -> str:
    """Return the operators' types; the numbers in their names say nothing while one waits."""
    return first_of([re.sub(r"_\d+_\d+$", "", name) for name in running], 3)


QUIET_SECONDS = 10.0
"""A build without a terminal never stays silent for longer than this."""

PATIENCE = 2.0
"""Seconds after which a terminal shows that a model is being read; most are read sooner."""

REFRESH = 0.1
"""Seconds between two pictures of the bar."""


class BarProgress:
    """Draws a bar with the operators in work, from a while after ``begin`` or the first compile until ``close``."""

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
    """Writes a line each ten seconds from ``begin`` until ``close``, and where a build starts and ends, if wanted."""

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
    """Give an observer that shows a build on ``console`` as suits it, its ends too if wanted; then all is stored."""
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


@contextmanager
def shown_while(
    show: Callable[[], object], first: float, interval: float, interrupted: Callable[[], str]
) -> Iterator[None]:
    """Call a function as ``ticking`` does while a block runs, and say how far that got if it is interrupted."""
    stop = threading.Event()
    thread = begin(lambda: ticking(stop, first, interval, show), "opbuild-progress")
    try:
        with INTERRUPTS.described(interrupted):
            yield
    finally:
        stop.set()
        if thread:
            thread.join()


def duration(seconds: float) -> str:
    """Return a time for people: ``8 s``, ``2 min 05 s``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class Count:
    """The progress of a command, whose total is None while items are listed; any thread may tell it (``events.Watch``).

    Args:
        doing: What it does with each item, e.g. ``removing``.
        past: The same, done, e.g. ``removed``.
        rest: What there is to say of the rest when it is interrupted.
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

    first, interval = PATIENCE, REFRESH

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
    """Give the progress of a command, which is shown on a console, the standard error, and told if interrupted."""
    console = console or Terminal(stderr=True)
    count = Count(doing, past, rest)
    shown = (_Bar if console.is_terminal else _Lines)(console, count)
    try:
        with shown_while(shown.show, shown.first, shown.interval, lambda: count.interrupted):
            yield count
    finally:
        shown.close()
