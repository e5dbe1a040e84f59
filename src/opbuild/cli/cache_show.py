"""``opbuild cache ls``, ``show`` and ``stats``: what is stored, and what it has saved."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from opbuild.cli.cache_options import json_option, locate_place, place_options, print_json
from opbuild.cli.echoing import echo
from opbuild.errors import OptionError
from opbuild.target.host import host_level
from opbuild.text.plural import counted, size

if TYPE_CHECKING:
    from opbuild.cache.folder import Stats
    from opbuild.store.items import Kind

_NAMES: dict[Kind, str] = {
    "operator": "operators",
    "image": "networks",
    "weight": "packed weights",
    "memo": "models known",
}

_THINGS: dict[Kind, tuple[str, str]] = {
    "operator": ("operator", ""), "image": ("network", ""), "weight": ("packed weight", ""),
}  # fmt: skip
"""What ``ls`` counts."""


@click.command()
@place_options
@json_option
def ls(as_json: bool, **place: Any) -> None:
    """List operators and networks, the last used first, and sum up what is stored, packed weights too."""
    from opbuild.cache.folder import Cache
    from opbuild.cli.cache_table import print_rows, row_of
    from opbuild.cli.count_progress import count_progress
    from opbuild.cli.env import pack_text
    from opbuild.store.at_once import at_once

    config = locate_place(**place)
    cache = Cache.of(config)
    weights = {item.name: item for item in cache.items("weight")}
    items = sorted(cache.items("operator", "image"), key=lambda item: (-item.last_use, item.name))
    with count_progress("reading", "read", "nothing was changed") as count:
        rows = []
        for _, row in at_once(items, lambda item: row_of(item, weights)):
            rows.append(row)
            count(len(rows), len(items))
    if as_json:
        print_json([*rows, *(row_of(item, weights) for item in weights.values())])
        return
    if not rows and not weights:
        echo(f"nothing is stored in {config.cache_folder}")
        return
    host = host_level().name
    print_rows(rows, host)
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
    """Return what is stored in a line, and its sum, which is what ``du`` says, at the end."""
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
    from opbuild.cache.folder import Cache
    from opbuild.cli.cache_details import details_of, print_details

    config = locate_place(**place)
    cache = Cache.of(config)
    found = cache.find(name)
    if not found:
        message = f"nothing stored in {config.cache_folder} has a name that begins with {name!r}"
        raise OptionError(message, "'opbuild cache ls' lists the names")
    if len(found) > 1:
        names = ", ".join(item.name for item in found[:5])
        raise OptionError(f"{len(found)} names begin with {name!r}: {names}", "give more of the name")
    details = details_of(cache, found[0])
    if as_json:
        print_json(details)
    else:
        print_details(details)


@click.command()
@place_options
@json_option
def stats(as_json: bool, **place: Any) -> None:
    """Show how much is stored, how often it was found, and the compile time that this saved."""
    from opbuild.cache.folder import Cache

    config = locate_place(**place)
    numbers = Cache.of(config).stats()
    if as_json:
        print_json(_stats_json(numbers))
        return
    for kind, name in _NAMES.items():
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


def _stats_json(numbers: Stats) -> dict[str, Any]:
    counters = numbers.counters
    return {
        "stored": {
            _NAMES[kind]: {"count": count, "bytes": numbers.nbytes[kind]} for kind, count in numbers.count.items()
        },
        "other_bytes": numbers.others,
        "total_bytes": numbers.total,
        "builds": counters.builds,
        "since": counters.since,
        "hits": counters.hits,
        "misses": dict(counters.misses),
        "saved_ms": round(counters.saved_ms, 1),
        "spent_ms": round(counters.spent_ms, 1),
    }


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1e3:.1f} s"
