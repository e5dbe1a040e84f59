"""A build under way: what was decided, and what it comes to when everything is compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, cast

from opbuild.builder.decide import Decision, Rebuild, UpToDate
from opbuild.builder.job import Job
from opbuild.builder.result import BuildResult
from opbuild.builder.work import Work
from opbuild.events import BuildFinished, Observer, Warned
from opbuild.kernel.entry import Entry
from opbuild.kernel.key import Key
from opbuild.kernel.opdesc import OpDesc
from opbuild.kernel.reason import Reason
from opbuild.text.plural import counted, verb

if TYPE_CHECKING:
    from opbuild.builder.build import Builder

REUSED = Reason("stored", "in the store")


@dataclass(frozen=True)
class Plan:
    """One operator of a build, decided: its key, its entry's name, the nodes that need it, and what must be done.

    ``debug`` are the options that it is debugged with; None if it is not.
    """

    desc: OpDesc
    key: Key
    name: str
    nodes: tuple[str, ...]
    decision: UpToDate | Rebuild
    debug: tuple[str, ...] | None = None


class PendingBuild:
    """A build under way; ``Builder.start`` makes it."""

    def __init__(
        self,
        builder: Builder,
        network: str,
        plans: Sequence[Plan],
        observer: Observer,
        *,
        work: Work,
        started: float,
        not_kept: int,
    ) -> None:
        self._builder = builder
        self._network = network
        self._plans = plans
        self._observer = observer
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
            self._observer(BuildFinished(self._network, result.built, result.reused, result.seconds))
        return self._result

    def _collect(self, warnings: tuple[str, ...]) -> BuildResult:
        delivered = self._work.delivered()
        self._builder.rebuilt.update(job.key.sha256 for job in delivered.values())
        finished = {plan.desc: _finished(plan, delivered) for plan in self._plans}
        entries = {desc: entry for desc, (entry, _) in finished.items()}
        runtime = self._builder.build_runtime() if self._builder.needs_runtime(entries.values()) else None
        decisions = tuple(decision for _, decision in finished.values())
        seconds = perf_counter() - self._started
        warned = (*self._own_warnings(), *warnings, *(runtime.warnings if runtime else ()))
        certain = self._work.certain and (runtime is None or runtime.certain)
        return BuildResult(entries, runtime, decisions, seconds, warned, certain)

    def _own_warnings(self) -> tuple[str, ...]:
        if not self._not_kept:
            return ()
        entries = counted(self._not_kept, "entry", "entries")
        problem = f"{entries} of other ranks {verb(self._not_kept, 'is', 'are')} used but could not be stored here"
        self._observer(Warned(problem))
        return (problem,)


def _finished(plan: Plan, delivered: Mapping[OpDesc, Job]) -> tuple[Entry, Decision]:
    if isinstance(plan.decision, UpToDate):
        entry, source = plan.decision.entry, plan.decision.source
        if not source:
            return entry, Decision(plan.desc, entry.name, plan.nodes, "reused", REUSED, 0.0)
        reason = Reason("shared", f"taken from {source}")
        return entry, Decision(plan.desc, entry.name, plan.nodes, "shared", reason, 0.0)
    job = delivered[plan.desc]
    entry = cast("Entry", job.entry)
    if job.taken:
        return entry, Decision(plan.desc, entry.name, plan.nodes, "shared", job.reason, 0.0)
    return entry, Decision(plan.desc, entry.name, plan.nodes, "built", job.reason, entry.milliseconds)
