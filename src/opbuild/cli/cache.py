"""``opbuild cache``: seeing and tending what is stored. Each group of commands is in a file of its own."""

from __future__ import annotations

import click

from opbuild.cli.cache_bundle import export, import_
from opbuild.cli.cache_clean import clear, prune, verify
from opbuild.cli.cache_show import ls, show, stats


@click.group()
def cache() -> None:
    """List, check, clean, export and import what is stored.

    The commands work on rank_<id>/ in --cache_path, as 'opbuild build' and 'opbuild run' do, or with
    --op_compiler_cache_dir on the folder of one target, as 'opbuild compile' does. All are safe beside builds.
    """


for _command in (ls, show, stats, verify, prune, clear, export, import_):
    cache.add_command(_command)
