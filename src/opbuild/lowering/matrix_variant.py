"""Which variant computes a matrix product fastest: a small cost model over extents."""

from __future__ import annotations

from typing import Any

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


def choose(layout: str, batches: int, m: int, n: int, k: int, threads: int) -> dict[str, Any]:
    """Return the variant for a product.

    Args:
        layout: How the right operand lies: ``panels``, ``rows`` or ``columns``.
        batches: Products in one call.
        m: Rows of the output, at least 1.
        n: Columns, at least 1; at least 16 unless ``panels``.
        k: Products to sum up.
        threads: Threads that share the work.
    """
    rows, columns = _tile(layout, m, n)
    staged = layout == "columns" or (layout == "rows" and m >= STAGED_ROWS and n >= STAGED_COLUMNS)
    tasks = {"batch": batches, "columns": -(-n // columns), "rows": -(-m // rows)}
    if staged:
        del tasks["rows"]  # every task would copy every panel
    parallel = "none"
    if threads > 1 and batches * m * n * k >= SERIAL:
        best = max(tasks, key=lambda way: _balance(tasks[way], threads))
        parallel = best if tasks[best] > 1 else "none"
    return {"rows": rows, "columns": columns, "stage": staged, "parallel": parallel}


def _tile(layout: str, m: int, n: int) -> tuple[int, int]:
    """Return rows and columns of the tile that costs least; what a last tile computes twice or in vain is counted."""
    narrow = 16 if layout != "panels" and n < PANEL else PANEL
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
