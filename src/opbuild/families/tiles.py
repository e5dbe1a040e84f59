"""Register tiles of convolutions: which ones a machine's registers hold, and which is cheapest for an output.

A tile is a number of positions of a row by a number of channel blocks, whose sums stay in registers while inputs pass.
Every extent has a legal tile: that of one position by one block has no least extent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from opbuild.families.blocked import BLOCK
from opbuild.families.family import Dims, Variant, moved_bytes
from opbuild.families.layouts import registers
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

Pair = tuple[int, int]
"""Two numbers, x first."""

Tile = tuple[int, int, float]
"""A register tile: positions of a row, channel blocks, and measured time a position relative to the best."""

Tiles = tuple[Tile, ...]

SPLIT_TILES: Tiles = (
    (6, 1, 1.0),
    (5, 1, 1.0),
    (2, 2, 1.09),
    (4, 1, 1.12),
    (3, 1, 1.25),
    (1, 3, 1.45),
    (1, 2, 2.0),
    (2, 1, 2.0),
    (1, 1, 4.0),
)
"""Where a channel block fills several registers. From AVX2 on Sapphire Rapids and Zen 5, which differ for 2 x 2 (1.13
and 1.0 of 6 x 1) and for 4 x 1 (1.07 and 1.25): these costs take what loses least on either."""

RATE = 5
"""Multiplications with additions that a core does in a nanosecond for each lane: 160 GFLOP/s with AVX-512."""


def op_type(step: int) -> str:
    """Return the operator type of a convolution that writes each ``step``-th position of a row.

    Only a transposed one has a step above 1; one of its phases without is like any other convolution.
    """
    return "ConvTranspose" if step > 1 else "Conv"


def fitting(tiles: Mapping[int, Tiles], machine: Machine, *, is_either: bool = True) -> Tiles:
    """Return the tiles that a machine's registers hold in one of the orders in which ``accumulate`` adds up products.

    One more, and the compiler moves sums between registers and memory at each step: 18 to 30% of the time on Zen 5,
    half of it with AVX2.

    Args:
        tiles: All, by the registers that a channel block fills.
        machine: The machine.
        is_either: As of ``registers``. Where a product is an instruction apart from its addition, it is False: a
            product takes the register of the last input that is read, and with inputs of all positions one more.
    """
    each = machine.vectors(BLOCK)
    return tuple(
        tile for tile in tiles[each] if registers(tile[0], tile[1] * each, is_either=is_either) <= machine.registers
    )


def cheapest(tiles: Tiles, width: int, count: int) -> Pair:
    """Return the cheapest legal tile for rows of ``width`` positions and ``count`` channel blocks."""
    return ranked(tiles, width, count)[0]


def ranked(tiles: Tiles, width: int, count: int) -> list[Pair]:
    """Return the legal tiles for rows of ``width`` positions and ``count`` channel blocks, the cheapest first."""
    found = sorted(legal(tiles, width, count), key=lambda tile: computed(tile, width, count))
    return [tile[:2] for tile in found]


def legal(tiles: Tiles, width: int, count: int) -> list[Tile]:
    """Return the tiles that rows of ``width`` positions and ``count`` channel blocks hold."""
    return [tile for tile in tiles if (tile[0] == 1 or tile[0] <= width) and (tile[1] == 1 or tile[1] <= count)]


def computed(tile: Tile, width: int, count: int) -> float:
    """Return the relative time of a tile for ``width`` positions and ``count`` channel blocks."""
    return round_up(width, tile[0]) * round_up(count, tile[1]) * tile[2]


def round_up(value: int, multiple: int) -> int:
    """Return the least multiple that is not below ``value``."""
    return -(-value // multiple) * multiple


def along_rows(tiles: Mapping[int, Tiles]) -> tuple[Callable[..., Variant], Callable[..., list[Variant]]]:
    """Return ``choose`` and ``candidates`` of a family whose register tile is so many positions of a row."""

    def candidates(width: int, machine: Machine) -> list[Variant]:
        return [{"width": tile[0]} for tile in ranked(fitting(tiles, machine), width, 1)]

    return lambda width, machine: candidates(width, machine)[0], candidates


def accumulating_taps(
    first: int, last: int, slower: float = 1, *, overlaps: bool = False
) -> Callable[[OpDesc, Sequence[Dims], Machine], float]:
    """Return the ``work`` of a convolution: an output has the products that its weights' dimensions hold.

    Args:
        first: The first of these dimensions.
        last: The one behind the last of them.
        slower: How many times as long they take as at the full rate.
        overlaps: Whether the input has the elements that each output reads at each tap, and so many of them twice.
    """

    def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
        x, weights, *others = shapes
        read = (*x[:3], *x[5:]) if overlaps else x
        products = slower * prod(extent for extent, _ in weights[first:last])
        return accumulating(desc, [read, weights, *others], machine, products)

    return work


def accumulating(desc: OpDesc, shapes: Sequence[Dims], machine: Machine, products: float) -> float:
    """Return the nanoseconds that a convolution takes on one core: of its arithmetic, or of moving its operands.

    Args:
        desc: Its descriptor.
        shapes: Its operands' extents and strides.
        machine: What runs it.
        products: Multiplications and additions for each element of the output, at the full rate.
    """
    arithmetic = products * prod(extent for extent, _ in shapes[-1]) / (RATE * machine.lanes)
    return max(arithmetic, moved_bytes(desc, shapes, machine))
