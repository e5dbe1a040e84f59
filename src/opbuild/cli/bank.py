"""``opbuild bank``: seeing the tuning database, and carrying it to other machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from opbuild.cli.cache_options import json_option, print_json
from opbuild.cli.option_values import OnePath, new_file
from opbuild.cli.options import cache_path_option
from opbuild.config import Config
from opbuild.platform.paths import Path
from opbuild.text.plural import counted

if TYPE_CHECKING:
    from opbuild.store.tuning_database import TuningRecord

FILE = OnePath("the path of a file")


@click.group()
def bank() -> None:
    """List, export and import what tuning found.

    The tuning database is a file of lines in $TUNE_BANK_PATH, else in tune_bank beside the cache.
    """


@bank.command()
@cache_path_option
@json_option
def ls(cache_path: Path | None, as_json: bool) -> None:
    """List the records, and which count here."""
    from rich.text import Text

    from opbuild.cli.tables import output_console, plain_table, say
    from opbuild.tuning.listing import listed

    found = listed(Config.from_environment(cache_path=cache_path))
    if as_json:
        print_json([{**vars(each.record), "state": each.state} for each in found.rows])
        return
    table = plain_table("family", "asked", "choice", "level", "threads", "machine", "us", "tuned us", "date", "")
    for each in found.rows:
        table.add_row(*map(Text, _cells(*each)))
    if found.rows:
        output_console().print(table)
    say(f"{counted(len(found.rows), 'record')} in {found.path}", soft_wrap=True)
    for line in found.problems:
        say(line)


def _cells(record: TuningRecord, state: str) -> tuple[str, ...]:
    choice = "another family" if record.choice is None else " ".join(f"{n} {v}" for n, v in record.choice.items())
    return (
        record.family,
        record.arguments,
        choice if record.is_tuned else "as the table",
        record.level,
        str(record.threads),
        record.machine or record.system,
        f"{record.before:.1f}" if record.pairs else "",
        f"{record.after:.1f}" if record.is_tuned else "",
        record.date[:10],
        state,
    )


@bank.command()
@click.argument("file", type=FILE)
@cache_path_option
def export(file: Path, cache_path: Path | None) -> None:
    """Write the records into a file.

    Each that counts once, signed if $OPBUILD_SIGNING_KEY is set.
    """
    from opbuild.cli.tables import say
    from opbuild.tuning.listing import export_database

    new_file("file", str(file), "the file to write")
    say(f"{counted(export_database(Config.from_environment(cache_path=cache_path), file), 'record')} in {file}")


@bank.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FILE)
@cache_path_option
def import_(files: tuple[Path, ...], cache_path: Path | None) -> None:
    """Add the records of other tuning databases.

    Those that this one lacks, or has earlier ones for.
    """
    from opbuild.cli.tables import say
    from opbuild.tuning.listing import import_databases

    added, left_out = import_databases(Config.from_environment(cache_path=cache_path), files)
    problem = f"; {counted(left_out, 'line')} damaged or not signed with the key" if left_out else ""
    say(f"{counted(added, 'record')} added{problem}")
