"""``opbuild cache ls``, ``show`` and ``stats``: the stored items, and the time that they have saved."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from opbuild.cli.cache_options import json_option, locate_place, place_options, print_json, span
from opbuild.cli.echoing import echo
from opbuild.errors import OptionError
from opbuild.target.host import host_level
from opbuild.text.canonical import canonical_json
from opbuild.text.plural import counted, size

if TYPE_CHECKING:
    from opbuild.cache.folder import Stats
    from opbuild.store.items import Kind

_THINGS: dict[Kind, tuple[str, str]] = {
    "operator": ("operator", ""), "image": ("network", ""), "weight": ("packed weight", ""),
}  # fmt: skip
"""What ``ls`` counts."""

COLUMNS = ("name", "kind", "variant", "ms", "size", "idle")
_TABLE_AT_MOST = 500
"""Rows of a table: laying one of 50,000 rows out takes minutes."""
_WIDE = 120
"""Characters of a line that has room for the variant."""

_LISTED = ("operators", "key")
"""Fields whose parts are lines of their own."""


@click.command()
@place_options
@json_option
def ls(as_json: bool, **place: Any) -> None:
    """List operators and networks, the last used first, and sum up what is stored, packed weights too."""
    from opbuild.cache import folder as tables
    from opbuild.cache.folder import Cache
    from opbuild.cli.count_progress import count_progress
    from opbuild.cli.env import pack_text

    config = locate_place(**place)
    cache = Cache.of(config)
    with count_progress("reading", "read", "nothing was changed") as count:
        rows, weights = tables.rows(cache, count)
    if as_json:
        print_json([*rows, *weights])
        return
    if not rows and not weights:
        echo(f"nothing is stored in {config.cache_folder}")
        return
    host = host_level().name
    _print_rows(rows, host)
    old = sum(row["other_release"] for row in rows)
    current = Counter(row["target"] for row in rows if not row["other_release"])
    for level, number in sorted(current.items()):
        if level not in ("", host):
            echo(f"for another level: {counted(number, 'operator')} for {level}")
    if old:
        echo(f"of another release of opbuild: {counted(old, 'operator')}, which no build of this one finds")
    echo(f"the release's pack, below this store: {pack_text(config)}")
    echo(f"{_sum(cache.stats())} together in {cache.folder}")


def _sum(numbers: Stats) -> str:
    """Return a line that sums up what is stored; its total, which is that of ``du``, stands at the end."""
    parts = [
        f"{counted(numbers.count[kind], thing, things)} ({size(numbers.nbytes[kind])})"
        for kind, (thing, things) in _THINGS.items()
    ]
    others = numbers.nbytes["memo"] + numbers.others
    return f"{', '.join(parts)}, other files ({size(others)})\n{size(numbers.total)}"


@click.command()
@click.argument("name")
@place_options
@json_option
def show(name: str, as_json: bool, **place: Any) -> None:
    """Show one operator (its whole key) or network (inputs, outputs, operators, weights), and whether it is sound.

    NAME may be the beginning of a name.
    """
    from opbuild.cache import folder as tables
    from opbuild.cache.folder import Cache

    config = locate_place(**place)
    cache = Cache.of(config)
    found = cache.find(name)
    if not found:
        message = f"nothing stored in {config.cache_folder} has a name that begins with {name!r}"
        raise OptionError(message, "'opbuild cache ls' lists the names")
    if len(found) > 1:
        names = ", ".join(item.name for item in found[:5])
        raise OptionError(f"{len(found)} names begin with {name!r}: {names}", "give more of the name")
    details = tables.details(cache, found[0])
    if as_json:
        print_json(details)
    else:
        _print_details(details)


@click.command()
@place_options
@json_option
def stats(as_json: bool, **place: Any) -> None:
    """Show how much is stored, how often it was found, and the compile time that this saved."""
    from opbuild.cache import folder as tables
    from opbuild.cache.folder import Cache

    config = locate_place(**place)
    numbers = Cache.of(config).stats()
    if as_json:
        print_json(tables.statistics(numbers))
        return
    for kind, name in tables.STORED.items():
        echo(f"{name:<16} {numbers.count[kind]:>8}   {size(numbers.nbytes[kind]):>10}")
    echo(f"{'other files':<16} {'':>8}   {size(numbers.others):>10}")
    echo(f"{'together':<16} {'':>8}   {size(numbers.total):>10}   in {config.cache_folder}")
    counters = numbers.counters
    if not counters.builds:
        echo("no build has been counted yet")
        return
    since = datetime.fromtimestamp(counters.since, timezone.utc).strftime("%Y-%m-%d")
    missed = sum(counters.misses.values())
    echo(f"{'builds':<16} {counters.builds:>8}   since {since}; starts from a stored network look nothing up")
    echo(f"{'hits':<16} {counters.hits:>8}   {100 * counters.hits / max(counters.hits + missed, 1):.0f} %")
    echo(f"{'misses':<16} {missed:>8}   {', '.join(f'{n} {code}' for code, n in counters.misses.items())}")
    echo(f"{'compiling saved':<16} {_seconds(counters.saved_ms):>8}   of one core")
    echo(f"{'compiling took':<16} {_seconds(counters.spent_ms):>8}   of one core")


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1e3:.1f} s"


def _print_rows(rows: Sequence[dict[str, Any]], host: str) -> None:
    """Print a table, or lines where there are many; ``host``: the level that need not be said."""
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


def _print_details(details: dict[str, Any]) -> None:
    """Print the details of an item, a line a field; of a key and of operators a line a part."""
    for field, value in details.items():
        if field not in _LISTED:
            lines = _lines(field, value)
            echo("\n".join(f"{'' if number else field:<14} {line}" for number, line in enumerate(lines)))
            continue
        if field == "operators":
            echo(f"{field:<14} {len(value)}")
        width = max(map(len, value), default=0)
        for part, content in value.items():
            echo(f"  {part:<{width}}  {_nodes(content) if field == 'operators' else _plain(content)}".rstrip())


def _lines(field: str, value: Any) -> list[str]:
    if field == "bytes":
        return [f"{value} ({size(value)})"]
    if field in ("inputs", "outputs"):
        return [f"{port['name']}  {port['dtype']}[{','.join(map(str, port['shape']))}]" for port in value] or ["none"]
    if field == "weights":
        return [f"{counted(value['count'], 'packed weight')}, {size(value['bytes'])}"]
    if field == "host":
        return [", ".join(f"{count} x {name}" for name, count in value.items()) or "nothing"]
    return value if field == "files" else [_plain(value)]


def _nodes(names: list[str]) -> str:
    """Return the nodes that an operator computes: the first, and how many more."""
    return "" if not names else names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value)
