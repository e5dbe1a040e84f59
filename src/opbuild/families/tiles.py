"""Register tiles of convolutions: which one is cheapest for an output. From measurements.

Every extent has a legal tile: that of one position by one block has no least extent.
"""

from __future__ import annotations

from opbuild.families.blocked import blocks
from opbuild.families.family import THREADS, Variant
from opbuild.kernel.machine import Machine

Pair = tuple[int, int]
"""Two numbers, x first."""

Tiles = tuple[tuple[int, int, float], ...]
"""Register tiles: positions of a row, channel blocks, and measured time a position relative to the best."""

LEAST_BALANCE = 0.7
"""Share of time that cores must work for ranges of rows or of blocks to be worth their locality."""

SINGLE_TILES: Tiles = ((14, 1, 1.0), (7, 1, 1.05), (8, 1, 1.05), (4, 1, 1.3), (2, 1, 2.0), (1, 1, 4.0))
"""Where a tile has one block."""


def round_up(value: int, multiple: int) -> int:
    """Return the least multiple that is not below ``value``."""
    return -(-value // multiple) * multiple


def balance(extent: int, parts: int) -> float:
    """Return the share of time that cores work when ``parts`` of them divide ``extent`` steps."""
    return extent / (parts * -(-extent // parts)) if extent else 1.0


def cheapest(tiles: Tiles, width: int, count: int) -> Pair:
    """Return the cheapest legal tile for rows of ``width`` positions and ``count`` channel blocks."""
    legal = [tile for tile in tiles if (tile[0] == 1 or tile[0] <= width) and (tile[1] == 1 or tile[1] <= count)]
    best = min(legal, key=lambda tile: round_up(width, tile[0]) * round_up(count, tile[1]) * tile[2])
    return best[:2]


def plane_variant(out: Pair, channels: int, machine: Machine) -> Variant:
    """Return the variant where a tile has one block: ``width``, ``divide`` and ``parts``.

    ``divide``: ``rows`` or ``blocks``, a range a task; ``both``, where neither gives every core enough: a task is one
    row of one block.
    """
    rows, parts = balance(out[1], THREADS), balance(blocks(channels), THREADS)
    divide = "both" if max(rows, parts) < LEAST_BALANCE else "blocks" if parts > rows else "rows"
    return {"width": cheapest(SINGLE_TILES, out[0], 1)[0], "divide": divide, "parts": THREADS}
