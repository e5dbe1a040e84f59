"""Builds for several devices: the operators of each are compiled by its own builder, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from opbuild.builder.job import OperatorJob
from opbuild.builder.result import BuildResult
from opbuild.events import BuildFinished, Event, Observer
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.records import replace


class UnderWay(Protocol):
    """A build under way, of one device or of several.

    Attributes:
        jobs: What must be compiled.
    """

    jobs: list[OperatorJob]

    def result(self) -> BuildResult:
        """Wait for the build and return its result; may be called again.

        Raises:
            CompileError, BuildError: As ``Work.result``.
        """


def of_device(needed: Mapping[OpDesc, tuple[str, ...]], device: str) -> dict[OpDesc, tuple[str, ...]]:
    """Return those operators of a network that are for one class of devices, with the nodes that need them."""
    return {desc: nodes for desc, nodes in needed.items() if desc.device == device}


def without_end(observer: Observer) -> Observer:
    """Return an observer that tells another one everything but that a build has ended: it is one of several."""

    def observe(event: Event) -> None:
        if not isinstance(event, BuildFinished):
            observer(event)

    return observe


class SeveralWorks:
    """Builds under way that are one network's.

    Args:
        works: The builds, the CPU's first.
        order: All operators in the order in which they were given.
        network: The network's name.
        observer: Told when all have ended.
    """

    def __init__(self, works: Sequence[UnderWay], order: Sequence[OpDesc], network: str, observer: Observer) -> None:
        self._works, self._order, self._network, self._observer = works, order, network, observer
        self._result: BuildResult | None = None
        self.jobs = [job for work in works for job in work.jobs]

    def result(self) -> BuildResult:
        """Wait for all and return their results; see ``UnderWay``."""
        if self._result is None:
            result = self._result = self._joined()
            self._observer(BuildFinished(self._network, result.built, result.reused, result.seconds))
        return self._result

    def _joined(self) -> BuildResult:
        results, failed = [], []
        for work in self._works:
            try:
                results.append(work.result())
            except Exception as error:  # what others compile is kept all the same
                failed.append(error)
        if failed:
            raise failed[0]
        entries = {desc: entry for result in results for desc, entry in result.entries.items()}
        decisions = {job.desc: job for result in results for job in result.decisions}
        return replace(
            results[0],
            entries={desc: entries[desc] for desc in self._order if desc in entries},
            decisions=tuple(decisions[desc] for desc in self._order if desc in decisions),
            seconds=max(result.seconds for result in results),
            warnings=tuple(warning for result in results for warning in result.warnings),
            certain=all(result.certain for result in results),
        )
