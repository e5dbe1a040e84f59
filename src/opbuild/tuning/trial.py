"""Trials: a form of a network beside the network as it is, in turn, once it was seen to compute the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from opbuild.errors import BuildError
from opbuild.families.family import TuningQuery
from opbuild.graph.types import Array
from opbuild.runtime.accuracy import relative_error
from opbuild.tuning.forms import Forms, NetworkForm, all_sites, sites_of
from opbuild.tuning.search import Choices, Pair

TOLERANCES = {"float16": 5e-2, "bfloat16": 5e-2}
TOLERANCE = 2e-3
"""Differences to what the network as it is computes, relative to the greatest value: below it lies what another order
of sums or Winograd makes of a deep network, far above it what a wrong kernel does."""


CACHED = 64 * 2**20
"""Bytes of weights and memory from which on no cache has anything left of a network's run before."""


class Trials:
    """Measures forms beside the form that is known to be best.

    Args:
        forms: Builds them.
        base: The form that is known to be best.
        choices: Its answers.
        clock: Nanoseconds; by default of this thread's processor where it computes alone, else of the wall.
        threads: Threads that run the network.
        tell: Told how many forms were measured.

    Attributes:
        measured: How many forms were measured.
        refused: Answers that could not be built or computed something else, each with the reason.
    """

    def __init__(
        self,
        forms: Forms,
        base: NetworkForm,
        choices: Choices,
        threads: int,
        clock: Callable[[], int] | None = None,
        tell: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._forms, self._base, self._choices, self._tell = forms, base, choices, tell
        self._clock = clock or (time.thread_time_ns if threads == 1 else time.perf_counter_ns)
        self.measured = 0
        self.refused: list[tuple[TuningQuery, str]] = []

    def measure(self, choices: Choices, runs: int) -> dict[TuningQuery, list[Pair]]:
        """Return the times of the calls of each question, as ``search`` asks for them."""
        if not choices:
            return {}
        wrong = ""
        try:
            form = self._forms.make({**self._choices, **choices})
            culprits = self._different(form, list(choices))
        except (BuildError, AssertionError) as error:  # lowering asserts that a variant is legal
            culprits, wrong = list(choices), str(error)
        if not culprits:
            self.measured += 1
            self._tell(self.measured)
            return self._timed(form, list(choices), runs)
        if len(choices) == 1:
            self.refused.append((culprits[0], wrong or "it computes something else"))
            return {}
        if len(culprits) == len(choices):  # nobody knows which one it is
            half = len(culprits) // 2
            groups = [culprits[:half], culprits[half:]]
        else:
            groups = [culprits, [each for each in choices if each not in culprits]]
        found: dict[TuningQuery, list[Pair]] = {}
        for group in groups:
            found |= self.measure({each: choices[each] for each in group}, runs)
        return found

    def _different(self, form: NetworkForm, questions: list[TuningQuery]) -> list[TuningQuery]:
        """Return the queries whose calls are the first to compute something else; all if only the outputs tell."""
        asked = self._base.asked
        sites = sorted(all_sites(asked, questions), key=self._base.first_call)
        expected, outputs = self._base.results(sites)
        found, own_outputs = form.results(sites)
        for site, one, other in zip(sites, found, expected, strict=True):
            if one is not None and other is not None and one.ndim == other.ndim and _differ(*_in_common(one, other)):
                return [each for each in questions if site & sites_of(asked, each)]
        same = not any(_differ(*pair) for pair in zip(own_outputs, outputs, strict=True))
        return [] if same else questions

    def _timed(self, form: NetworkForm, questions: Sequence[TuningQuery], runs: int) -> dict[TuningQuery, list[Pair]]:
        """Run both in turn."""
        asked = self._base.asked
        places = [
            [
                [place for place, nodes in enumerate(each.nodes) if nodes & sites_of(asked, question)]
                for each in (self._base, form)
            ]
            for question in questions
        ]
        pairs: dict[TuningQuery, list[Pair]] = {question: [] for question in questions}
        for number in range(runs):
            times: dict[int, list[int]] = {}
            for which in (0, 1) if number % 2 else (1, 0):
                times[which] = _run((self._base, form)[which], self._clock)
            for question, (before, after) in zip(questions, places, strict=True):
                pairs[question].append(
                    (sum(times[0][place] for place in before) / 1e9, sum(times[1][place] for place in after) / 1e9)
                )
        return pairs


def whole_times(one: NetworkForm, other: NetworkForm, runs: int, threads: int) -> list[Pair]:
    """Return the seconds of whole runs of two forms, in turn."""
    clock = time.thread_time_ns if threads == 1 else time.perf_counter_ns
    pairs = []
    for number in range(runs):
        times: dict[int, float] = {}
        for which in (0, 1) if number % 2 else (1, 0):
            times[which] = sum(_run((one, other)[which], clock)) / 1e9
        pairs.append((times[0], times[1]))
    return pairs


def _run(form: NetworkForm, clock: Callable[[], int]) -> list[int]:
    """Return the times of a run; a cache may hold data of a network, which in use follows itself, too."""
    if form.nbytes < CACHED:
        form.run(clock)
    return form.run(clock)


def _in_common(one: Array, other: Array) -> tuple[Array, Array]:
    """Return the part that both arrays have: rows may be written up to whole tiles."""
    within = tuple(slice(0, min(extents)) for extents in zip(one.shape, other.shape, strict=True))
    return one[within], other[within]


def _differ(one: Array, other: Array) -> bool:
    return not relative_error(one, other) <= TOLERANCES.get(one.dtype.name, TOLERANCE)
