"""How long tuning takes: what is expected is what the search does, and what it took corrects it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opbuild.families.family import TuningQuery
from opbuild.tuning.estimate import Costs, Pace
from opbuild.tuning.search import Choices, Pair, search


@given(st.lists(st.integers(0, 13), max_size=5))
def test_the_forms_and_runs_that_are_expected_are_those_that_a_search_makes(candidates: list[int]) -> None:
    """Where the best candidate of each query is faster, so that there is something to decide."""
    made: list[int] = []

    def measure(choices: Choices, runs: int) -> dict[TuningQuery, list[Pair]]:
        made.append(runs)
        return {query: [(1.0, 0.5)] * runs for query in choices}

    search({TuningQuery("made", str(n)): [{"number": k} for k in range(c)] for n, c in enumerate(candidates)}, measure)
    assert Costs(1, 1, 0).of_group(candidates) == (sum(candidates), len(made))
    assert Costs(0, 0, 1).of_group(candidates) == (0, sum(made))


def test_what_takes_twice_as_long_as_expected_doubles_the_rest_of_its_kind() -> None:
    """The more of it was done, the more it counts."""
    now = [0.0]
    pace = Pace(Costs(3, 1, 0), lambda: now[0])
    pace.plan([[100], [100]])
    compiling, measuring = (2 * each for each in Costs(3, 1, 0).of_group([100]))
    assert pace.left == compiling + measuring
    for _ in range(100):
        with pace.measuring(2):
            now[0] += 2
    assert pace.left == pytest.approx(compiling + 2 * (measuring - 100), rel=0.01)
    with pace.compiling(200):
        now[0] += 300
    assert pace.left == pytest.approx(2 * (measuring - 100), rel=0.01)
    assert pace.seconds([100]) == pytest.approx(compiling / 4 + measuring, rel=0.01)
    pace.plan([])
    assert pace.left == 0
