"""Options of the commands that look at a cache: which cache, and in which form to show it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opbuild.cli.option_group import option_group
from opbuild.errors import OptionError

if TYPE_CHECKING:
    from opbuild.config import Config
    from opbuild.kernel.target import Target

_SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


cache_options = option_group(
    click.option(
        "--cache_path",
        metavar="DIR",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder that holds rank_<id>.  [default: $MS_COMPILER_CACHE_PATH, else here]",
    ),
    click.option(
        "--op_compiler_cache_dir",
        metavar="DIR",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder with a folder for each target, as 'opbuild compile' has it; not with --cache_path.",
    ),
    click.option("--soc_version", default="host", show_default=True, help="The target."),
)
"""The options that say which cache is meant."""


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def locate(
    cache_path: Path | None, op_compiler_cache_dir: Path | None, soc_version: str, **more: Any
) -> tuple[Config, Target]:
    """Return the settings of a cache and its target.

    Args:
        cache_path: The option.
        op_compiler_cache_dir: The option.
        soc_version: The option.
        more: Further settings.

    Raises:
        OptionError: If an option is at fault.
    """
    from dataclasses import replace

    from opbuild.config import Config
    from opbuild.kernel.soc_version import resolve_soc_version

    if cache_path is not None and op_compiler_cache_dir is not None:
        raise OptionError("--cache_path and --op_compiler_cache_dir name two caches", "give one of them")
    target = resolve_soc_version(soc_version)
    config = Config.from_environment(cache_path=cache_path, op_compiler_cache_dir=op_compiler_cache_dir, **more)
    return replace(config, soc_version=str(target)), target


def read_size(text: str | None) -> int | None:
    """Return the bytes that ``--max_size`` names.

    Raises:
        OptionError: If it is no size.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,15})([KMGT]?)(i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise OptionError(f"--max_size is {text!r}", "it must be a number of bytes, or one with K, M, G or T: 500M")
    return int(match[1]) * _SIZES[match[2].upper()]


def read_span(text: str | None) -> float | None:
    """Return the seconds that ``--older_than`` names.

    Raises:
        OptionError: If it is no span of time.
    """
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,9})([smhdw])", text.strip())
    if match is None:
        raise OptionError(f"--older_than is {text!r}", "it must be a number with s, m, h, d or w: 30d")
    return float(int(match[1]) * _SPANS[match[2]])


def size(nbytes: int) -> str:
    """Return bytes for people."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= factor:
            return f"{nbytes / factor:.1f} {unit}"
    return f"{nbytes} B"


def span(seconds: float) -> str:
    """Return a span of time for people."""
    for unit, factor in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= factor:
            return f"{seconds / factor:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2))
