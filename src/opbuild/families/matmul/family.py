"""Matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from opbuild.families.dims import VECTOR
from opbuild.families.family import PARALLEL, THREADS, Family, Part, Variant
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import Dim, OpDesc, Operand

PANEL = 32
"""Columns in a panel of packed weights."""

SERIAL = 100_000
"""Multiplications below which waking a second thread costs more than it saves: a few microseconds."""

STAGED_ROWS, STAGED_COLUMNS = 64, 256
"""From so many rows and columns on, copying a panel together first beats jumping from row to row."""

_TILES = (
    (12, 1, 1.0), (8, 1, 1.02), (6, 2, 0.96), (4, 2, 1.1), (4, 1, 1.4), (2, 2, 1.6), (2, 1, 2.1),
    (1, 4, 2.5), (1, 2, 2.6), (1, 1, 3.0),
)  # fmt: skip
"""Tiles: rows, panels side by side, cost of an element of the output (small tiles reuse little of what is loaded)."""


def choose(layout: str, batches: int, m: int, n: int, k: int, machine: Machine) -> Variant:
    """Return the variant for a product.

    Args:
        layout: How the right operand lies: ``panels``, ``rows`` or ``columns``.
        batches: Products in one call.
        m: Rows of the output, at least 1.
        n: Columns, at least 1; at least 16 unless ``panels``.
        k: Products to sum up.
        machine: What runs it.
    """
    rows, columns = _tile(layout, m, n)
    staged = layout == "columns" or (layout == "rows" and m >= STAGED_ROWS and n >= STAGED_COLUMNS)
    tasks = {"batch": batches, "columns": -(-n // columns), "rows": -(-m // rows)}
    if staged:
        del tasks["rows"]  # every task would copy every panel
    parallel = "none"
    if THREADS > 1 and batches * m * n * k >= SERIAL:
        best = max(tasks, key=lambda way: _balance(tasks[way], THREADS))
        parallel = best if tasks[best] > 1 else "none"
    return {"rows": rows, "columns": columns, "stage": staged, "parallel": parallel}


def operands(layout: str, rank: int, rhs_rank: int, lhs_stride: int, variant: Variant) -> tuple[Operand, Operand]:
    """Return the operands lhs and rhs of a product whose output has ``rank``; ``lhs_stride``: 1 or ``FREE``."""
    batch = (Dim(),) * (rank - 2)
    if layout == "panels":
        dims = (Dim(PANEL, 1), Dim(stride=PANEL), Dim(multiple=variant["columns"] // PANEL), *batch[: rhs_rank - 3])
    elif layout == "rows":
        dims = (Dim(stride=1, min=variant["columns"]), Dim(), *batch)
    else:
        dims = (Dim(min=variant["columns"]), Dim(stride=1, min=VECTOR), *batch)
    lhs = Operand("lhs", "float32", (Dim(stride=lhs_stride), Dim(min=variant["rows"]), *batch))
    return lhs, Operand("rhs", "float32", dims, "FRACTAL_Z" if layout == "panels" else "ND")


def _tile(layout: str, m: int, n: int) -> tuple[int, int]:
    """Return rows and columns of the tile that costs least; what a last tile computes twice or in vain is counted."""
    narrow = VECTOR if layout != "panels" and n < PANEL else PANEL
    panels = -(-n // PANEL)
    best = (float("inf"), 1, narrow)
    for rows, wide, cost in _TILES:
        columns = wide * narrow
        fits = panels % wide == 0 if layout == "panels" else columns <= n
        if rows <= m and fits:
            work = -(-m // rows) * rows * -(-n // columns) * columns
            best = min(best, (work * cost, rows, columns))
    return best[1:]


def _balance(tasks: int, threads: int) -> float:
    """Return the share of time in which threads work on equal tasks; in eighths, so that near ties are ties."""
    return round(8 * tasks / (-(-tasks // threads) * threads)) / 8 if tasks else 0.0


def _least_columns(attrs: Mapping[str, Any]) -> int:
    return PANEL if attrs["rhs"] == "panels" else VECTOR


def _opened(desc: OpDesc, operand: Operand, number: int, dim: Dim) -> Dim:
    if operand.name != "rhs" or desc.attrs["rhs"] == "panels":
        return replace(dim, multiple=1)
    # K of a staged operand keeps its limit.
    return replace(dim, min=VECTOR if number == 0 else operand.dims[number].min)


FAMILY = Family(
    "matmul",
    choose,
    attributes=("rhs", "epilogue"),
    variant={"rows": Part(least=1), "columns": Part(least=_least_columns), "stage": Part(), "parallel": PARALLEL},
    types=("float32",),
    milliseconds=105,
    least_extent=1,
    opened=_opened,
)
