"""A build under way: what it comes to when everything is compiled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from time import perf_counter
from typing import cast

from opbuild.builder.job import Job
from opbuild.builder.result import BuildResult
from opbuild.builder.work import Work
from opbuild.events import BuildFinished, Warned
from opbuild.kernel.entry import Entry
from opbuild.text.plural import counted, verb


class PendingBuild:
    """A build under way; ``Builder.start`` makes it.

    Args:
        network: The network's name, for events.
        jobs: All operators.
        work: Compiles those that must be.
        after: Called when all are there; returns the compiler's runtime library, if they call it.
        started: When the build began.
        not_kept: Entries that other stores lend and that could not be stored.
    """

    def __init__(
        self,
        network: str,
        jobs: Sequence[Job],
        work: Work,
        after: Callable[[Collection[Job]], BuildResult | None],
        *,
        started: float,
        not_kept: int,
    ) -> None:
        self._network = network
        self._jobs = jobs
        self._work = work
        self._after = after
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
        runtime = self._after(self._jobs)
        entries = {job.desc: cast("Entry", job.entry) for job in self._jobs}
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
