"""The search of tuning: what it finds and what it does not believe, on a machine made of numbers."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opbuild.families.family import TuningQuery, Variant
from opbuild.tuning.search import (
    DECIDING_RUNS,
    FIRST_RUNS,
    GAIN,
    Choices,
    Pair,
    judged,
    median_bound,
    search,
)


class Bench:
    """A machine on which each candidate has a time, with noise; counts what is run on it.

    Args:
        times: Seconds by query and candidate's number; None: it computes something else.
        noise: By what part times differ from run to run.
    """

    def __init__(self, times: Mapping[TuningQuery, Sequence[float | None]], noise: float = 0.05) -> None:
        self.times, self.noise, self.random = times, noise, random.Random(5)
        self.runs: dict[tuple[TuningQuery, int], int] = {}
        self.prepared: list[Sequence[Choices]] = []

    def measure(self, choices: Choices, runs: int) -> dict[TuningQuery, list[Pair]]:
        """Return made-up times; what everything takes now changes from pair to pair, as on a busy machine."""
        found: dict[TuningQuery, list[Pair]] = {}
        for query, variant in choices.items():
            number = (variant or {})["number"]
            self.runs[query, number] = self.runs.get((query, number), 0) + runs
            seconds = self.times[query][number]
            if seconds is not None:
                found[query] = [self._pair(seconds) for _ in range(runs)]
        return found

    def _pair(self, seconds: float) -> Pair:
        now = self.random.uniform(1, 3)
        return now * self._noisy(1.0), now * self._noisy(seconds)

    def _noisy(self, seconds: float) -> float:
        return seconds * self.random.uniform(1 - self.noise, 1 + self.noise)

    @property
    def candidates(self) -> dict[TuningQuery, list[Variant | None]]:
        """All of them."""
        return {query: [{"number": place} for place in range(len(each))] for query, each in self.times.items()}


ONE, TWO = TuningQuery("conv", "[1]"), TuningQuery("matmul", "[2]")


def test_the_fastest_of_many_is_found_for_several_questions_at_once() -> None:
    """One is much faster than the others, for one query; for the other nothing is."""
    bench = Bench({ONE: [1.2, 0.9, 0.6, 1.0, 3.0, 0.95, 1.1], TWO: [1.0, 1.3]})
    found = search(bench.candidates, bench.measure)
    assert found[ONE].found
    assert found[ONE].choice == {"number": 2}
    assert found[ONE].bound < 0.7
    assert statistics.fmean([found[ONE].after / found[ONE].before]) == pytest.approx(0.6, rel=0.2)
    assert not found[TWO].found


def test_the_worse_half_is_left_out_and_the_better_one_runs_twice_as_often() -> None:
    """So many candidates cost little more than few; the winner is measured anew."""
    bench = Bench({ONE: [0.1 + 0.1 * number for number in range(16)]}, noise=0.01)
    found = search(bench.candidates, bench.measure)
    assert found[ONE].choice == {"number": 0}
    runs = [bench.runs[ONE, number] for number in range(16)]
    assert runs[8:] == [FIRST_RUNS] * 8
    assert runs[4:8] == [3 * FIRST_RUNS] * 4
    assert runs[0] == 15 * FIRST_RUNS + DECIDING_RUNS
    assert sorted(runs, reverse=True) == runs


def test_what_computes_something_else_is_never_chosen_however_fast() -> None:
    """It has no times."""
    bench = Bench({ONE: [None, 0.8, None]})
    assert search(bench.candidates, bench.measure)[ONE].choice == {"number": 1}
    nothing = Bench({ONE: [None, None], TWO: [0.5]})
    found = search(nothing.candidates, nothing.measure)
    assert not found[ONE].found
    assert found[TWO].found


def test_questions_without_candidates_and_no_questions_are_answered() -> None:
    """There is nothing to run."""
    assert search({}, Bench({}).measure) == {}
    assert not search({ONE: []}, Bench({}).measure)[ONE].found


def test_what_is_to_be_measured_is_told_before() -> None:
    """So that all of it is compiled together."""
    bench = Bench({ONE: [1.0, 1.1, 1.2], TWO: [0.5]})
    told: list[list[Choices]] = []
    search(bench.candidates, bench.measure, lambda turns: told.append(list(turns)))
    assert told[0] == [
        {ONE: {"number": 0}, TWO: {"number": 0}},
        {ONE: {"number": 1}},
        {ONE: {"number": 2}},
    ]


@pytest.mark.parametrize("measurements", range(12))
def test_when_the_time_is_up_the_best_so_far_is_decided_on(measurements: int) -> None:
    """At any moment: what is returned is faster, or was searched to the end; what is left is for another run."""
    bench = Bench({ONE: [0.5] * 5, TWO: [0.7, 2.0]}, noise=0.01)
    count = 0

    def measure(choices: Choices, runs: int) -> dict[TuningQuery, list[Pair]]:
        nonlocal count
        count += 1
        return bench.measure(choices, runs)

    found = search(bench.candidates, measure, is_spent=lambda: count >= measurements)
    assert bool(found) == (measurements > 0)
    assert all(each.found for each in found.values())
    slow = search({TWO: [{"number": 1}]}, bench.measure, is_spent=lambda: True)
    assert not slow


def test_equal_candidates_are_seldom_taken_for_faster_ones() -> None:
    """Noise of a tenth, 200 searches among 8 that are all equal: hardly one is kept."""
    kept = 0
    for seed in range(200):
        bench = Bench({ONE: [1.0] * 8}, noise=0.1)
        bench.random.seed(seed)
        kept += search(bench.candidates, bench.measure)[ONE].found
    assert kept <= 4


def test_a_gain_below_two_hundredths_is_not_kept() -> None:
    """It is not worth another kernel, and less than what differs between two builds of a network."""
    assert GAIN == 0.98
    assert not judged({}, [(1.0, 0.99)] * DECIDING_RUNS).found
    assert judged({}, [(1.0, 0.97)] * DECIDING_RUNS).found
    assert not judged({}, []).found


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=40))
def test_the_bound_is_one_of_the_values_above_their_median_or_infinite(values: list[float]) -> None:
    """Seven values are enough for 99 of 100: six are not."""
    bound = median_bound(values)
    assert (bound == inf) == (len(values) < 7)
    if bound < inf:
        assert bound in values
        assert bound >= statistics.median(values)


def test_the_bound_is_above_the_true_median_as_often_as_it_says() -> None:
    """2,000 samples of a skewed distribution whose median is 1."""
    chance = random.Random(3)
    below = sum(median_bound([chance.lognormvariate(0, 1) for _ in range(DECIDING_RUNS)]) < 1 for _ in range(2000))
    assert below <= 40
