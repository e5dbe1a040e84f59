"""The summary that a campaign prints when it ends: of each class of cases, the number tried and the number wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

COUNTS: dict[str, Counter[str]] = {}
"""How often each outcome was, by class; ``count`` adds to it."""

COLUMNS = {"wrong": ("wrong",), "foreign": ("foreign", "crash"), "hangs": ("hang",)}
"""The outcomes that are faults, by what the table calls them: a dead process is a foreign end."""


def count(name: str, outcomes: Mapping[str, int]) -> None:
    """Add the outcomes of cases of a class: numbers that differ are ``wrong``; see ``seeds.FAULTS``."""
    COUNTS.setdefault(name, Counter()).update(outcomes)


def faults() -> int:
    """Return how many faults were counted."""
    return sum(counter[outcome] for counter in COUNTS.values() for names in COLUMNS.values() for outcome in names)


def table() -> str:
    """Return the counts as a table, whose last row is the sum."""
    total: Counter[str] = sum(COUNTS.values(), Counter())
    rows = [("class", "tried", *COLUMNS), *(_row(name, COUNTS[name]) for name in sorted(COUNTS)), _row("all", total)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )


def _row(name: str, counter: Counter[str]) -> tuple[str, ...]:
    cells = (sum(counter[outcome] for outcome in outcomes) for outcomes in COLUMNS.values())
    return (name, str(sum(counter.values())), *map(str, cells))


class Campaign:
    """A plugin of pytest that counts tests, but for those that count what they try themselves, and prints the table."""

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Any:
        """Count a test under its file's name."""
        before, known = sum(map(sum, map(Counter.values, COUNTS.values()))), faults()
        outcome = yield
        found = _outcome(outcome.excinfo)
        counts_itself = before != sum(map(sum, map(Counter.values, COUNTS.values())))
        if found and (not counts_itself or (found != "right" and known == faults())):
            count(item.path.stem.removeprefix("test_").replace("_", " "), {found: 1})

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the table."""
        terminalreporter.section("campaign")
        terminalreporter.write_line(table())


def _outcome(raised: Any) -> str:
    """Return the outcome of a test, from the error it raised; empty if it was skipped."""
    if raised is None:
        return "right"
    kind, error = raised[:2]
    if issubclass(kind, (pytest.skip.Exception, pytest.xfail.Exception)):
        return ""
    if "Timeout" in str(error)[:20]:
        return "hang"
    return "wrong" if issubclass(kind, (AssertionError, pytest.fail.Exception)) else "foreign"
