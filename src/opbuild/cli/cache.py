"""``opbuild cache``: seeing and tending the store. Each group of commands is in a file of its own."""

from __future__ import annotations

import click

from opbuild.cli.cache_bundle import export, import_
from opbuild.cli.cache_check import check
from opbuild.cli.cache_clean import clear, prune, verify
from opbuild.cli.cache_show import ls, show, stats


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

    Without options they work on your own store, the one of 'opbuild build', 'run' and 'compile' and of Python.
    MindSpore-style scripts keep ./rank_<id>/ (--cache_path .), and 'opbuild atc' a folder for each level
    (--op_compiler_cache_dir).
    """


_WHOLE = 1000
"""Characters of a summary, more than any has."""

for _command in (ls, show, stats, verify, prune, clear, export, import_, check):
    cache.add_command(_command)
