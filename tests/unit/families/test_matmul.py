"""Register tiles of matrix products: those of every level fit its registers, and every shape has one."""

from __future__ import annotations

import pytest

from opbuild.families.layouts import registers
from opbuild.families.matmul.family import choose, tiles
from opbuild.target.level import LEVELS, Level
from opbuild.target.machine import Machine


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_the_sums_of_a_tile_stay_in_registers(level: Level) -> None:
    """Sums, a row of the right operand or elements of all rows, and one more are at most as many as there are."""
    machine = Machine.of(level)
    for rows, columns, _ in tiles(machine, is_either=True):
        vectors = columns // machine.lanes
        assert columns % machine.lanes == 0
        assert rows * vectors + min(rows, vectors) + 1 <= machine.registers
    for rows, columns, _ in tiles(machine):  # what else takes these tiles holds a row
        assert registers(rows, columns // machine.lanes) <= machine.registers
    assert registers(3, 4) == 17
    assert registers(3, 4, is_either=True) == 16


def test_products_with_16_registers_hold_three_rows_by_whole_panels_unless_numbers_have_16_bits() -> None:
    """Whole lines of a panel pass each time; fewer rows would widen the panel's numbers more often."""
    machine = Machine.of(next(level for level in LEVELS if level.name == "x86-64-v3"))
    for m in (8, 32, 128, 197):
        plain, narrow = (choose("panels", 1, m, 768, 768, dtype, machine) for dtype in ("float32", "bfloat16"))
        assert (plain["rows"], plain["columns"]) == (3, 32)
        assert narrow["rows"] != 3


@pytest.mark.parametrize("level", LEVELS, ids=str)
@pytest.mark.parametrize("layout", ["panels", "rows", "columns"])
def test_every_shape_has_a_tile_that_it_is_no_smaller_than(level: Level, layout: str) -> None:
    """A tile has no more rows than the output, and unless weights are packed no more columns."""
    for m in range(1, 40):
        for n in range(1 if layout == "panels" else 16, 140):
            variant = choose(layout, 1, m, n, 64, "float32", Machine.of(level))
            assert variant["rows"] <= m
            assert layout == "panels" or variant["columns"] <= n


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_a_large_product_gets_a_tile_with_eight_sums_or_more(level: Level) -> None:
    """Multiplications and additions take four cycles and two begin in each: fewer sums than eight would wait."""
    machine = Machine.of(level)
    for m, n in ((128, 768), (32, 384), (197, 3072)):
        variant = choose("panels", 1, m, n, 768, "float32", machine)
        assert variant["rows"] * machine.vectors(variant["columns"]) >= 8
