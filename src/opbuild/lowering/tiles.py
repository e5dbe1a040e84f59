"""Tiles: which variant of a kernel family serves which extents. A small cost model, from measurements.

Every extent has a legal variant: tiles of one position by one block have no least extent.
"""

from __future__ import annotations

from dataclasses import dataclass

from opbuild.lowering.operands import BLOCK, blocks
from opbuild.lowering.windows import Pair


@dataclass(frozen=True)
class RowTile:
    """A register tile of ``width`` positions of a row by ``blocks`` channel blocks."""

    width: int
    blocks: int


@dataclass(frozen=True)
class DirectTile:
    """A variant of the direct convolution.

    Attributes:
        width: Positions of a row in a register tile.
        blocks: Channel blocks in a register tile.
        chunk: Blocks of input channels in a chunk, or 0 to take all at once.
        divide: What a task is: ``range``, a range of rows or of channel blocks, as the kernel decides when called;
            ``both``, where neither gives every core enough: a tile of blocks in one row, or in a few.
        parts: Number of ranges.
    """

    width: int
    blocks: int
    chunk: int
    divide: str
    parts: int


@dataclass(frozen=True)
class PlaneTile:
    """A register tile of ``width`` positions of a row of one block.

    Attributes:
        width: Positions of a row.
        divide: ``rows`` or ``blocks``, a range a task; ``both``, where neither gives every core enough: a task is one
            row of one block.
        parts: Number of ranges.
    """

    width: int
    divide: str
    parts: int


@dataclass(frozen=True)
class FirstTile:
    """A register tile of ``width`` by ``blocks``, rows taken at a time, and the number of tasks."""

    width: int
    blocks: int
    rows: int
    parts: int


@dataclass(frozen=True)
class WinogradTile:
    """A variant of Winograd's algorithm.

    Attributes:
        tile: Outputs of a tile in each direction, m.
        chunk_x: Tiles of a chunk, across.
        chunk_y: Tiles of a chunk, down.
        width: Tiles of the register tile, across.
        height: Tiles of the register tile, down.
        blocks: Channel blocks of the register tile.
        parts: Number of tasks: ranges of rows of chunks, or of channel blocks, as the kernel decides.
    """

    tile: int
    chunk_x: int
    chunk_y: int
    width: int
    height: int
    blocks: int
    parts: int

    def rounded(self, out: Pair) -> Pair:
        """Return the output's extents rounded up to whole chunks."""
        return round_up(out[0], self.tile * self.chunk_x), round_up(out[1], self.tile * self.chunk_y)


LEAST_BALANCE = 0.7
"""Share of time that cores must work for ranges of rows or of blocks to be worth their locality."""

L1_WEIGHTS = 64 * 1024
"""Bytes of weights of a tile from which input channels are taken in chunks."""

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
"""Register tiles of a first layer: width, blocks, and measured time a position relative to the best."""

