"""Products of weights of few bits and of float32 that becomes int8, a block at a time."""

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
from opbuild.families.matmul.family import epilogue_work
from opbuild.families.matmul_integer.family import panel
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine

_TILES = {(3, 2): 1.0, (6, 1): 1.05, (2, 2): 1.15, (4, 1): 1.2, (3, 1): 1.3, (2, 1): 1.5, (1, 2): 2.5, (1, 1): 2.7}
"""Rows and panels of tiles, with the time that a row takes. Weights are taken apart once for all rows."""

_TILES_OF_FEW = {
    (5, 1): 1.0, (6, 1): 1.05, (4, 1): 1.08, (2, 2): 1.18, (3, 2): 1.195, (3, 1): 1.2, (2, 1): 1.27, (1, 2): 2.2,
    (1, 1): 2.4,
}  # fmt: skip
"""The same with few registers (Zen 3): sums of 3 rows by 2 panels leave them at each step, those of 5 by 1 do not."""

FEW_REGISTERS = 16

GROUP = 4
"""Neighbours along K whose products one instruction adds up, if it takes bytes."""

FEW = 4
"""Bits at most of weights of which sums of two products with int8 fit 16 bits, as do those of eight."""

MOST_BLOCK = 256
"""Elements of the greatest block whose sums float32 holds exactly, with 8 bits."""

RATE = 5
"""Products of a lane in a nanosecond with a tile of one row."""


def candidates(m: int, n: int, machine: Machine) -> list[Variant]:
    """Return the variants among which tuning searches, the best first.

    Args:
        m: Rows of the output, at least 1.
        n: Columns, at least 1.
        machine: What runs it.
    """
    panels, tiles = -(-n // panel(machine)), _TILES_OF_FEW if machine.registers <= FEW_REGISTERS else _TILES
    served = (tile for tile in tiles if tile[0] <= m and panels % tile[1] == 0)
    ranked = sorted(served, key=lambda tile: -(-m // tile[0]) * tile[0] * tiles[tile])
    return [{"rows": rows, "panels": side} for rows, side in ranked]


def in_halves(bits: int, machine: Machine) -> bool:
    """Return whether products of two neighbours are added up in 16 bits, where they fit."""
    return machine.halves and machine.dot != GROUP and bits <= FEW


def group(bits: int, machine: Machine) -> int:
    """Return the number of neighbours along K that are adjacent."""
    return GROUP if in_halves(bits, machine) else machine.dot


def operands(variant: Variant, bits: int, scale: str, zeros: str, machine: Machine) -> tuple[Operand, ...]:
    """Return the operands lhs, rhs, scale, of a type, and zeros, if theirs is not empty."""
    width, near, panels = panel(machine), group(bits, machine), Dim(multiple=variant["panels"])
    lhs = Operand("lhs", "float32", (Dim(stride=1), Dim(min=variant["rows"])))
    dims = (Dim(near, 1), Dim(width, near), Dim(stride=width * near), panels)
    of_blocks = (Dim(width, 1), Dim(stride=width), panels)
    packed = (Operand("rhs", "uint8", dims, "FRACTAL_Z"), Operand("scale", scale, of_blocks, "FRACTAL_Z"))
    return lhs, *packed, *((Operand("zeros", zeros, of_blocks, "FRACTAL_Z"),) if zeros else ())


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds that a product takes on one core."""
    k, elements = shapes[0][0][0], prod(extent for extent, _ in shapes[-1])
    arithmetic = elements * k / (RATE * machine.lanes * (machine.dot / GROUP) * (1 + int(desc.variant["rows"]) / 3))
    return max(arithmetic, moved_bytes(desc, shapes, machine)) + epilogue_work(desc, shapes, machine)


FAMILY = Family(
    "matmul_nbits_integer",
    first_of(candidates),
    attributes=("bits", "block", "zeros", "halves", "epilogue"),
    variant={"rows": VariantPart(least=1), "panels": VariantPart(least=1)},
    types=("float32",),
    milliseconds=250,
    least_extent=1,
    opened=without_multiples,
    work=work,
    candidates=candidates,
    products=products_of_rows,
)
