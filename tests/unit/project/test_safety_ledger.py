"""The ledger in docs/concepts/safety_ledger.md says truly which tests hold each danger."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CONCEPTS = ROOT / "docs" / "concepts"

ROWS: list[tuple[str, str]] = re.findall(
    r"^\| ([^|]*) \|[^|]*\|[^|]*\| ((?:design|`[\w/]+\.py`)[^|]*) \|$",
    (CONCEPTS / "safety_ledger.md").read_text(),
    re.MULTILINE,
)
"""Each danger's number or name, with what the ledger says holds it."""


def test_every_danger_has_one_row_that_says_what_holds_it() -> None:
    """Those of other caches and opbuild's own in order, then those without a number; no row is malformed."""
    text = (CONCEPTS / "safety_ledger.md").read_text()
    tables = text.partition("## Asking for more")[0]
    rows = [line for line in tables.splitlines() if line.startswith("| ") and not line.startswith("| |")]
    assert len(rows) == len(ROWS)
    numbers = [name for name, _ in ROWS if re.fullmatch(r"F\d\d", name)]
    assert numbers == [f"F{number:02d}" for number in (*range(1, 72), 80, 81, 82)]
    assert len({name for name, _ in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("name", "held"), ROWS, ids=[name for name, _ in ROWS])
def test_what_is_said_to_hold_a_danger_names_it(name: str, held: str) -> None:
    """Each file of tests exists and names the row's number; ``design`` stands alone."""
    files = re.findall(r"`([\w/]+\.py)`", held)
    assert held == ("design" if not files else ", ".join(f"`{file}`" for file in files))
    for file in files:
        text = (ROOT / "tests" / file).read_text()
        assert not re.fullmatch(r"F\d\d", name) or re.search(rf"\b{name}\b", text), file
