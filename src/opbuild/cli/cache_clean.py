"""``opbuild cache verify``, ``prune`` and ``clear``: finding damaged items, and removing unwanted ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from opbuild.cli.cache_options import json_option, locate_place, place_options, print_json, read_size, read_span
from opbuild.cli.echoing import echo
from opbuild.errors import OptionError
from opbuild.text.plural import counted, size

if TYPE_CHECKING:
    from opbuild.cache.folder import Cache
    from opbuild.config import Config
    from opbuild.events import Watch
    from opbuild.store.items import Item


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
    from opbuild.cache import folder as tables
    from opbuild.cache.folder import Cache
    from opbuild.cli.count_progress import count_progress

    cache = Cache.of(config)
    found, removed = [], 0
    with count_progress("checking", "checked", "the rest was not looked at") as count:
        for problem in cache.problems(count):
            found.append(problem)
            removed += repair and cache.repair(problem)
            if not as_json:
                echo(f"{tables.KINDS[problem.item.kind]} {problem.item.name}: {problem.reason.text}")
        if repair:
            cache.repaired(found)
    checked = count.total or 0
    if as_json:
        print_json({"checked": checked, "damaged": tables.damaged(found), "repaired": repair})
    else:
        left = f", {len(found) - removed} not removed" if repair and removed < len(found) else ""
        end = f"{len(found)} damaged" + (" and removed" if removed and not left else left)
        echo(f"{checked} checked, {end}" if checked else f"nothing is stored in {config.cache_folder}")
    return 1 if removed < len(found) else 0


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
    from opbuild.cache import folder as tables
    from opbuild.cache.folder import Cache
    from opbuild.cli.count_progress import count_progress

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
