"""Files stay short enough to be read in one sitting."""

from __future__ import annotations

from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[3] / "src"
LIMIT = 800

LONGER: dict[str, str] = {}
"""Files that may be longer, each with its reason."""


def too_long(folder: Path) -> dict[str, int]:
    """Return the Python files under ``folder`` that are over the limit, with their line counts."""
    counts = {
        str(path.relative_to(folder)): len(path.read_text().splitlines()) for path in sorted(folder.rglob("*.py"))
    }
    assert counts
    return {name: count for name, count in counts.items() if count > LIMIT}


def test_no_file_is_over_the_limit_without_a_reason() -> None:
    """A file that grows over the limit is divided or listed with a reason; one that shrank leaves the list."""
    assert set(too_long(SOURCES)) == set(LONGER)


@pytest.mark.parametrize(("lines", "found"), [(LIMIT, 0), (LIMIT + 1, 1)])
def test_a_file_over_the_limit_is_found(tmp_path: Path, lines: int, found: int) -> None:
    """One line too many counts."""
    (tmp_path / "a.py").write_text("x = 1\n" * lines)
    assert len(too_long(tmp_path)) == found
