"""``opbuild tune`` and ``bank``: faster variants of a model's calls here, and the database that keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import inf
from typing import TYPE_CHECKING, Any

import click

from opbuild.cli.options import (
    THREADS,
    OnePath,
    Whole,
    cache_path_option,
    json_option,
    new_file,
    print_json,
    read_span,
    shapes_option,
    value_option,
    workers_option,
)
from opbuild.cli.progress import QUIET_SECONDS, shown_while
from opbuild.cli.tables import Terminal, say, show_table, text_table
from opbuild.config import Config
from opbuild.errors import OptionError
from opbuild.platform.paths import Path
from opbuild.text.plural import counted, first_of

if TYPE_CHECKING:
    from opbuild.store.tuning_database import TuningRecord
    from opbuild.tuning.tuner import Row, TunedNetwork, TuningProgress


_REDRAW_SECONDS = 0.5


@click.command()
@click.argument("paths", metavar="MODEL.onnx...", nargs=-1, type=OnePath("the path of a file"))
@shapes_option
@value_option(
    "--budget", "TIME", "No further candidates are tried after that: 90s, 10m, 2h.", usual="until all is known"
)
@value_option("--operators", "TYPE,TYPE", "Tune the calls of these operator types: Conv,MatMul.", usual="all")
@click.option("--again", is_flag=True, help="Measure again what the tuning database has already.")
@value_option(
    "--num_threads", "N", "Threads that run the network; what is found is for as many.",
    Whole(1, 1024), THREADS, older="--threads",
)  # fmt: skip
@value_option("--target", "LEVEL", "The level whose code is tuned: x86-64-v3, ...", usual="host", older="--soc_version")
@cache_path_option
@workers_option
def tune(
    paths: tuple[Path, ...],
    *,
    input_shapes: dict[str, tuple[int, ...]],
    budget: str | None,
    operators: str | None,
    again: bool,
    target: str | None,
    **options: Any,
) -> None:
    """Find faster variants of a model's operators on this machine.

    Each distinct call is measured in the network, beside what opbuild would choose by its tables, and the results are
    compared before a time counts. What is faster beyond noise is kept in the tuning database ($TUNE_BANK_PATH, else
    tune_bank beside the cache); the next build of any model takes it. Ctrl-C keeps what was found, and the next run
    goes on.
    """
    from opbuild.platform.files.kinds import ONNX, require_kind
    from opbuild.target.host import resolve_target
    from opbuild.tuning.tuner import tune_model

    if not paths:
        raise OptionError("the models are missing", "give their paths: opbuild tune MODEL.onnx...")
    for path in paths:
        require_kind(path, ONNX)  # hours of tuning the others would come first
    level = resolve_target(target or "host")
    config = Config.from_environment(**options)
    types = _types(operators or "")
    left = inf if budget is None else read_span(budget, "budget", "10m") or 0.0
    for path in paths:
        with _progress_display(path.name) as tell:
            result = tune_model(
                path,
                config,
                input_shapes=input_shapes,
                target=level,
                budget=left,
                operators=types,
                again=again,
                tell=tell,
            )
        left -= result.seconds
        show_table(text_table(_TEXTS, map(_cells, result.rows), _NUMBERS))
        for line in _summary(result):
            say(line)
    say(f"the tuning database is {config.tune_bank}", soft_wrap=True)


def _types(text: str) -> list[str]:
    """Return the operator types that an option names, in any case; all of them exist."""
    from opbuild.graph.passes.infer import check_types, known_types

    types = [each.strip() for each in text.split(",") if each.strip()]
    known = {each.lower() for each in known_types()} if types else set()
    check_types([each for each in types if each.lower() not in known], "--operators")
    return types


@contextmanager
def _progress_display(name: str) -> Iterator[Callable[[TuningProgress], None]]:
    """Give the watcher of tuning's progress; show it on a terminal all the time, else by a line now and then."""
    console = Terminal(stderr=True)
    told: list[TuningProgress] = []
    with ExitStack() as stack:
        if console.is_terminal:
            status = stack.enter_context(console.status(_line(name, told)))
            show, interval = (lambda: status.update(_line(name, told))), _REDRAW_SECONDS
        else:
            show, interval = (lambda: say(_line(name, told), console, soft_wrap=True)), QUIET_SECONDS
        stack.enter_context(shown_while(show, interval, interval, lambda: _kept_text(told)))
        yield lambda progress: told.__setitem__(slice(None), [progress])


