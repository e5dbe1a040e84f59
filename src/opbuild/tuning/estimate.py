"""Estimates of how long tuning takes: the candidates that are left, by what compiling and measuring cost so far."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from opbuild.platform.records import NamedTuple
from opbuild.tuning.search import DECIDING_RUNS, FIRST_RUNS

_TRUST = 1.0
"""Seconds of work after which what was measured counts as much as what was expected."""


class Costs(NamedTuple):
    """The seconds that are expected before anything was tried.

    Attributes:
        kernel: Of compiling one kernel, beside the others.
        form: Of making a form of the network and comparing its results.
        run: Of a pair of runs.
    """

    kernel: float
    form: float
    run: float

    def of_group(self, candidates: Collection[int]) -> tuple[float, float]:
        """Return the seconds of searching queries at once, by how many candidates each has: compiling, measuring."""
        forms, runs = _forms_and_runs(candidates)
        return sum(candidates) * self.kernel, forms * self.form + runs * self.run


def _forms_and_runs(candidates: Collection[int]) -> tuple[int, int]:
    """Return the forms that a search makes, and the pairs of runs of all of them: it halves the candidates."""
    left = [each for each in candidates if each]
    if not left:
        return 0, 0
    forms, runs, repeated = 1, DECIDING_RUNS, FIRST_RUNS
    while left:
        forms += max(left)
        runs += max(left) * repeated
        left = [half for each in left if (half := (each + 1) // 2) > 1]
        repeated *= 2
    return forms, runs


class _Work:
    """Work of one kind in expected seconds, corrected by the seconds that it took."""

    def __init__(self) -> None:
        self.ahead = self._done = self._took = 0.0

    @property
    def correction(self) -> float:
        """By how much more it takes than was expected."""
        return (self._took + _TRUST) / (self._done + _TRUST)

    def advance(self, expected: float, took: float) -> None:
        """Take note of what was done."""
        self._done += expected
        self._took += took
        self.ahead = max(self.ahead - expected, 0.0)


class Pace:
    """Tells how long the rest takes: compiling and measuring, each corrected by how long it took so far.

    Args:
        costs: What is expected.
        clock: Returns the time in seconds.
    """

    def __init__(self, costs: Costs, clock: Callable[[], float]) -> None:
        self._costs, self._clock = costs, clock
        self._compiling, self._measuring = _Work(), _Work()

    def plan(self, groups: Iterable[Collection[int]]) -> None:
        """Take note of all that is ahead: of each group how many candidates each query has."""
        each = [self._costs.of_group(group) for group in groups]
        self._compiling.ahead = sum(compiling for compiling, _ in each)
        self._measuring.ahead = sum(measuring for _, measuring in each)

    @contextmanager
    def compiling(self, kernels: int) -> Iterator[None]:
        """Take note of kernels that the block compiles."""
        began = self._clock()
        yield
        self._compiling.advance(kernels * self._costs.kernel, self._clock() - began)

    @contextmanager
    def measuring(self, runs: int) -> Iterator[None]:
        """Take note of a form that the block makes, with its pairs of runs."""
        began = self._clock()
        yield
        self._measuring.advance(self._costs.form + runs * self._costs.run, self._clock() - began)

    def seconds(self, candidates: Collection[int]) -> float:
        """Return how long a group would take."""
        compiling, measuring = self._costs.of_group(candidates)
        return self._compiling.correction * compiling + self._measuring.correction * measuring

    @property
    def left(self) -> float:
        """Seconds until all is done."""
        return sum(each.correction * each.ahead for each in (self._compiling, self._measuring))
