"""The state of a build, kept from its events, in words and numbers for who waits."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from opbuild.events import (
    LINKING,
    PACKING,
    BuildFinished,
    BuildStarted,
    CompileFinished,
    CompileStarted,
    Event,
    Taken,
    Waiting,
    Working,
)
from opbuild.text.plural import counted

READING, ENDING = "reading the model", "putting the network together"
"""What happens before a build says what it does, and after its operators are there."""

_MB = 10**6
_FORETELLING = 1.0
"""Seconds after which what was done says how long the rest takes."""


class BuildState:
    """The state of a build.

    Args:
        clock: Returns the time in seconds.

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
        known = [self._left(self._started, self.done, self.to_compile)] if self.compiling else []
        if self._counts_bytes:
            known.append(self._left(self._step_started, self.step.done, self.step.total))
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
        if self.running or not self.waiting:
            return _names(self.running)
        name, holder = next(iter(self.waiting.items()))
        more = f" and {len(self.waiting) - 1} more" if len(self.waiting) > 1 else ""
        return f"waiting for {_names([name])}{more}, which {holder} compiles"

    @property
    def _counts_bytes(self) -> bool:
        return 0 < self.step.total > self.step.done

    def _left(self, started: float, done: int, total: int) -> float | None:
        passed = self._clock() - started
        return passed / done * (total - done) if done and passed >= _FORETELLING else None


def _names(running: list[str]) -> str:
    """Return the operators' types; the numbers in their names say nothing while one waits."""
    shown = ", ".join(re.sub(r"_\d+_\d+$", "", name) for name in running[:3])
    return shown + (f" and {len(running) - 3} more" if len(running) > 3 else "")
