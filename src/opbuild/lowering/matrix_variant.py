"""Which variant computes a matrix product fastest: a small cost model over extents."""

from __future__ import annotations

from typing import Any

PANEL = 32
"""Columns in a panel of packed weights."""

SERIAL = 100_000
"""Multiplications below which waking a second thread costs more than it saves: a few microseconds."""

STAGED_ROWS, STAGED_COLUMNS = 64, 256
"""From so many rows and columns on, copying a panel together first beats jumping from row to row."""

_ROWS = ((12, 0.97), (8, 1.0), (4, 1.2), (2, 1.7), (1, 2.5))
"""Rows of a tile and what a row costs in it: few rows reuse little of what is loaded; twelve keep all registers
busy."""


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
    fitting = [(rows, cost) for rows, cost in _ROWS if rows <= m]
    rows, _ = min(fitting, key=lambda tile: -(-m // tile[0]) * tile[0] * tile[1])
    columns = _columns(layout, n, rows)
    staged = layout == "columns" or (layout == "rows" and m >= STAGED_ROWS and n >= STAGED_COLUMNS)
    tasks = {"batch": batches, "columns": -(-n // columns), "rows": -(-m // rows)}
    if staged:
        del tasks["rows"]  # every task would copy every panel
    parallel = "none"
    if threads > 1 and batches * m * n * k >= SERIAL:
        best = max(tasks, key=lambda way: _balance(tasks[way], threads))
        parallel = best if tasks[best] > 1 else "none"
    return {"rows": rows, "columns": columns, "stage": staged, "parallel": parallel}


def _columns(layout: str, n: int, rows: int) -> int:
    """Return the columns of a tile: more of them where few rows leave registers free."""
    if layout != "panels":
        return 32 if n >= 32 else 16
    panels = -(-n // PANEL)
    for wide, at_most in ((4, 1), (2, 4)):
        if rows <= at_most and panels % wide == 0:
            return wide * PANEL
    return PANEL


def _balance(tasks: int, threads: int) -> float:
    """Return the share of time in which threads work on equal tasks; in eighths, so that near ties are ties."""
    return round(8 * tasks / (-(-tasks // threads) * threads)) / 8 if tasks else 0.0
