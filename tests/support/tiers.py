"""Which cases run in ``make test``, which in ``make test-all`` only, and which in a campaign only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest

from support.fuzzing import CAMPAIGN, SEED


def slow(*values: Any) -> Any:
    """Return a case of a parametrised test that is left to ``make test-all``."""
    return pytest.param(*values, marks=pytest.mark.slow)


def few(cases: Iterable[Any], part: int) -> list[Any]:
    """Return cases of one parameter, of which ``make test`` runs every ``part``-th, the first one included."""
    return [case if number % part == 0 else slow(case) for number, case in enumerate(cases)]


def spans(count: int, first: int, *, start: int = SEED, campaign: int = CAMPAIGN) -> list[Any]:
    """Return ranges of seeds as cases: ``first`` in ``make test``, the rest of ``count``; one range in a campaign."""
    if campaign:
        return [range(start, start + campaign)]
    return [range(start, start + first), slow(range(start + first, start + count))]


def thinned(cases: Sequence[Any], part: int) -> list[Any]:
    """Return every ``part``-th case, the last one included; all in a campaign."""
    return list(cases) if CAMPAIGN else list(cases[(len(cases) - 1) % part :: part])


def spread(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return the fewest combinations in which each value occurs, of as many different pairs; all in a campaign."""
    places = list(product(*(range(len(axis)) for axis in axes)))
    chosen = places if CAMPAIGN else _spread(places)
    return [tuple(axis[at] for axis, at in zip(axes, place, strict=True)) for place in chosen]


def _spread(places: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    missing = {value for place in places for value in enumerate(place)}
    met, used, chosen = set[Any](), Counter[Any](), list[tuple[int, ...]]()

    def gain(place: tuple[int, ...]) -> tuple[int, int, int]:
        """Return how many new values and pairs there are in a place; then values that were used less are better."""
        values = [*enumerate(place)]
        return len(missing.intersection(values)), len(_pairs(place) - met), -sum(used[value] for value in values)

    while missing:
        best = max(places, key=gain)
        missing.difference_update(enumerate(best))
        met |= _pairs(best)
        used.update(enumerate(best))
        chosen.append(best)
    return sorted(chosen)


def _pairs(place: tuple[int, ...]) -> set[Any]:
    return set(combinations(enumerate(place), 2))


def halved(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test of several parameters with every other combination of their values; with all in a campaign.

    Each value occurs, and any two values of two parameters meet where there are three parameters. It stands above the
    parametrisations.
    """
    marks = [mark for mark in test.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    axes = [_axis(*mark.args, **mark.kwargs) for mark in marks]
    names = [name for axis, _ in axes for name in axis]
    places = product(*(range(len(cases)) for _, cases in axes))
    chosen = [place for place in places if CAMPAIGN or sum(place) % 2 == 0]
    joined = [_joined([cases[at] for (_, cases), at in zip(axes, place, strict=True)]) for place in chosen]
    test.pytestmark = [mark for mark in test.pytestmark if mark not in marks]  # type: ignore[attr-defined]
    return pytest.mark.parametrize(names, joined)(test)


def leave_one(items: Sequence[pytest.Item], folder: Path) -> None:
    """Mark all but the first case of each parametrised test of a folder as slow.

    Tests are left as they are whose cases are what must never be left out (``each``), or say themselves which of them
    are slow.
    """
    tests: dict[Any, list[pytest.Item]] = {}
    for item in items:
        if hasattr(item, "callspec") and folder in item.path.parents and not item.get_closest_marker("each"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in tests.values():
        if not any(case.get_closest_marker("slow") for case in cases):
            for case in cases[1:]:
                case.add_marker(pytest.mark.slow)


def _joined(cases: Sequence[tuple[tuple[Any, ...], str]]) -> Any:
    return pytest.param(*(value for values, _ in cases for value in values), id="-".join(name for _, name in cases))


def _axis(
    names: str | Sequence[str], cases: Iterable[Any], ids: Any = None
) -> tuple[Sequence[str], list[tuple[tuple[Any, ...], str]]]:
    """Return the names of a parametrisation, and its cases' values with their names, which are pytest's own."""
    names, cases = [names] if isinstance(names, str) else names, list(cases)
    rows = [(case,) if len(names) == 1 else tuple(case) for case in cases]
    if ids is not None:
        return names, [(row, ids[at] if isinstance(ids, list) else ids(*row)) for at, row in enumerate(rows)]
    return names, [
        (row, "-".join(_name(name, value, at) for name, value in zip(names, row, strict=True)))
        for at, row in enumerate(rows)
    ]


def _name(name: str, value: Any, at: int) -> str:
    return str(value) if isinstance(value, (str, int, float, bool)) else f"{name}{at}"
