"""Tiles: which variant of a kernel family serves which extents. A small cost model, from measurements.

Every extent has a legal variant: tiles of one position by one block have no least extent.
"""

from __future__ import annotations

from dataclasses import dataclass

from opbuild.lowering.operands import BLOCK, blocks
from opbuild.lowering.windows import Pair


@dataclass(frozen=True)
class RowTile:
    """A register tile of ``width`` positions of a row by ``blocks`` channel blocks.

    ``task`` says what a thread takes at a time: ``rows``, or ``blocks`` (a tile of blocks, all rows).
    """

    width: int
    blocks: int
    parallel: bool
    task: str = "rows"


@dataclass(frozen=True)
class FirstTile(RowTile):
    """A register tile, and the number of rows of a task."""

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


def row_tile(width: int, channels: int, threads: int, table: tuple[tuple[int, int, float], ...] = ROW_TILES) -> RowTile:
    """Return the cheapest legal tile for rows of ``width`` positions and ``channels`` output channels.

    Threads divide the blocks between them, so that each weight goes to one core only, unless there are too few blocks.
    """
    count = blocks(channels)
    legal = [(w, b, cost) for w, b, cost in table if (w == 1 or w <= width) and (b == 1 or b <= count)]
    w, b, _ = min(legal, key=lambda tile: round_up(width, tile[0]) * round_up(count, tile[1]) * tile[2])
    return RowTile(w, b, threads > 1, "blocks" if -(-count // b) >= threads else "rows")


def single_tile(width: int, threads: int) -> RowTile:
    """Return the cheapest legal tile of one block, for rows of ``width`` positions."""
    tile = row_tile(width, BLOCK, threads, SINGLE_TILES)
    return RowTile(tile.width, 1, tile.parallel)


def first_tile(width: int, channels: int, threads: int) -> FirstTile:
    """Return the cheapest legal tile of a first layer."""
    tile = row_tile(width, channels, threads)
    return FirstTile(tile.width, tile.blocks, tile.parallel)


def winograd_tile(out: Pair, inputs: int, outputs: int, threads: int) -> WinogradTile | None:
    """Return the variant for a 3 x 3 convolution of stride 1, or None where the direct one is faster.

    Args:
        out: Extents of the output (x, y).
        inputs: Input channels.
        outputs: Output channels.
        threads: Threads that run the kernel.
    """
    if min(out) >= 12:
        m = 4
    elif min(out) >= 5 and outputs >= 128:
        # F(4x4) has more than twice the weights of F(2x2), and with few tiles reading them is what takes the time.
        m = 2
    else:
        return None
    across, down = -(-out[0] // m), -(-out[1] // m)
    count = blocks(outputs)
    if max(across, down) <= 8 and count >= max(4, 2 * threads):
        return _split_tile(m, across, down, threads)
    chunk = across if across <= 8 else min((14, 12, 10, 8, 7), key=lambda c: (round_up(across, c), -c))
    return WinogradTile(m, chunk, 1, 0, chunk, 1, min(2, count), threads > 1)


def _split_tile(m: int, across: int, down: int, threads: int) -> WinogradTile:
    """Return the variant whose chunk is the whole image; threads divide the output blocks between them.

    Few tiles make one register tile, so that each weight is read once.
    """
    split = 1 << (threads.bit_length() - 1)
    if across * down <= 16:
        return WinogradTile(m, across, down, split, across, down, 2 if across * down <= 9 else 1, threads > 1)
    return WinogradTile(m, across, down, split, across, 1, 2, threads > 1)