def _line(name: str, told: Sequence[TuningProgress]) -> str:
    if not told:
        return f"{name}: measuring the machine and the network ..."
    (now,) = told
    return (
        f"{name}: {now.done} of {counted(now.total, 'distinct call')} known, {now.found} faster, "
        f"{counted(now.forms, 'form')} measured ..."
    )


def _kept_text(told: Sequence[TuningProgress]) -> str:
    known = told[0].done if told else 0
    return f"{counted(known, 'distinct call')} known and kept; the next run goes on"


_TEXTS, _NUMBERS = ("family", "nodes", "table's choice", "tuned"), ("us", "tuned us", "ratio below")


def _cells(row: Row) -> tuple[str, ...]:
    finding, is_new = row.finding, row.choice != row.default
    after = f"{1e6 * finding.after:.1f}" if is_new else ""
    mark = " (known)" if row.known else ""
    return (
        row.query.family,
        first_of(row.nodes, 1),
        _variant(row.default),
        (_variant(row.choice) if is_new else "as it is") + mark,
        f"{1e6 * finding.before:.1f}" if finding.pairs else "",
        after,
        f"{finding.bound:.2f}" if is_new else "",
    )


def _variant(variant: dict[str, Any] | None) -> str:
    if variant is None:
        return "another family"
    return " ".join(f"{name} {value}" for name, value in variant.items())


def _summary(result: TunedNetwork) -> list[str]:
    rows = [row for row in result.rows if not row.known]
    faster = sum(row.choice != row.default for row in rows)
    lines = [
        f"{result.network} for {result.level} on {result.machine}: "
        f"{counted(len(rows), 'distinct call')} measured, {faster} faster, "
        f"{len(result.rows) - len(rows)} known before, {result.skipped} left alone; {result.seconds:.0f} s"
        + (f"; {result.ended}, the next run goes on" if result.ended else "")
    ]
    if result.whole:
        verdict = result.verdict
        lines.append(
            f"the whole network: {1e3 * verdict.before:.2f} ms by the tables, {1e3 * verdict.after:.2f} ms tuned; "
            f"ratio below {verdict.bound:.3f}, spread {verdict.spread:.3f}, {counted(verdict.pairs, 'pair')} of runs"
        )
    if result.is_slower:
        lines.append("the whole network is slower by what was found: what this run kept was taken back")
    if result.refused:
        lines.append(f"{counted(len(result.refused), 'candidate')} refused, for example: {result.refused[0][1]}")
    if not result.nodes:
        lines.append("it has no operator of the types that --operators names")
    if result.cut:
        lines.append("only its first part was tuned: what follows is bound when the network is called")
    return lines


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
    from opbuild.tuning.listing import listed

    found = listed(Config.from_environment(cache_path=cache_path))
    if as_json:
        print_json([{**vars(each.record), "state": each.state} for each in found.rows])
        return
    names = ("family", "asked", "choice", "level", "threads", "machine", "us", "tuned us", "date", "")
    show_table(text_table(names, (_record_cells(*each) for each in found.rows), folds=False))
    say(f"{counted(len(found.rows), 'record')} in {found.path}", soft_wrap=True)
    for line in found.problems:
        say(line)


def _record_cells(record: TuningRecord, state: str) -> tuple[str, ...]:
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
    from opbuild.tuning.listing import import_databases

    added, left_out = import_databases(Config.from_environment(cache_path=cache_path), files)
    problem = f"; {counted(left_out, 'line')} damaged or not signed with the key" if left_out else ""
    say(f"{counted(added, 'record')} added{problem}")
