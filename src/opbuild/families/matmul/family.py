"""Matrix products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

from opbuild.dtypes import NARROW_FLOATS
from opbuild.families.dims import VECTOR
from opbuild.families.family import FLOATS, Dims, Family, Variant, VariantPart, moved_bytes, products_of_rows
from opbuild.families.layouts import PACKED, PANEL, registers, words
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.operations.expression import cost, from_json, walk
from opbuild.operations.record import Cost
from opbuild.platform.records import replace
from opbuild.target.machine import Machine

STAGED_ROWS, STAGED_COLUMNS = 64, 256
"""From so many rows and columns on, copying a panel together first beats jumping from row to row."""

WIDENED_TILES = {16: 64, 8: 64, 4: 2}
"""By a vector's lanes, tiles of rows that must pass by a panel of 16 bits for it to be copied as float32 first. Long
vectors are converted as they are loaded, by instructions that do not wait for those that multiply."""

_TILES = {
    16: (
        (12, 32, 1.0), (8, 32, 1.02), (6, 64, 0.96), (4, 64, 1.1), (4, 32, 1.4), (2, 64, 1.6), (2, 32, 2.1),
        (1, 128, 2.5), (1, 64, 2.6), (1, 32, 3.0),
        (12, 16, 1.3), (8, 16, 1.5), (4, 16, 2.0), (2, 16, 3.5), (1, 16, 5.0),
    ),
    8: (
        (3, 32, 0.9), (6, 16, 1.0), (5, 16, 1.04), (2, 32, 1.05), (4, 16, 1.14), (2, 16, 1.9), (1, 32, 2.6),
        (1, 16, 5.0),
    ),
    4: ((4, 16, 0.95), (2, 16, 1.0), (6, 8, 1.08), (1, 16, 1.5)),
}  # fmt: skip
"""Tiles by a vector's lanes: rows, columns, cost of an element of the output (small tiles reuse little of what is
loaded, and wait for their own sums). Measured with AVX-512, AVX2 and SSE; not measured is 4x16, which needs Arm's 32
registers. With AVX2 2x32 takes 1.17 of the time of 6x16 on Zen 5 and 0.93 on Zen 4."""

RATE = 6
"""Multiplications and additions of a lane in a nanosecond: two a cycle, at 3 GHz."""

TILE = 20
"""Nanoseconds that a tile takes besides."""

COPIED = 5
"""Elements of a panel that are copied in a nanosecond."""

HEAVY = 6
"""Nanoseconds that one operation of an epilogue takes for a vector if it is no plain instruction: 16 to 20 cycles."""


@lru_cache(maxsize=64)
def tiles(machine: Machine, dtype: str = "float32", *, is_either: bool = False) -> tuple[tuple[int, int, float], ...]:
    """Return the tiles for a machine: rows, columns, cost of an element relative to the best; all fit its registers.

    Args:
        machine: The machine.
        dtype: Element type.
        is_either: Whether tiles may hold elements of all rows and one vector, where a row of vectors does not fit.
    """
    fitting = (
        (rows, columns, cost)
        for rows, columns, cost in _TILES[machine.lanes]
        if registers(rows, machine.vectors(columns), is_either=is_either) <= machine.registers
    )
    return tuple((rows, columns // words(dtype), cost) for rows, columns, cost in fitting)


def choose(layout: str, batches: int, m: int, n: int, k: int, dtype: str, machine: Machine) -> Variant:
    """Return the variant for a product.

    Args:
        layout: How the right operand lies: ``panels``, ``pairs``, ``rows`` or ``columns``.
        batches: Products in one call.
        m: Rows of the output, at least 1.
        n: Columns, at least 1; at least 16 unless packed.
        k: Products to sum up.
        dtype: Element type of the right operand.
        machine: What runs it.
    """
    rows, columns = _tiles(layout, m, n, dtype, machine)[0]
    staged = layout == "columns" or (layout == "rows" and m >= STAGED_ROWS and n >= STAGED_COLUMNS)
    staged = staged or (layout == "panels" and dtype in NARROW_FLOATS and m >= WIDENED_TILES[machine.lanes] * rows)
    return {"rows": rows, "columns": columns, "stage": staged}


def candidates(layout: str, batches: int, m: int, n: int, k: int, dtype: str, machine: Machine) -> list[Variant]:
    """Return the variants among which tuning searches; the arguments are those of ``choose``."""
    own = choose(layout, batches, m, n, k, dtype, machine)["stage"]
    either = layout == "rows" or (layout == "panels" and dtype in NARROW_FLOATS)
    return [
        {"rows": rows, "columns": columns, "stage": stage}
        for rows, columns in _tiles(layout, m, n, dtype, machine)
        for stage in ((own, not own) if either else (own,))
    ]


def operands(
    layout: str, rank: int, rhs_rank: int, lhs_stride: int, variant: Variant, dtype: str = "float32"
) -> tuple[Operand, Operand]:
    """Return the operands lhs and rhs of a product whose output has ``rank``.

    Args:
        layout: As in ``choose``.
        rank: Dimensions of the output.
        rhs_rank: Dimensions of the right operand.
        lhs_stride: Between neighbours along K: 1 or ``FREE``.
        variant: As ``choose`` returned it.
        dtype: Element type of the right operand; one of 16 bits in panels only, beside float32 on the left.
    """
    batch = (Dim(),) * (rank - 2)
    if layout == "panels":
        side_by_side = max(1, variant["columns"] // PANEL)
        dims = (Dim(PANEL, 1), Dim(stride=PANEL), Dim(multiple=side_by_side), *batch[: rhs_rank - 3])
    elif layout == "pairs":
        dims = (Dim(2, 1), Dim(PANEL, 2), Dim(stride=2 * PANEL), Dim(multiple=variant["columns"] // PANEL))
    elif layout == "rows":
        dims = (Dim(stride=1, min=variant["columns"]), Dim(), *batch)
    else:
        dims = (Dim(min=variant["columns"]), Dim(stride=1, min=VECTOR), *batch)
    own = "float32" if dtype in NARROW_FLOATS else dtype
    lhs = Operand("lhs", own, (Dim(stride=lhs_stride), Dim(min=variant["rows"]), *batch))
    return lhs, Operand("rhs", dtype, dims, "FRACTAL_Z" if layout in PACKED else "ND")


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds that a product takes on one core."""
    rows, columns = int(desc.variant["rows"]), int(desc.variant["columns"])
    dtype = desc.inputs[0].dtype
    slower = next((slower for *tile, slower in tiles(machine, dtype, is_either=True) if tile == [rows, columns]), 1.0)
    k, (n, m, *batch) = shapes[0][0][0], (extent for extent, _ in shapes[-1])
    count = prod(batch) * -(-m // rows) * -(-n // columns)
    copied = prod(extent for extent, _ in shapes[1]) / COPIED if desc.variant.get("stage") else 0.0
    rate = RATE * machine.lanes / words(dtype) * (2 if desc.attrs["rhs"] == "pairs" else 1)
    arithmetic = count * (slower * rows * columns * k / rate + TILE) + copied
    return max(arithmetic, moved_bytes(desc, shapes, machine)) + epilogue_work(desc, shapes, machine)


def epilogue_work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds that the epilogue of a kernel takes on one core, plain instructions not counted."""
    heavy = sum(cost(part) is Cost.HEAVY for part in walk(from_json(desc.attrs["epilogue"])))
    return heavy * HEAVY * prod(extent for extent, _ in shapes[-1]) / machine.lanes


def _tiles(layout: str, m: int, n: int, dtype: str, machine: Machine) -> list[tuple[int, int]]:
    """Return rows and columns of the legal tiles, the cheapest first.

    What a last tile computes twice or in vain is counted.
    """
    panels = -(-n // PANEL)
    legal = []
    # Few rows at a time would widen a panel of 16 bits more often.
    for rows, columns, slower in tiles(machine, dtype, is_either=dtype not in NARROW_FLOATS):
        fits = panels % max(1, columns // PANEL) == 0 if layout in PACKED else columns <= n
        fits = fits and (layout != "pairs" or columns >= PANEL)
        if rows <= m and fits:
            computed = -(-m // rows) * rows * -(-n // columns) * columns
            legal.append((computed * slower, rows, columns))
    return [tile[1:] for tile in sorted(legal)] or [(1, PANEL)]


def _least_columns(attrs: Mapping[str, Any]) -> int:
    return PANEL if attrs["rhs"] in PACKED else VECTOR


def _opened(desc: OpDesc, operand: Operand, number: int, dim: Dim) -> Dim:
    if operand.name != "rhs" or desc.attrs["rhs"] in PACKED:
        return replace(dim, multiple=1)
    # K of a staged operand keeps its limit.
    return replace(dim, min=VECTOR if number == 0 else operand.dims[number].min)


FAMILY = Family(
    "matmul",
    choose,
    attributes=("rhs", "epilogue"),
    variant={"rows": VariantPart(least=1), "columns": VariantPart(least=_least_columns), "stage": VariantPart()},
    types=FLOATS,
    milliseconds=105,
    least_extent=1,
    opened=_opened,
    work=work,
    candidates=candidates,
    products=products_of_rows,
)
