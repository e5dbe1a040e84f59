"""Tiles: which variant of a kernel family serves which extents. A small cost model, from measurements.

Every extent has a legal variant: tiles of one position by one block have no least extent.
"""

from __future__ import annotations

from dataclasses import dataclass

from opbuild.lowering.operands import blocks
from opbuild.lowering.windows import Pair


@dataclass(frozen=True)
class RowTile:
    """A register tile of ``width`` positions of a row by ``blocks`` channel blocks."""

    width: int
    blocks: int
    parallel: bool


@dataclass(frozen=True)
class FirstTile(RowTile):
    """A register tile, and the rows of a task."""

    rows: int = 8


@dataclass(frozen=True)
class WinogradTile:
    """A variant of Winograd's algorithm.

    Attributes:
        tile: Outputs of a tile in each direction, m.
        chunk_x: Tiles of a chunk, across.
        chunk_y: Tiles of a chunk, down.
        split: Parts that the output blocks are divided into, or 0 where rows of chunks are the tasks.
        width: Tiles of the register tile, across.
        height: Tiles of the register tile, down.
        blocks: Channel blocks of the register tile.
        parallel: Whether tasks run in parallel.
    """

    tile: int
    chunk_x: int
    chunk_y: int
    split: int
    width: int
    height: int
    blocks: int
    parallel: bool

    def rounded(self, out: Pair) -> Pair:
        """Return the output's extents rounded up to whole chunks."""
        return round_up(out[0], self.tile * self.chunk_x), round_up(out[1], self.tile * self.chunk_y)


ROW_TILES = (
    (7, 2, 1.0),
    (8, 2, 1.01),
    (4, 2, 1.05),
    (7, 1, 1.03),
    (8, 1, 1.04),
    (4, 1, 1.3),
    (2, 2, 1.6),
    (1, 2, 3.0),
    (2, 1, 2.5),
    (1, 1, 5.0),
)
"""Register tiles of a direct convolution: width, blocks, and measured time a position relative to the best."""

SINGLE_TILES = ((14, 1, 1.0), (7, 1, 1.05), (8, 1, 1.05), (4, 1, 1.3), (2, 1, 2.0), (1, 1, 4.0))
"""Register tiles where a tile has one block."""


def round_up(value: int, multiple: int) -> int:
    """Return the least multiple that is not below ``value``."""
    return -(-value // multiple) * multiple


def row_tile(
    width: int, channels: int, parallel: bool, table: tuple[tuple[int, int, float], ...] = ROW_TILES
) -> RowTile:
    """Return the cheapest legal tile for rows of ``width`` positions and ``channels`` output channels."""
    count = blocks(channels)
    legal = [(w, b, cost) for w, b, cost in table if (w == 1 or w <= width) and (b == 1 or b <= count)]
    w, b, _ = min(legal, key=lambda tile: round_up(width, tile[0]) * round_up(count, tile[1]) * tile[2])
    return RowTile(w, b, parallel)


def first_tile(width: int, channels: int, parallel: bool) -> FirstTile:
    """Return the cheapest legal tile of a first layer."""
    tile = row_tile(width, channels, parallel)
    return FirstTile(tile.width, tile.blocks, parallel)


def winograd_tile(out: Pair, inputs: int, outputs: int, threads: int) -> WinogradTile | None:
    """Return the variant for a 3 x 3 convolution of stride 1, or None where the direct one is faster.

    Args:
        out: Extents of the output (x, y).
        inputs: Input channels.
        outputs: Output channels.
        threads: Threads that run the kernel.
    """
    width, height = out
    large = inputs >= 512 and outputs >= 512 and height <= 14
    if min(out) >= 12 and not large:
        m = 4
    elif min(out) >= 5 and outputs >= 128:
        m = 2
    else:
        return None
    across, down = -(-width // m), -(-height // m)
    count = blocks(outputs)
    if max(across, down) <= 8 and count >= 4:
        split = 2 if threads > 1 else 1
        return WinogradTile(m, across, down, split, across, 2 if across <= 4 and down >= 2 else 1, 2, threads > 1)
    chunk = across if across <= 8 else min((14, 12, 10, 8, 7), key=lambda c: (round_up(across, c), -c))
    return WinogradTile(m, chunk, 1, 0, chunk, 1, min(2, count), threads > 1)
