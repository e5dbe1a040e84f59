"""The table of ``opbuild cache ls``: a row an operator or network, of which each says what it takes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opbuild.cli.cache_options import KINDS, span
from opbuild.cli.echoing import echo
from opbuild.text.plural import counted, size

if TYPE_CHECKING:
    from opbuild.store.items import Item

COLUMNS = ("name", "kind", "variant", "ms", "size", "idle")
_TABLE_AT_MOST = 500
"""Rows of a table: laying one of 50,000 rows out takes minutes."""
_WIDE = 120
"""Characters of a line that has room for the variant."""


def row_of(item: Item, weights: Mapping[str, Item]) -> dict[str, Any]:
    """Return what ``--json`` shows of an item.

    Args:
        item: The item.
        weights: Packed weights, by digest.
    """
    from opbuild.cache.folder import folder_of
    from opbuild.store.inspect import summarize
    from opbuild.store.networks import weights_of

    row: dict[str, Any] = {"name": item.name, "kind": KINDS[item.kind]}
    row |= {"types": "", "target": "", "variant": "", "milliseconds": 0.0, "other_release": False}
    if item.kind == "operator":
        summary = summarize(folder_of(item), item.name)
        row |= {"types": summary.op_types, "target": summary.target, "variant": summary.variant}
        row["milliseconds"] = summary.milliseconds
        row["other_release"] = summary.is_of_another_release
    elif item.kind == "image":
        mapped = [weights[digest].nbytes for digest in weights_of(item) if digest in weights]
        row |= {"weights": len(mapped), "weights_bytes": sum(mapped)}
    return {**row, "bytes": item.nbytes, "last_use": item.last_use}


def print_rows(rows: Sequence[dict[str, Any]], host: str) -> None:
    """Print a table, or lines where there are many.

    Args:
        rows: What ``row_of`` returned.
        host: The level that need not be said.
    """
    now = time.time()
    cells = [_cells(row, now, host) for row in rows]
    if len(rows) > _TABLE_AT_MOST:
        widths = [max(map(len, column)) for column in zip(COLUMNS, *cells, strict=True)]
        for each in (COLUMNS, *cells):
            left = (cell.ljust(width) for cell, width in zip(each[:3], widths[:3], strict=True))
            right = (cell.rjust(width) for cell, width in zip(each[3:], widths[3:], strict=True))
            echo("  ".join((*left, *right)))
        return
    from rich.text import Text

    from opbuild.cli.tables import WHOLE_NAMES, output_console, plain_table

    console = output_console()
    shown = [number for number, name in enumerate(COLUMNS) if name != "variant" or console.width >= _WIDE]
    table = plain_table(*(COLUMNS[number] for number in shown))
    table.columns[0].overflow = "fold"
    table.columns[0].no_wrap = console.width >= WHOLE_NAMES
    for column in table.columns[-3:]:
        column.justify = "right"
        column.no_wrap = True
    for each in cells:
        table.add_row(*(Text(each[number]) for number in shown))
    if rows:
        console.print(table)


def _cells(row: dict[str, Any], now: float, host: str) -> tuple[str, ...]:
    milliseconds = f"{row['milliseconds']:.0f}" if row["kind"] == "operator" else ""
    idle = span(now - row["last_use"])
    variant = row["variant"]
    if row["kind"] == "network" and row["weights"]:
        variant = f"with {counted(row['weights'], 'packed weight')} of {size(row['weights_bytes'])}"
    elif row["other_release"]:
        variant = f"of another release, for {row['target']}: {variant}"
    elif row["target"] not in ("", host):
        variant = f"for {row['target']}: {variant}"
    return row["name"], row["kind"], variant, milliseconds, size(row["bytes"]), idle
