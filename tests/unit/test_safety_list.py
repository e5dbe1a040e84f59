"""The list of failures in docs/concepts/safety.md says truly which of them a test holds."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "concepts" / "safety.md"


def rows() -> dict[str, str]:
    """Return each failure's number with what the list says holds it: test or design."""
    return dict(re.findall(r"^\| (F\d\d) \|.*\| (\w+) \|$", DOCUMENT.read_text(), re.MULTILINE))


def named_in_tests() -> set[str]:
    """Return the numbers that docstrings and comments of the tests name; this file's do not count."""
    files = (path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))
    return {number for path in files for number in re.findall(r"\bF\d\d\b", path.read_text())}


def test_every_failure_is_listed_once() -> None:
    """Those of other caches and opbuild's own have a row, in order, each held by a test or by the design."""
    text = DOCUMENT.read_text()
    numbers = re.findall(r"^\| (F\d\d) \|", text, re.MULTILINE)
    assert numbers == [f"F{number:02d}" for number in (*range(1, 72), 80, 81, 82)]
    assert set(rows().values()) <= {"test", "design"}


def test_what_is_said_to_be_held_by_a_test_is_named_by_one() -> None:
    """A row that says test has at least one, which ``grep`` finds by its number."""
    held = {number for number, answer in rows().items() if answer == "test"}
    assert held - named_in_tests() == set()
