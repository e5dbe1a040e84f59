"""Register tiles of matrix products: those of every level fit its registers, and every shape has one."""

from __future__ import annotations

import pytest

from opbuild.families.matmul.family import choose, registers, tiles
from opbuild.kernel.level import LEVELS, Level
from opbuild.kernel.machine import Machine


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_the_sums_of_a_tile_stay_in_registers(level: Level) -> None:
    """Sums, a row of the right operand and an element of the left one are at most as many vectors as there are."""
    machine = Machine.of(level)
    for rows, columns, _ in tiles(machine):
        vectors = columns // machine.lanes
        assert columns % machine.lanes == 0
        assert registers(rows, columns, machine) == rows * vectors + vectors + 1 <= machine.registers


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
