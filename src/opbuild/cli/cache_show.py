"""``opbuild cache ls``, ``show`` and ``stats``: what is stored, and what it has saved."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opbuild.cli.cache_options import cache_options, json_option, locate, print_json, size, span
from opbuild.errors import OptionError
from opbuild.plural import counted

if TYPE_CHECKING:
    from opbuild.cache import Stats
    from opbuild.store.inventory import Item

_NAMES = {"operator": "operators", "image": "networks", "weight": "packed weights", "memo": "models known"}

_COLUMNS = ("name", "kind", "variant", "ms", "size", "used")
_TABLE_AT_MOST = 500
"""Rows of a table."""


@click.command()
@cache_options
@json_option
def ls(as_json: bool, **place: Any) -> None:
    """List the operators and the stored networks, the last used first."""
    from opbuild.cache import Cache
    from opbuild.cli.count_progress import progress_of
    from opbuild.store.at_once import at_once

    config, _ = locate(**place)
    items = sorted(Cache.of(config).items("operator", "image"), key=lambda item: (-item.last_use, item.name))
    with progress_of("reading", "read", "nothing was changed") as count:
        rows = []
        for _, row in at_once(items, _row):
            rows.append(row)
            count(len(rows), len(items))
    if as_json:
        print_json(rows)
        return
    if not rows:
        click.echo(f"nothing is stored in {config.cache_folder}")
        return
    _print_rows(rows)
    total = sum(row["bytes"] for row in rows)
    operators = sum(row["kind"] == "operator" for row in rows)
    click.echo(f"{counted(operators, 'operator')}, {counted(len(rows) - operators, 'network')}, {size(total)}")


@click.command()
@click.argument("name")
@cache_options
@json_option
def show(name: str, as_json: bool, **place: Any) -> None:
    """Show one operator: its whole key, what came out, and whether its files are sound.

    NAME may be the beginning of a name.
    """
    from opbuild.cache import Cache

    config, _ = locate(**place)
    found = Cache.of(config).find(name)
    if not found:
        message = f"nothing stored in {config.cache_folder} has a name that begins with {name!r}"
        raise OptionError(message, "'opbuild cache ls' lists the names")
    if len(found) > 1:
        names = ", ".join(item.name for item in found[:5])
        raise OptionError(f"{len(found)} names begin with {name!r}: {names}", "give more of the name")
    details = _details(found[0])
    if as_json:
        print_json(details)
        return
    for field, value in details.items():
        if field == "key":
            for part, content in value.items():
                click.echo(f"  {part:<12} {_plain(content)}")
        else:
            click.echo(f"{field:<14} {_plain(value)}")


@click.command()
@cache_options
@json_option
def stats(as_json: bool, **place: Any) -> None:
    """Show how much is stored, how often it was found, and the compile time that this saved."""
    from opbuild.cache import Cache

    config, _ = locate(**place)
    numbers = Cache.of(config).stats()
    if as_json:
        print_json(_stats_json(numbers))
        return
    for kind, name in _NAMES.items():
        click.echo(f"{name:<16} {numbers.count[kind]:>8}   {size(numbers.nbytes[kind]):>10}")  # type: ignore[index]
    counters = numbers.counters
    if not counters.builds:
        click.echo("no build has been counted yet")
        return
    since = datetime.fromtimestamp(counters.since, timezone.utc).strftime("%Y-%m-%d")
    missed = sum(counters.misses.values())
    click.echo(f"{'builds':<16} {counters.builds:>8}   since {since}; starts from a stored network look nothing up")
    click.echo(f"{'hits':<16} {counters.hits:>8}   {100 * counters.hits / max(counters.hits + missed, 1):.0f} %")
    click.echo(f"{'misses':<16} {missed:>8}   {', '.join(f'{n} {code}' for code, n in counters.misses.items())}")
    click.echo(f"{'compiling saved':<16} {_seconds(counters.saved_ms):>8}   of one core")
    click.echo(f"{'compiling took':<16} {_seconds(counters.spent_ms):>8}   of one core")


def _print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Print a table, or lines where there are many: laying a table of 50,000 rows out takes minutes."""
    now = time.time()
    cells = [_cells(row, now) for row in rows]
    if len(rows) > _TABLE_AT_MOST:
        widths = [max(map(len, column)) for column in zip(_COLUMNS, *cells, strict=True)]
        for each in (_COLUMNS, *cells):
            left = (cell.ljust(width) for cell, width in zip(each[:3], widths[:3], strict=True))
            right = (cell.rjust(width) for cell, width in zip(each[3:], widths[3:], strict=True))
            click.echo(f" {'  '.join((*left, *right))}")
        return
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from opbuild.cli.tables import output_console

    table = Table(*_COLUMNS, box=SIMPLE_HEAD)
    table.columns[0].overflow = "fold"
    for column in table.columns[3:]:
        column.justify = "right"
    for each in cells:
        table.add_row(*map(Text, each))
    output_console().print(table)


def _cells(row: dict[str, Any], now: float) -> tuple[str, ...]:
    milliseconds = f"{row['milliseconds']:.0f}" if row["kind"] == "operator" else ""
    used = f"{span(now - row['last_use'])} ago"
    return row["name"], row["kind"], row["variant"], milliseconds, size(row["bytes"]), used


def _row(item: Item) -> dict[str, Any]:
    from opbuild.cache import folder_of
    from opbuild.store.inspect import summarize

    row: dict[str, Any] = {"name": item.name, "kind": "operator" if item.kind == "operator" else "network"}
    row |= {"types": "", "target": "", "variant": "", "milliseconds": 0.0}
    if item.kind == "operator":
        summary = summarize(folder_of(item), item.name)
        row |= {"types": summary.op_types, "target": summary.target, "variant": summary.variant}
        row["milliseconds"] = summary.milliseconds
    return {**row, "bytes": item.nbytes, "last_use": item.last_use}


def _details(item: Item) -> dict[str, Any]:
    from opbuild.cache import folder_of, problem_of
    from opbuild.store.inspect import summarize

    problem = problem_of(item)
    details: dict[str, Any] = {
        "name": item.name,
        "state": "sound" if problem is None else problem.text,
        "files": [Path(file).name for file in item.files],
        "bytes": item.nbytes,
        "last use": datetime.fromtimestamp(item.last_use, timezone.utc).isoformat(timespec="seconds"),
    }
    if item.kind == "operator":
        summary = summarize(folder_of(item), item.name)
        details |= {"asked by": summary.node, "compile ms": summary.milliseconds, "key": summary.components}
    return details


def _stats_json(numbers: Stats) -> dict[str, Any]:
    counters = numbers.counters
    return {
        "stored": {
            _NAMES[kind]: {"count": count, "bytes": numbers.nbytes[kind]} for kind, count in numbers.count.items()
        },
        "builds": counters.builds,
        "since": counters.since,
        "hits": counters.hits,
        "misses": dict(counters.misses),
        "saved_ms": round(counters.saved_ms, 1),
        "spent_ms": round(counters.spent_ms, 1),
    }


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1e3:.1f} s"


def _plain(value: Any) -> str:
    from opbuild.kernel.opdesc import canonical_json

    return value if isinstance(value, str) else canonical_json(value)
