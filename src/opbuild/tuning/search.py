"""The search: successive halving among candidates, and the test of being faster beyond noise.

All candidates are run a few times beside what is known to be best; the better half goes on, with twice as many runs,
until one is left. What decides is measured anew, so that the luck which brought a candidate so far is not counted: as
many pairs of runs, of which each gives the ratio of both times. The candidate is kept if the median of these ratios
lies below ``GAIN`` with a confidence of ``CONFIDENCE``, whatever their distribution: the sign test's order statistic.

Successive halving: Karnin, Koren, Somekh, "Almost Optimal Exploration in Multi-Armed Bandits", ICML 2013.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from math import comb, inf

from opbuild.families.family import TuningQuery, Variant
from opbuild.platform.records import NamedTuple

FIRST_RUNS = 2
"""Pairs of runs of every candidate."""

DECIDING_RUNS = 24
"""Pairs of runs that decide."""

CONFIDENCE, GAIN = 0.99, 0.98
"""Ratios of a candidate's times must have a median below ``GAIN`` with this confidence."""

Choices = Mapping[TuningQuery, Variant | None]
Pair = tuple[float, float]
"""Seconds of what is known to be best and of the candidate, one run after the other."""

Measure = Callable[[Choices, int], Mapping[TuningQuery, Sequence[Pair]]]
"""Runs a network with other answers to some queries beside the network as it is, so many times, and returns the times
of the calls of each query. A query is missing if its answer cannot be built or computes something else."""


class Finding(NamedTuple):
    """The result of tuning for a query.

    Attributes:
        choice: The candidate that is faster beyond noise.
        found: Whether there is one.
        before: Seconds that what was known to be best took, the median.
        after: Seconds that the choice took, or else the best candidate.
        bound: The ratio below which the median ratio lies with the confidence.
        spread: The distance of the quarters of the ratios.
        pairs: How many pairs of runs decided.
    """

    choice: Variant | None
    found: bool
    before: float
    after: float
    bound: float
    spread: float
    pairs: int


Prepare = Callable[[Sequence[Choices]], None]
"""Told of all answers that are about to be measured, one after the other."""


def search(
    candidates: Mapping[TuningQuery, Sequence[Variant | None]],
    measure: Measure,
    prepare: Prepare = lambda turns: None,
    is_spent: Callable[[], bool] = lambda: False,
) -> dict[TuningQuery, Finding]:
    """Return the result for each query; of those whose candidates did not all run only faster variants.

    Args:
        candidates: For each query the answers to try, without the one that is known to be best.
        measure: Measures answers to several queries at once.
        prepare: Told what is measured next.
        is_spent: Whether there is no time for further candidates: the best so far are decided on.
    """
    left = {query: list(answers) for query, answers in candidates.items()}
    scores: dict[TuningQuery, float] = dict.fromkeys(left, inf)
    runs = FIRST_RUNS
    open_ = untried = {query: answers for query, answers in left.items() if answers}
    while open_ and not is_spent():
        measured, is_complete = _ratios(open_, measure, prepare, is_spent, runs)
        if is_complete:
            untried = {}
        for query, ratios in measured.items():
            ranked = sorted((ratio, place) for place, ratio in enumerate(ratios) if ratio < inf)
            kept = ranked[: (len(ranked) + 1) // 2]
            left[query] = [open_[query][place] for _, place in kept]
            scores[query] = kept[0][0] if kept else inf
        runs *= 2
        if not is_spent():
            open_ = {query: answers for query, answers in left.items() if len(answers) > 1}
    hopeful = {query: answers[0] for query, answers in left.items() if answers and scores[query] < 1}
    decided = measure(hopeful, DECIDING_RUNS) if hopeful else {}
    found = {query: judged(hopeful.get(query), decided.get(query, ())) for query in candidates}
    return {query: each for query, each in found.items() if each.found or query not in untried}


def judged(choice: Variant | None, pairs: Sequence[Pair]) -> Finding:
    """Return the judgement that pairs of runs give of a candidate."""
    if not pairs:
        return Finding(None, False, 0.0, 0.0, inf, 0.0, 0)
    ratios = [after / before if before else 1.0 for before, after in pairs]
    bound = median_bound(ratios)
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else (0.0, 0.0, 0.0)
    before, after = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Finding(choice, bound < GAIN, before, after, bound, high - low, len(pairs))


def median_bound(values: Sequence[float]) -> float:
    """Return an upper bound of a distribution's median with ``CONFIDENCE``; infinite if values are too few.

    The k-th smallest of n values is below the median only if at least k are, each with a chance of a half.
    """
    count = len(values)
    tail = 0.0
    for k in range(count, -1, -1):
        tail += comb(count, k) / 2**count
        if tail > 1 - CONFIDENCE:
            return sorted(values)[k] if k < count else inf
    return inf


def _ratios(
    answers: Mapping[TuningQuery, Sequence[Variant | None]],
    measure: Measure,
    prepare: Prepare,
    is_spent: Callable[[], bool],
    runs: int,
) -> tuple[dict[TuningQuery, list[float]], bool]:
    """Return the median ratio of each answer, infinite for one that is of no use, and whether all were measured."""
    ratios: dict[TuningQuery, list[float]] = {query: [inf] * len(each) for query, each in answers.items()}
    places = range(max(map(len, answers.values())))
    turns = [{q: each[place] for q, each in answers.items() if place < len(each)} for place in places]
    prepare(turns)
    for place, turn in enumerate(turns):
        if is_spent():
            return ratios, False
        for query, pairs in measure(turn, runs).items():
            ratios[query][place] = statistics.median(after / before if before else 1.0 for before, after in pairs)
    return ratios, True
