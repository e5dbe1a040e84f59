"""Register tiles of blocked images: those of every family fit the registers of every level; every output has one."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from itertools import product
from types import ModuleType

import pytest

from opbuild.families import catalogue
from opbuild.families.blocked import BLOCK
from opbuild.families.conv import family as direct
from opbuild.families.conv_depthwise import family as depthwise
from opbuild.families.conv_first import family as first_layer
from opbuild.families.conv_grouped import family as grouped
from opbuild.families.conv_integer import family as integer
from opbuild.families.family import Variant
from opbuild.families.matmul_integer.family import VECTORS
from opbuild.families.matmul_nbits_integer import family as few_bits
from opbuild.families.tiles import fitting
from opbuild.families.winograd_integer import family as winograd_integer
from opbuild.target.level import LEVELS, Level
from opbuild.target.machine import Machine

EACH_LEVEL = pytest.mark.parametrize("level", LEVELS, ids=str)
ROWS = (*range(40), 52, 55, 56, 111, 112, 224)
COUNTS = (*range(1, 14), 16, 27, 32, 63)


def module(name: str) -> ModuleType:
    """Return the module of a family's record."""
    return import_module(f"opbuild.families.{name}.family")


TILED = [name for name in catalogue.names() if hasattr(module(name), "TILES")]
"""The families that have tables of tiles, each found by itself."""


def test_families_with_tiles_are_found() -> None:
    """A test of no families would hold nothing."""
    assert set(TILED) >= {"conv", "conv_depthwise", "conv_first", "conv_grouped", "winograd"}


@EACH_LEVEL
@pytest.mark.parametrize("name", TILED)
def test_sums_weights_and_inputs_are_held_in_registers(name: str, level: Level) -> None:
    """One register more and the compiler would keep some sums in memory, at each step.

    Beside the sums are the weights of one input channel and an input, or inputs of all positions and a vector of
    weights.
    """
    machine = Machine.of(level)
    found = module(name).tiles(machine)
    for width, blocks, _ in found:
        sums, weights = (count * machine.vectors(BLOCK) for count in (width * blocks, blocks))
        assert sums + min(weights, width) + 1 <= machine.registers, f"{width} x {blocks} for {level}"
    assert (1, 1) in {tile[:2] for tile in found}


@EACH_LEVEL
@pytest.mark.parametrize("m", [1, 2, *range(4, 40), 128])
def test_sums_of_products_of_few_bits_are_held_in_registers(m: int, level: Level) -> None:
    """Beside them are weights, an element of the left operand and a product; three rows alone are as fast without."""
    machine = Machine.of(level)
    chosen = few_bits.candidates(m, 2048, machine)[0]
    weights = chosen["panels"] * VECTORS
    assert chosen["rows"] * weights + weights + 2 <= machine.registers


def test_a_tile_of_33_registers_is_none() -> None:
    """7 x 4 was the first choice: 28 sums and 4 vectors of weights fill 32 registers, and an input needs one."""
    machine = Machine.of(next(level for level in LEVELS if level.name == "x86-64-v4"))
    assert fitting({1: ((7, 4, 1.0), (7, 3, 1.1))}, machine) == ((7, 3, 1.1),)


@EACH_LEVEL
def test_integers_leave_a_register_for_a_product(level: Level) -> None:
    """Products of pairs are added up by another instruction; 3 x 2 of AVX2, the best for floats, would be spilled."""
    machine = Machine.of(level)
    found = winograd_integer.tiles(machine)
    for width, blocks, _ in found:
        assert (width + 1) * blocks * machine.vectors(BLOCK) + 1 <= machine.registers, f"{width} x {blocks} for {level}"
    assert {(1, 1), (2, 1)} <= {tile[:2] for tile in found}


