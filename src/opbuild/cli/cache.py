"""``opbuild cache``: seeing and tending the store."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import click

from opbuild.cli.options import (
    json_option,
    locate,
    locate_place,
    place_options,
    print_json,
    read_size,
    read_span,
    remote_option,
    span,
    target_options,
)
from opbuild.cli.sharing import export, import_
from opbuild.cli.streams import echo
from opbuild.errors import BuildError, OptionError
from opbuild.target.host import host_level
from opbuild.text.canonical import canonical_json
from opbuild.text.plural import counted, first_of, size

if TYPE_CHECKING:
    from opbuild.cli.store.folder import Cache, Stats
    from opbuild.config import Config
    from opbuild.events import Watch
    from opbuild.pipeline.remote import Remote
    from opbuild.store.items import Item, Kind


_THINGS: dict[Kind, tuple[str, str]] = {
    "operator": ("operator", ""), "network": ("network", ""), "weight": ("packed weight", ""),
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
    from opbuild.cli.env import pack_text
    from opbuild.cli.progress import count_progress
    from opbuild.cli.store import folder as tables
    from opbuild.cli.store.folder import Cache

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
    """Return a line that sums up the store; its total, which is that of ``du``, stands at the end."""
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
    from opbuild.cli.store import folder as tables
    from opbuild.cli.store.folder import Cache

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
    from opbuild.cli.store import folder as tables
    from opbuild.cli.store.folder import Cache

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
    from opbuild.cli.tables import WHOLE_NAMES, output_console, show_table, text_table

    width = output_console().width
    shown = [number for number, name in enumerate(COLUMNS) if name != "variant" or width >= _WIDE]
    names = [COLUMNS[number] for number in shown]
    table = text_table(names[:-3], ([each[number] for number in shown] for each in cells), names[-3:])
    table.columns[0].no_wrap = width >= WHOLE_NAMES
    show_table(table)


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
            echo(f"  {part:<{width}}  {first_of(content, 1) if field == 'operators' else _plain(content)}".rstrip())


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


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value)


@click.command()
@click.option("--repair", is_flag=True, help="Remove what is damaged; the next build makes it again.")
@place_options
@json_option
def verify(repair: bool, as_json: bool, **place: Any) -> int:
    """Read every file, and compare each with its digests, its key and its name.

    Exits with 1 if something is damaged and stays.
    """
    return verify_place(locate_place(**place), repair=repair, as_json=as_json)


def verify_place(config: Config, *, repair: bool, as_json: bool) -> int:
    """Look at everything in a cache, remove damaged items if that is wanted, and tell; return the exit code."""
    from opbuild.cli.store import folder as tables
    from opbuild.cli.store.folder import Cache

    def line(problem: Any) -> str:
        return f"{tables.KINDS[problem.item.kind]} {problem.item.name}: {problem.reason.text}"

    cache = Cache.of(config)
    checked, found, removed, end = _check_place(cache, line, repair=repair, as_json=as_json)
    if repair:
        cache.repaired(found)
    if as_json:
        print_json({"checked": checked, "damaged": tables.damaged(found), "repaired": repair})
    else:
        echo(f"{checked} checked, {end}" if checked else f"nothing is stored in {config.cache_folder}")
    return 1 if removed < len(found) else 0


def _check_place(
    place: Any, line: Callable[[Any], str], *, repair: bool, as_json: bool
) -> tuple[int, list[Any], int, str]:
    """Look at everything in a place, remove damaged items if that is wanted, and tell of each.

    Returns:
        How many items there are, the problems, how many items were removed, and words for the last two.
    """
    from opbuild.cli.progress import count_progress

    found, removed = [], 0
    with count_progress("checking", "checked", "the rest was not looked at") as count:
        for problem in place.problems(count):
            found.append(problem)
            removed += repair and place.repair(problem)
            if not as_json:
                echo(line(problem))
    left = f", {len(found) - removed} not removed" if removed < len(found) else " and removed" if removed else ""
    return count.total or 0, found, removed, f"{len(found)} damaged{left if repair else ''}"


@click.command()
@click.option("--older_than", metavar="SPAN", help="Remove what was not used for this long: 90m, 12h, 30d, 4w.")
@click.option("--max_size", metavar="SIZE", help="Then remove what was used least recently: 500M, 2G.")
@place_options
@json_option
def prune(older_than: str | None, max_size: str | None, as_json: bool, **place: Any) -> None:
    """Remove what was not used for long, or least recently; networks go before operators."""
    seconds, nbytes = read_span(older_than), read_size(max_size)
    if seconds is None and nbytes is None:
        raise OptionError("prune was not told what to remove", "give --older_than or --max_size")
    config = locate_place(**place)
    _remove(config, as_json, lambda cache, count: cache.prune(older_than=seconds, max_bytes=nbytes, watch=count))


@click.command()
@place_options
@json_option
def clear(as_json: bool, **place: Any) -> None:
    """Remove everything that is stored; settings stay, and a build under way keeps what it has read."""
    _remove(locate_place(**place), as_json, lambda cache, count: cache.clear(count))


def _remove(config: Config, as_json: bool, remove: Callable[[Cache, Watch], tuple[Item, ...]]) -> None:
    """Remove items, and tell which."""
    from opbuild.cli.progress import count_progress
    from opbuild.cli.store import folder as tables
    from opbuild.cli.store.folder import Cache

    cache = Cache.of(config)
    with count_progress("removing", "removed", "the rest is whole and can be used") as watch:
        removed = tables.removed(remove(cache, watch))
    if as_json:
        print_json(removed)
        return
    if not removed["names"] and not cache.folder.is_dir():
        echo(f"nothing is stored in {cache.folder}")
        return
    operators, networks = counted(removed["operators"], "operator"), counted(removed["networks"], "network")
    echo(f"{operators} and {networks} removed, {size(removed['bytes'])}")


@click.command()
@click.option(
    "--repair",
    is_flag=True,
    help="Read all of it, and remove what is damaged; without a remote store do so in your own.",
)
@target_options
@remote_option
@json_option
def check(repair: bool, as_json: bool, **place: Any) -> int:
    """Ask the remote store to read, and where OPBUILD_REMOTE_MODE is write, to write and remove a small object.

    Fails if it refuses, is slow, or others can write to its folder: builds then go on without it. With --repair exits
    with 1 if something is damaged and stays.
    """
    from opbuild.cli.store.sharing import named_remote, probe

    config, level = locate(**place)
    remote = named_remote(config, level, reads_all=repair)
    if remote is None and repair:
        return verify_place(config, repair=True, as_json=as_json)
    if remote is None:
        raise OptionError("there is no remote store", "name one: --remote URL, OPBUILD_REMOTE or op_cache.ini")
    if repair:
        return _repair(remote, as_json)
    steps, url = probe(remote), remote.service.address.url
    if as_json:
        print_json({"remote": url, "mode": config.remote_mode,
                    "steps": [{"step": n, "answer": w, "milliseconds": ms} for n, w, ms in steps]})  # fmt: skip
    else:
        echo(f"{url}, mode {config.remote_mode}")
        for name, word, milliseconds in steps:
            echo(f"{name:<7} {word} ({milliseconds:.1f} ms)")
    failed = next((step for step in steps if step.answer != "ok"), None)
    if failed is not None:
        message = f"the remote store cannot be used to {failed.name}: {failed.answer}"
        raise BuildError(message, "builds go on without it")
    return 0


def _repair(remote: Remote, as_json: bool) -> int:
    """Look at everything, remove damaged objects, and tell which; return the exit code."""
    from opbuild.cli.store.sharing import RemoteCheck
    from opbuild.store.remote.objects import NAMESPACE

    def line(problem: Any) -> str:
        return f"{problem.path.removeprefix(NAMESPACE)}: {problem.reason.text}"

    url = remote.service.address.url
    total, found, removed, end = _check_place(RemoteCheck(remote), line, repair=True, as_json=as_json)
    if as_json:
        damaged = [{"path": each.path, "code": each.reason.code, "why": each.reason.text} for each in found]
        print_json({"remote": url, "checked": total, "damaged": damaged, "removed": removed})
    else:
        echo(f"{url}: {total} checked, {end}")
    return 1 if removed < len(found) else 0


class WholeSummaries(click.Group):
    """A group whose help shows the first sentence of each command in full."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        with formatter.section("Commands"):
            commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
            formatter.write_dl([(name, each.get_short_help_str(_WHOLE)) for name, each in commands if each is not None])


@click.group(cls=WholeSummaries)
def cache() -> None:
    """List, check, clean, export and import what is stored. All commands are safe beside builds.

    Without options they work on your own store, the one of 'opbuild compile', 'run' and 'export' and of Python.
    MindSpore-style scripts keep ./rank_<id>/ (--cache_path .), and 'opbuild atc' a folder for each level
    (--op_compiler_cache_dir).
    """


_WHOLE = 1000
"""Characters of a summary, more than any has."""

for _command in (ls, show, stats, verify, prune, clear, export, import_, check):
    cache.add_command(_command)