DIRECT_TILES = (
    (7, 4, 1.0),
    (4, 4, 1.02),
    (7, 2, 1.06),
    (8, 2, 1.08),
    (4, 2, 1.12),
    (7, 1, 1.4),
    (8, 1, 1.4),
    (4, 1, 1.6),
    (2, 2, 1.9),
    (1, 4, 2.4),
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


def row_tile(width: int, channels: int, table: tuple[tuple[int, int, float], ...] = ROW_TILES) -> RowTile:
    """Return the cheapest legal tile for rows of ``width`` positions and ``channels`` output channels."""
    count = blocks(channels)
    legal = [(w, b, cost) for w, b, cost in table if (w == 1 or w <= width) and (b == 1 or b <= count)]
    w, b, _ = min(legal, key=lambda tile: round_up(width, tile[0]) * round_up(count, tile[1]) * tile[2])
    return RowTile(w, b)


def plane_tile(out: Pair, channels: int, threads: int) -> PlaneTile:
    """Return the cheapest legal tile of one block, for an output of these extents (x, y) and channels."""
    tile = row_tile(out[0], BLOCK, SINGLE_TILES)
    rows, parts = _balance(out[1], threads), _balance(blocks(channels), threads)
    divide = "blocks" if parts > rows else "rows"
    return PlaneTile(tile.width, "both" if max(rows, parts) < LEAST_BALANCE else divide, threads)


def direct_tile(out: Pair, inputs: int, outputs: int, taps: int, threads: int) -> DirectTile:
    """Return the variant of a direct convolution.

    Args:
        out: Extents of the output (x, y).
        inputs: Input channels.
        outputs: Output channels.
        taps: Taps of the kernel.
        threads: Threads that run it.
    """
    width, height = out
    tile = row_tile(width, outputs, DIRECT_TILES)
    weights = blocks(inputs) * taps * tile.blocks * BLOCK * BLOCK * 4
    chunk = max(1, 4 // taps) if weights >= L1_WEIGHTS and width and width % tile.width == 0 else 0
    rows = _balance(height, threads)
    parts = _balance(-(-blocks(outputs) // tile.blocks), threads)
    divide = "both" if max(rows, parts) < LEAST_BALANCE else "range"
    return DirectTile(tile.width, tile.blocks, chunk, divide, threads)


def _balance(extent: int, parts: int) -> float:
    """Return the share of time that cores work when ``parts`` of them divide ``extent`` steps."""
    return extent / (parts * -(-extent // parts)) if extent else 1.0


def first_tile(width: int, channels: int, threads: int) -> FirstTile:
    """Return the cheapest legal tile of a first layer."""
    tile = row_tile(width, channels)
    return FirstTile(tile.width, tile.blocks, 8, threads)


CACHED_WEIGHTS = 1280 * 1024
"""Bytes of weights that stay in the second-level cache of a core while tiles pass over them."""

WINOGRAD_CHUNKS = (14, 12, 10, 8, 7)
"""Tiles of a chunk across, where a row has more than eight."""


def other_winograd_tiles(tile: WinogradTile, out: Pair, outputs: int, threads: int) -> list[WinogradTile]:
    """Return variants for the output that ``tile`` serves best, of the same kind, the one that wastes least first."""
    across = -(-out[0] // tile.tile)
    chunks = sorted((*WINOGRAD_CHUNKS, *range(1, 7)), key=lambda c: (round_up(across, c), -c))
    return [_row_chunk(tile.tile, chunk, outputs, threads) for chunk in chunks]


PRECISE_CHANNELS = 128
"""Input channels up to which F(2x2) has at most twice the direct convolution's error (1.5 times at 64, 3.3 at 512).

F(4x4) has 9 to 19 times that error."""


def winograd_tile(out: Pair, inputs: int, outputs: int, threads: int, precise: bool = False) -> WinogradTile | None:
    """Return the variant for a 3 x 3 convolution of stride 1, or None where the direct one is faster.

    Args:
        out: Extents of the output (x, y).
        inputs: Input channels.
        outputs: Output channels.
        threads: Threads that run the kernel.
        precise: Whether only algorithms are wanted whose error is about that of the direct convolution.
    """
    if precise and inputs > PRECISE_CHANNELS:
        return None
    if min(out) >= 16 or (min(out) >= 12 and outputs < 128):
        m = 2 if precise else 4
    elif min(out) >= 9 and outputs >= 128:
        # F(4x4) has more than twice the weights of F(2x2), and with few tiles reading them is what takes the time.
        m = 2
    else:
        return None
    across, down, count = -(-out[0] // m), -(-out[1] // m), blocks(outputs)
    weights = (m + 2) ** 2 * inputs * outputs * 4
    if max(across, down) <= 8 and count >= max(4, 2 * threads):
        # Weights that a core's cache keeps may be read for each row of tiles; others should be read once.
        kept = m == 4 and weights <= threads * CACHED_WEIGHTS
        wide = 4 if kept and count >= 4 * threads else 2
        return WinogradTile(m, across, 1 if kept else down, across, 1, wide, threads)
    chunk = across if across <= 8 else min(WINOGRAD_CHUNKS, key=lambda c: (round_up(across, c), -c))
    if chunk == 14 and weights <= CACHED_WEIGHTS:
        chunk = 7  # nearly as fast where weights are few, and one kernel serves more sizes
    return _row_chunk(m, chunk, outputs, threads)


def _row_chunk(m: int, chunk: int, outputs: int, threads: int) -> WinogradTile:
    """Return the variant whose chunk is ``chunk`` tiles of a row."""
    return WinogradTile(m, chunk, 1, chunk, 1, min(4 if chunk == 7 else 2, blocks(outputs)), threads)
