"""Options of the commands that look at a cache: which cache, and in which form to show it."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from opbuild.cli.options import FOLDER, OnePath, cache_path_option, option_group, value_option
from opbuild.cli.streams import echo
from opbuild.errors import OptionError
from opbuild.files.writing import same_file
from opbuild.platform.paths import Path
from opbuild.platform.records import replace

if TYPE_CHECKING:
    from opbuild.config import Config
    from opbuild.target.level import Level

_SIZES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


cache_options = option_group(
    cache_path_option,
    value_option(
        "--op_compiler_cache_dir", "DIR",
        "Instead of it: folder with a folder of operators for each level, as 'opbuild atc' has it.",
        OnePath(FOLDER, folder=True),
    ),
)  # fmt: skip
"""The options that say which cache is meant."""

place_options = option_group(
    cache_options,
    value_option(
        "--soc_version", "LEVEL", "Whose folder in --op_compiler_cache_dir is meant, which has one for each level.",
        usual="host",
    ),
)  # fmt: skip
"""The same, for commands that see everything in a folder."""

target_options = option_group(
    cache_options, value_option("--soc_version", "LEVEL", "The level: x86-64-v3, ...", usual="host")
)
"""The same, for commands that are for one level."""


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def locate(
    cache_path: Path | None, op_compiler_cache_dir: Path | None, soc_version: str | None, **more: Any
) -> tuple[Config, Level]:
    """Return the settings of a cache, and the level that the options name, or this machine's."""
    from opbuild.config import Config
    from opbuild.target.soc_version import resolve_soc_version

    if cache_path is not None and op_compiler_cache_dir is not None:
        raise OptionError("--cache_path and --op_compiler_cache_dir name two caches", "give one of them")
    level = resolve_soc_version(soc_version or "host")
    config = Config.from_environment(cache_path=cache_path, op_compiler_cache_dir=op_compiler_cache_dir, **more)
    return replace(config, soc_version=level.name), level


def locate_place(soc_version: str | None, **place: Path | None) -> Config:
    """Return the settings of a cache, for commands that see everything in a folder; tell of items in other places."""
    config, level = locate(soc_version=soc_version, **place)
    folders = config.op_compiler_cache_dir
    if soc_version not in (None, level.name) and folders is not None and (folders / str(soc_version)).is_dir():
        config = replace(config, soc_version=soc_version)  # what a release without levels stored
    if soc_version is not None and config.op_compiler_cache_dir is None:
        raise OptionError(
            f"--soc_version is {soc_version!r}, and {config.cache_folder} is for all levels together",
            "leave it out, or name a folder that has one for each level: --op_compiler_cache_dir",
        )
    elsewhere = ""
    if not any(place.values()):
        elsewhere = _other_places(config)
    elif soc_version is None and config.op_compiler_cache_dir is not None:
        elsewhere = _other_levels(config)
    if elsewhere:  # said once the command is done
        click.get_current_context().call_on_close(lambda: _say_unless_failed(f"more is stored in {elsewhere}"))
    return config


def _other_places(config: Config) -> str:
    """Return the other known places that hold something, and how to see them."""
    from opbuild.config import atc_cache

    places, atc = [], atc_cache()
    with suppress(OSError):
        ranks = sorted({path.parents[1] for path in Path().glob("rank_*/kernel_meta/*")})
        if any(not same_file(rank, config.cache_folder) for rank in ranks):
            places.append(f"./{ranks[0]} (--cache_path .)")
        if any(atc.glob("*/*.o")):
            places.append(f"{atc} (--op_compiler_cache_dir {shlex.quote(str(atc))})")
    return " and ".join(places)


def _other_levels(config: Config) -> str:
    """Return the other levels for which the folder holds something; old names too."""
    others = []
    with suppress(OSError):
        folders = sorted(config.cache_folder.parent.iterdir())
        others = [each.name for each in folders if each.name != config.cache_folder.name and any(each.glob("*.o"))]
    return f"{config.cache_folder.parent} for --soc_version {', '.join(others)}" if others else ""


def _say_unless_failed(line: str) -> None:
    if sys.exc_info()[0] is None:  # an error, or what an interrupted command said, stays the last line
        echo(line, err=True)


def read_size(text: str | None) -> int | None:
    """Return the bytes that ``--max_size`` names."""
    must = "it must be a number of bytes, or one with K, M, G or T: 500M"
    return _read("max_size", text, r"(\d{1,15})([kmgtKMGT]?)(?:[iI]?[bB])?", _SIZES, must)


def read_span(text: str | None, option: str = "older_than", example: str = "30d") -> float | None:
    """Return the seconds that an option names."""
    return _read(option, text, r"(\d{1,9})([smhdw])", _SPANS, f"it must be a number with s, m, h, d or w: {example}")


def _read(option: str, text: str | None, form: str, units: Mapping[str, int], must: str) -> int | None:
    if text is None:
        return None
    match = re.fullmatch(form, text.strip())
    if match is None:
        raise OptionError(f"--{option} is {text!r}", must)
    return int(match[1]) * units[match[2].lower()]


def span(seconds: float) -> str:
    """Return a span of time for people."""
    for unit, factor in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= factor:
            return f"{seconds / factor:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    echo(json.dumps(value, indent=2))
