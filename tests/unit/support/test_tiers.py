"""What is left to ``make test-all`` and to campaigns loses no value, no pair of values, and no seed."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support import tiers

AXES = {"kind": ("a", "b"), "shape": ((1, 2), (3,), ()), "level": (0, 1)}


def cases(test: Any) -> list[Any]:
    """Return the cases of the only parametrisation of a test."""
    (mark,) = test.pytestmark
    assert mark.args[0] == [*AXES]
    return list(mark.args[1])


def halved() -> list[Any]:
    """Return the cases of a test of all axes."""

    def test() -> None: ...

    for name, values in AXES.items():
        test = pytest.mark.parametrize(name, values)(test)
    return cases(tiers.halved(test))


def test_any_two_values_of_two_parameters_meet_in_half_of_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign has all; cases have the names that pytest gives them."""
    monkeypatch.setattr(tiers, "CAMPAIGN", 0)
    rows = [case.values for case in halved()]
    assert len(rows) == 6
    for one, other in combinations(range(3), 2):
        pairs = {(row[one], row[other]) for row in rows}
        assert pairs == set(product([*AXES.values()][one], [*AXES.values()][other]))
    assert halved()[0].id == "a-shape0-0"
    monkeypatch.setattr(tiers, "CAMPAIGN", 1)
    assert len(halved()) == 12


def test_values_of_the_shorter_lists_occur_about_equally_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are as many combinations as the longest list has values; a campaign has all."""
    monkeypatch.setattr(tiers, "CAMPAIGN", 0)
    rows = tiers.spread("abcdefgh", (0, 1), "xyz")
    assert [row[0] for row in rows] == [*"abcdefgh"]
    assert Counter(row[1] for row in rows) == {0: 4, 1: 4}
    assert {*Counter(row[2] for row in rows).values()} <= {2, 3}
    assert len({row[1:] for row in rows}) == 6
    monkeypatch.setattr(tiers, "CAMPAIGN", 1)
    assert len(tiers.spread("abcdefgh", (0, 1), "xyz")) == 48


def test_seeds_are_divided_without_a_gap() -> None:
    """What ``make test`` leaves out is a case that is slow; a campaign has one range."""
    first, rest = tiers.spans(9, 2, start=5, campaign=0)
    assert [*first, *rest.values[0]] == [*range(5, 14)]
    assert [mark.name for mark in rest.marks] == ["slow"]
    assert tiers.spans(9, 2, start=5, campaign=40) == [range(5, 45)]


class Item:
    """A case of a test."""

    path = Path("/tests/kernels/test_x.py")

    def __init__(self, test: str, number: int, *marks: str) -> None:
        self.nodeid, self.callspec = f"{test}[{number}]", SimpleNamespace()
        self.marks = [*marks]

    def get_closest_marker(self, name: str) -> str | None:
        """Return a mark that it has."""
        return name if name in self.marks else None

    def add_marker(self, mark: Any) -> None:
        """Add one."""
        self.marks.append(mark.name)


def test_one_case_of_each_test_stays_unless_it_says_itself_which_do() -> None:
    """Tests of other folders are left alone."""
    plain, each = [Item("plain", n) for n in range(3)], [Item("each", n, "each") for n in range(2)]
    told = [Item("told", 0), Item("told", 1), Item("told", 2, "slow")]
    tiers.leave_one([*plain, *each, *told], Path("/tests/kernels"))
    assert [item.marks for item in plain] == [[], ["slow"], ["slow"]]
    assert [item.marks for item in (*each, *told)] == [["each"], ["each"], [], [], ["slow"]]
    other = [Item("other", n) for n in range(2)]
    tiers.leave_one(other, Path("/tests/generated"))
    assert [item.marks for item in other] == [[], []]
