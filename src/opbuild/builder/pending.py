"""A build under way: what it comes to when everything is compiled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Protocol, cast

from opbuild.builder.job import Job
from opbuild.builder.result import BuildResult
from opbuild.builder.work import Work
from opbuild.events import BuildFinished, Warned
from opbuild.kernel.entry import Entry
from opbuild.text.plural import counted, verb


class Rest(Protocol):
    """What a finished build still needs of its builder.

    Attributes:
        rebuilt: Digests of the keys that were compiled; added to.
    """

    rebuilt: set[str]

    def needs_runtime(self, entries: Iterable[Entry], /) -> bool:
        """Return whether some object calls what only the compiler's runtime library has."""

    def build_runtime(self) -> BuildResult:
        """Build the compiler's runtime library and wait."""


class PendingBuild:
    """A build under way; ``Builder.start`` makes it.

    Args:
        builder: Whose it is.
        network: The network's name, for events.
        jobs: All operators.
        work: Compiles those that must be.
        started: When the build began.
        not_kept: Entries that other stores lend and that could not be stored.
    """

    def __init__(
        self, builder: Rest, network: str, jobs: Sequence[Job], work: Work, *, started: float, not_kept: int
    ) -> None:
        self._builder = builder
        self._network = network
        self._jobs = jobs
        self._work = work
        self._started = started
        self._not_kept = not_kept
        self._result: BuildResult | None = None

    def result(self) -> BuildResult:
        """Wait for the build and return what it delivered; may be called again.

        Raises:
            CompileError: If operators could not be compiled; names each with its nodes and the step that failed. All
                others were compiled and stored.
            BuildError: If the compiler could not be loaded.
        """
        if self._result is None:
            result = self._result = self._collect(self._work.join())
            self._work.observer(BuildFinished(self._network, result.built, result.reused, result.seconds))
        return self._result

    def _collect(self, warnings: tuple[str, ...]) -> BuildResult:
        self._builder.rebuilt.update(job.key.sha256 for job in self._work.jobs)
        entries = {job.desc: cast("Entry", job.entry) for job in self._jobs}
        runtime = self._builder.build_runtime() if self._builder.needs_runtime(entries.values()) else None
        decisions = tuple(job.finished() for job in self._jobs)
        warned = (*self._own_warnings(), *warnings, *(runtime.warnings if runtime else ()))
        certain = self._work.certain and (runtime is None or runtime.certain)
        return BuildResult(entries, runtime, decisions, perf_counter() - self._started, warned, certain)

    def _own_warnings(self) -> tuple[str, ...]:
        if not self._not_kept:
            return ()
        entries = counted(self._not_kept, "entry", "entries")
        problem = f"{entries} of other ranks {verb(self._not_kept, 'is', 'are')} used but could not be stored here"
        self._work.observer(Warned(problem))
        return (problem,)
