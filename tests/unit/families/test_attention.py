"""Blocks of attention's queries."""

from __future__ import annotations

import pytest

from opbuild.families.attention.family import choose
from opbuild.target.level import LEVELS
from opbuild.target.machine import Machine

MACHINES = {level.name: Machine.of(level) for level in LEVELS}


@pytest.mark.parametrize(
    ("rows", "hidden", "block"), [(128, 0, 32), (384, 0, 32), (197, 0, 16), (80, 0, 16), (128, 64, 16), (100, 64, 16)]
)
def test_blocks_are_smaller_where_fewer_queries_or_keys_are_computed_in_vain(
    rows: int, hidden: int, block: int
) -> None:
    """32 queries are the fastest block that they fill; of 16, fewer see keys that are hidden from others."""
    chosen = choose(rows, rows, 64, hidden, MACHINES["x86-64-v4"])
    assert chosen is not None
    assert chosen["block"] == block


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("hidden", [0, 64])
def test_blocks_fill_vectors_and_the_rows_of_the_outputs_tile(name: str, hidden: int) -> None:
    """A part of either would be read beyond the block."""
    for rows in range(24, 400):
        chosen = choose(rows, rows, 64, hidden, MACHINES[name])
        if chosen is not None:
            assert chosen["block"] % MACHINES[name].lanes == 0
            assert chosen["block"] % chosen["rows"] == 0
