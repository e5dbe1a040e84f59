"""Products of matrices of bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from opbuild.families.family import Dims, Family, Part, Variant, moved_bytes
from opbuild.families.matmul.family import epilogue_work, tiles
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import Dim, OpDesc, Operand

PANEL = 32
"""Columns in a panel of the right operand."""

GROUP = 4
"""Neighbours along K that are adjacent in a panel."""

RATE = 12
"""Products of a lane in a nanosecond: between 24 with VPDPBUSD and 6 without."""

TILE = 20
"""Nanoseconds that a tile takes besides."""


def choose(m: int, n: int, machine: Machine) -> Variant:
    """Return the variant for a product.

    Args:
        m: Rows of the output, at least 1.
        n: Columns, at least 1.
        machine: What runs it.
    """
    panels = -(-n // PANEL)
    best = (float("inf"), 1, PANEL)
    for rows, columns, slower in tiles(machine):
        if rows <= m and panels % max(1, columns // PANEL) == 0:
            computed = -(-m // rows) * rows * -(-n // columns) * columns
            best = min(best, (computed * slower, rows, columns))
    return {"rows": best[1], "columns": best[2]}


def operands(rank: int, rhs_rank: int, variant: Variant) -> tuple[Operand, Operand]:
    """Return the operands lhs and rhs of a product whose output has ``rank``."""
    batch = (Dim(),) * (rank - 2)
    columns = (
        Dim(GROUP, 1),
        Dim(PANEL, GROUP),
        Dim(stride=GROUP * PANEL),
        Dim(multiple=max(1, variant["columns"] // PANEL)),
    )
    lhs = Operand("lhs", "uint8", (Dim(stride=1), Dim(min=variant["rows"]), *batch))
    return lhs, Operand("rhs", "int8", (*columns, *batch[: rhs_rank - 4]), "FRACTAL_Z")


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds that a product takes on one core."""
    rows, columns = int(desc.variant["rows"]), int(desc.variant["columns"])
    k, (n, m, *batch) = shapes[0][0][0], (extent for extent, _ in shapes[-1])
    count = prod(batch) * -(-m // rows) * -(-n // columns)
    arithmetic = count * (rows * columns * k / (RATE * machine.lanes) + TILE)
    return max(arithmetic, moved_bytes(desc, shapes, machine)) + epilogue_work(desc, shapes, machine)


def _opened(_desc: OpDesc, _operand: Operand, _number: int, dim: Dim) -> Dim:
    return replace(dim, multiple=1)


FAMILY = Family(
    "matmul_integer",
    choose,
    attributes=("epilogue",),
    variant={"rows": Part(least=1), "columns": Part(least=PANEL)},
    types=("uint8",),
    milliseconds=110,
    least_extent=1,
    opened=_opened,
    work=work,
)