@cache
def chosen(level: Level) -> dict[str, list[tuple[int, int, Variant]]]:
    """Return each family's variants for outputs of all kinds, with their rows' extents and channel blocks."""
    machine = Machine.of(level)
    pairs = [(row, count) for row in ROWS for count in COUNTS]
    direct_ones = [
        (row, count, direct.choose((row, 14), inputs, BLOCK * count, taps, False, machine))
        for row, count in pairs
        for inputs, taps in ((16, 1), (256, 1), (2048, 1), (512, 9))
    ]
    first = [(row, count, first_layer.choose(row, BLOCK * count, machine)) for row, count in pairs]
    single = {
        name: [(row, 1, {**choose(row, machine), "blocks": 1}) for row in ROWS]
        for name, choose in (("conv_depthwise", depthwise.choose), ("conv_grouped", grouped.choose))
    }
    return {"conv": direct_ones, "conv_first": first, **single}


@pytest.mark.slow
@EACH_LEVEL
def test_every_output_has_a_tile_that_it_is_no_smaller_than(level: Level) -> None:
    """Tails are shifted inwards, so a tile larger than an extent would write outside; chunks divide their rows."""
    for name, variants in chosen(level).items():
        for row, count, variant in variants:
            assert variant["width"] <= max(1, row), (name, row, variant)
            assert variant["blocks"] <= count, (name, count, variant)
            assert not variant.get("chunked") or (row and row % variant["width"] == 0), (name, row, variant)


@EACH_LEVEL
def test_every_tile_is_the_cheapest_somewhere(level: Level) -> None:
    """A tile that nothing takes would be dead, and a chunk that nothing takes a schedule that nobody needs."""
    for name, variants in chosen(level).items():
        tiles = {tile[:2] for tile in module(name).tiles(Machine.of(level))}
        assert {(variant["width"], variant["blocks"]) for *_, variant in variants} == tiles, name
    assert {variant["chunked"] for *_, variant in chosen(level)["conv"]} == {False, True}


def test_short_sums_of_bytes_take_small_tiles_where_a_block_is_a_register() -> None:
    """So that rounding one tile's sums runs beside the products of the next; long sums read weights less often."""
    for level in LEVELS:
        machine = Machine.of(level)
        short, long = (integer.choose((56, 56), 256, steps, machine) for steps in (integer.SHORT, integer.SHORT + 1))
        if machine.vectors(BLOCK) == 1:
            assert short["width"] * short["blocks"] == 8
            assert long["width"] * long["blocks"] == 28
        else:
            assert short == long
        for row, count, steps in product(ROWS, COUNTS, (1, integer.SHORT, 9 * integer.SHORT)):
            found = integer.choose((row, 14), BLOCK * count, steps, machine)
            positions = row if machine.dot == 4 else 14 * row  # whose tiles cross rows
            assert found["width"] <= max(1, positions), (level, row, count, found)
            assert found["blocks"] <= count, (level, row, count, found)


def test_rows_are_joined_where_tiles_do_not_divide_them_and_inputs_stay_in_the_cache() -> None:
    """With AVX2 7 positions are no multiple of 3; short sums do not pay for finding rows, nor do long ones of memory.

    With AVX-512 rows have tiles that divide them.
    """
    narrow, wide = (
        Machine.of(next(level for level in LEVELS if level.name == name)) for name in ("x86-64-v3", "x86-64-v4")
    )
    outputs = {((7, 7), 512): True, ((14, 14), 256): True, ((14, 14), 64): False, ((28, 28), 512): False}
    for (out, inputs), joins in outputs.items():
        assert direct.choose(out, inputs, 256, 1, False, narrow).get("joined", False) == joins, (out, inputs)
        assert "joined" not in direct.choose(out, inputs, 256, 1, False, wide)
    assert "joined" not in direct.choose((7, 1), 512, 256, 1, False, narrow)


def test_tiles_of_one_block_serve_where_blocks_are_five_or_seven() -> None:
    """Tiles of two blocks would compute a sixth or an eighth in vain; with nine and more that matters less."""
    machine = Machine.of(next(level for level in LEVELS if level.name == "x86-64-v4"))
    blocks = {
        count: direct.choose((14, 14), 480, BLOCK * count, 1, False, machine)["blocks"] for count in (4, 5, 7, 13)
    }
    assert blocks == {4: 2, 5: 1, 7: 1, 13: 2}
