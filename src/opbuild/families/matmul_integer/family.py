"""Products of matrices of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.families.family import (
    Dims,
    Family,
    Variant,
    VariantPart,
    first_of,
    moved_bytes,
    products_of_rows,
    without_multiples,
)
from opbuild.families.matmul.family import epilogue_work, tiles
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine

VECTORS = 2
"""Vectors of columns in a panel of the right operand."""

RATE = 6
"""Instructions for groups of products of a lane in a nanosecond."""

TILE = 20
"""Nanoseconds that a tile takes besides."""


def panel(machine: Machine) -> int:
    """Return the columns in a panel."""
    return VECTORS * machine.lanes


def group(halves: bool, machine: Machine) -> int:
    """Return the number of neighbours along K that are adjacent; ``halves`` if they are added up in 16 bits first."""
    return 4 if halves else machine.dot


def candidates(m: int, n: int, machine: Machine) -> list[Variant]:
    """Return the variants among which tuning searches, the cheapest, which is chosen, first.

    Args:
        m: Rows of the output, at least 1.
        n: Columns, at least 1.
        machine: What runs it.
    """
    width = panel(machine)
    panels = -(-n // width)
    legal = [
        (-(-m // rows) * rows * slower, rows, columns // width)
        for rows, columns, slower in tiles(machine)
        if rows <= m and columns % width == 0 and panels % (columns // width) == 0
    ]
    return [{"rows": rows, "panels": together} for _, rows, together in sorted(legal)] or [{"rows": 1, "panels": 1}]


choose = first_of(candidates)


def operands(rank: int, rhs_rank: int, group: int, variant: Variant, machine: Machine) -> tuple[Operand, Operand]:
    """Return the operands lhs and rhs, in groups of ``group``, of a product whose output has ``rank``."""
    batch, width = (Dim(),) * (rank - 2), panel(machine)
    columns = (Dim(group, 1), Dim(width, group), Dim(stride=group * width), Dim(multiple=variant["panels"]))
    lhs = Operand("lhs", "uint8", (Dim(stride=1), Dim(min=variant["rows"]), *batch))
    return lhs, Operand("rhs", "int8", (*columns, *batch[: rhs_rank - 4]), "FRACTAL_Z")


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds that a product takes on one core."""
    rows, columns = int(desc.variant["rows"]), int(desc.variant["panels"]) * panel(machine)
    k, (n, m, *batch) = shapes[0][0][0], (extent for extent, _ in shapes[-1])
    count = prod(batch) * -(-m // rows) * -(-n // columns)
    arithmetic = count * (rows * columns * k / (RATE * machine.dot * machine.lanes) + TILE)
    return max(arithmetic, moved_bytes(desc, shapes, machine)) + epilogue_work(desc, shapes, machine)


FAMILY = Family(
    "matmul_integer",
    choose,
    attributes=("epilogue", "halves"),
    variant={"rows": VariantPart(least=1), "panels": VariantPart(least=1)},
    types=("uint8",),
    milliseconds=110,
    least_extent=1,
    opened=without_multiples,
    work=work,
    candidates=candidates,
    products=products_of_rows,
)
