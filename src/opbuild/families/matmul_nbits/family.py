"""Products of float32 and weights of few bits in blocks of one scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opbuild.families.family import Dims, Family, Variant, VariantPart, moved_bytes, products_of_rows, without_multiples
from opbuild.families.matmul.family import epilogue_work
from opbuild.families.matmul_integer.family import VECTORS, panel
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.machine import Machine

_TILES = ((4, 1), (3, 1), (2, 1), (1, 2), (1, 1))
"""Rows and panels of tiles, whose sums of a block and of blocks fill twice as many registers.

Rows for which that is worth it have their weights made float32 before them, a panel at a time (``stage``), and sums of
their own in registers: 128 rows take 0.6 of the time on AVX-512."""

_OTHERS = ((2, 2), (1, 4))
"""Further tiles, which tuning tries."""

RATE = 2
"""Products of a lane in a nanosecond with a tile of one row; weights become float32 once for all rows."""

STAGED_RATE, STAGED = 5, 0.3
"""Products of a lane in a nanosecond with weights that are float32 before, and weights that become so."""


def choose(m: int, n: int, machine: Machine) -> Variant:
    """Return the variant for a product.

    Args:
        m: Rows of the output, at least 1.
        n: Columns, at least 1.
        machine: What runs it.
    """
    return next(_variants(_TILES, m, n, machine))


def candidates(m: int, n: int, machine: Machine) -> list[Variant]:
    """Return the variants among which tuning searches; the arguments are those of ``choose``."""
    return list(_variants((*_TILES, *_OTHERS), m, n, machine))


def _variants(tiles: Sequence[tuple[int, int]], m: int, n: int, machine: Machine) -> Iterator[Variant]:
    """Yield the variants of those tiles that an output has room for and registers hold."""
    panels, staged = -(-n // panel(machine)), min(12, (machine.registers - 4) // VECTORS)
    if m >= staged:
        yield {"rows": staged, "panels": 1, "stage": True}
    for rows, side in tiles:
        if rows <= m and panels % side == 0 and (2 * rows + 1) * side * VECTORS < machine.registers:
            yield {"rows": rows, "panels": side}


def operands(variant: Variant, scale: str, zeros: str, machine: Machine) -> tuple[Operand, ...]:
    """Return the operands lhs, rhs, scale, of a type, and zeros, if theirs is not empty."""
    width = panel(machine)
    dims = (Dim(width, 1), Dim(stride=width), Dim(multiple=variant["panels"]))
    lhs = Operand("lhs", "float32", (Dim(stride=1), Dim(min=variant["rows"])))
    packed = (Operand("rhs", "uint8", dims, "FRACTAL_Z"), Operand("scale", scale, dims, "FRACTAL_Z"))
    return lhs, *packed, *((Operand("zeros", zeros, dims, "FRACTAL_Z"),) if zeros else ())


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds that a product takes on one core."""
    k, ((n, _), (m, _)) = shapes[0][0][0], shapes[-1]
    if desc.variant.get("stage"):
        arithmetic = n * k / machine.lanes * (m / STAGED_RATE + 1 / STAGED)
    else:
        arithmetic = m * n * k / machine.lanes / (RATE * (1 + int(desc.variant["rows"]) / 2))
    return max(arithmetic, moved_bytes(desc, shapes, machine)) + epilogue_work(desc, shapes, machine)


FAMILY = Family(
    "matmul_nbits",
    choose,
    attributes=("bits", "block", "zeros", "epilogue"),
    variant={"rows": VariantPart(least=1), "panels": VariantPart(least=1), "stage": VariantPart(is_extra=True)},
    types=("float32",),
    milliseconds=150,
    least_extent=1,
    opened=without_multiples,
    work=work,
    candidates=candidates,
    products=products_of_rows,
)
