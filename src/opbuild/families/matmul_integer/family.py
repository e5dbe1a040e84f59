"""Products of matrices of bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from opbuild.families.layouts import PAIR
from opbuild.families.matmul.family import epilogue_work, tiles
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine

VECTORS = 2
"""Vectors of columns in a panel of the right operand."""

RATE = 6
"""Instructions for groups of products of a lane in a nanosecond."""

TILE = 20
"""Nanoseconds that a tile takes besides."""


COSTS: Mapping[int, Mapping[tuple[int, int], float]] = {8: {(4, 16): 1.0, (5, 16): 1.0}}
"""By a vector's lanes, costs of tiles (rows, columns) that differ from those of ``matmul``. Exact sums of pairs are as
fast with 4 rows as with 6; in halves, where a register holds ones, 4 rows take 0.95 of the time (Zen 5)."""

MOST_EXCESS = 1 / 32
"""Rows of an excess relative to K up to which sums in halves are worth it. Without any these take 0.79 of the time of
exact pairs; so many rows take 0.1 more of it, and twice as many would leave no gain (768 x 3072, 4 to 128 rows)."""


def panel(machine: Machine) -> int:
    """Return the columns in a panel."""
    return VECTORS * machine.lanes


def has_halves(machine: Machine) -> bool:
    """Return whether a machine adds up products in 16 bits first, where they fit."""
    return machine.halves and machine.dot == PAIR


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
    width, costs = panel(machine), COSTS.get(machine.lanes, {})
    panels = -(-n // width)
    legal = [
        (-(-m // rows) * rows * costs.get((rows, columns), slower), rows, columns // width)
        for rows, columns, slower in tiles(machine)
        if rows <= m and columns % width == 0 and panels % (columns // width) == 0
    ]
    return [{"rows": rows, "panels": together} for _, rows, together in sorted(legal)] or [{"rows": 1, "panels": 1}]


choose = first_of(candidates)


def operands(
    rank: int, rhs_rank: int, group: int, excess: bool, variant: Variant, machine: Machine
) -> tuple[Operand, ...]:
    """Return the operands lhs and rhs, in groups of ``group``, and what ``rhs`` lacks, if there is an ``excess``."""
    batch, width = (Dim(),) * (rank - 2), panel(machine)
    columns = (Dim(group, 1), Dim(width, group), Dim(stride=group * width), Dim(multiple=variant["panels"]))
    lhs = Operand("lhs", "uint8", (Dim(stride=1), Dim(min=variant["rows"]), *batch))
    rhs = Operand("rhs", "int8", (*columns, *batch[: rhs_rank - 4]), "FRACTAL_Z")
    if not excess:
        return lhs, rhs
    places = Operand("places", "int32", (Dim(stride=1), columns[-1]), "FRACTAL_Z")
    return lhs, rhs, places, Operand("excess", "int8", (Dim(width, 1), Dim(stride=width), columns[-1]), "FRACTAL_Z")


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
    attributes=("epilogue", "halves", "excess"),
    variant={"rows": VariantPart(least=1), "panels": VariantPart(least=1)},
    types=("uint8",),
    milliseconds=110,
    least_extent=1,
    opened=without_multiples,
    work=work,
    candidates=candidates,
    products=products_of_rows,
)
