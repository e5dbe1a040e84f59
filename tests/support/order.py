"""The order of a run's tests: fast ones first, and of each part the folders whose files take longest."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST_FIRST = ("conformance", "system", "generated", "kernels", "contract", "property", "golden", "unit")
"""What is left for the end is divided evenly among processes."""


def place(nodeid: str) -> int:
    """Return the place of a test's folder in the order."""
    folder = nodeid.partition("/")[2].partition("/")[0]
    return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)


def parts_of(nodeids: Iterable[str]) -> dict[str, int]:
    """Return the part of each of ordered tests: folders begin anew where slow tests do."""
    part, last, parts = 0, 0, dict[str, int]()
    for nodeid in nodeids:
        part, last = part + (place(nodeid) < last), place(nodeid)
        parts[nodeid] = part
    return parts
