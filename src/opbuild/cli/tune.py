"""``opbuild tune`` and ``bank``: faster variants of a model's calls here, and the database that keeps them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import inf
from typing import TYPE_CHECKING, Any

import click

from opbuild.cli.interrupt import INTERRUPTS
from opbuild.cli.options import (
    THREADS,
    OnePath,
    Whole,
    cache_path_option,
    json_option,
    print_json,
    read_span,
    require_writable,
    sizes_option,
    value_option,
    workers_option,
)
from opbuild.cli.progress import QUIET_SECONDS, duration, shown_while
from opbuild.cli.recorded import recorded_models, recorded_option
from opbuild.cli.tables import Terminal, say, show_table, text_table
from opbuild.config import Config
from opbuild.frontend.input_shape import format_input_shape
from opbuild.platform.paths import Path
from opbuild.text.plural import counted, first_of

if TYPE_CHECKING:
    from opbuild.frontend.models.recorded import RecordedSize
    from opbuild.frontend.models.shapes import Given
    from opbuild.store.tuning_database import TuningRecord
    from opbuild.tuning.tuner import Row, TunedNetwork, TuningProgress


_REDRAW_SECONDS = 0.5


@click.command()
@click.argument("paths", metavar="MODEL.onnx...", nargs=-1, type=OnePath("the path of a file"))
@sizes_option("--input_shape")
@recorded_option
@value_option("--budget", "TIME", "About how long it takes: 90s, 10m, 2h; all: until all is known.", usual="5m")
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
    shapes: list[Given],
    recorded: Path | None,
    budget: str | None,
    operators: str | None,
    again: bool,
    target: str | None,
    **options: Any,
) -> None:
    """Find faster variants of a model's operators on this machine.

    Each distinct call is measured in the network, beside what opbuild would choose by its tables, and the results are
    compared before a time counts. What is faster beyond noise is kept in the tuning database ($TUNE_BANK_PATH, else
    tune_bank beside the cache); the next build of any model takes it. The calls that take most of the time come first.
    When the time is up, or at Ctrl-C, what was found is kept, and the next run goes on.
    """
    from opbuild.platform.files.kinds import ONNX, require_kind
    from opbuild.target.host import resolve_target
    from opbuild.tuning.tuner import tune_model

    models, sizes = recorded_models(paths, recorded, "opbuild tune MODEL.onnx...")
    for path in models:
        require_kind(path, ONNX)  # hours of tuning the others would come first
    level = resolve_target(target or "host")
    config = Config.from_environment(**options)
    types = _types(operators or "")
    left = _seconds(budget)
    is_stopped = False
    wanted = _networks(models, shapes, sizes, config)
    for number, (path, own) in enumerate(wanted):
        if left <= 0:
            say(f"the time is up: {counted(len(wanted) - number, 'network')} not begun; give them more: --budget")
            break
        with _progress_display(_name(path, own, wanted), left) as (tell, asked):
            result = tune_model(
                path,
                config,
                input_shapes=own,
                target=level,
                budget=left,
                operators=types,
                again=again,
                tell=tell,
                is_stopped=asked,
            )
            is_stopped = asked()
        left -= result.seconds
        show_table(text_table(_TEXTS, map(_cells, result.rows), _NUMBERS))
        for line in _summary(result):
            say(line)
        if is_stopped:
            break
    say(f"the tuning database is {config.tune_bank}", soft_wrap=True)
    if is_stopped:
        raise KeyboardInterrupt


def _networks(
    models: Sequence[Path], shapes: Sequence[Given], recorded: Sequence[RecordedSize], config: Config
) -> list[tuple[Path, Given]]:
    """Return the models, each at all sizes of its own."""
    from opbuild.frontend.models.shapes import own_shapes
    from opbuild.pipeline.setup import set_up
    from opbuild.pipeline.stores import Stores

    memory = Stores(set_up(config, None, None, stores_networks=False)).models
    chosen = zip(models, own_shapes(models, shapes, memory, recorded), strict=True)
    return [(path, own) for path, choices in chosen for own in choices]


def _name(path: Path, own: Given, wanted: Sequence[tuple[Path, Given]]) -> str:
    """Return the name of a network in the progress: its file, and its size if there are several of it."""
    several = sum(each == path for each, _ in wanted) > 1
    return f"{path.name} {format_input_shape(own)}" if own and several else path.name


_BUDGET, _ALL = "5m", "all"
_STOPPING = "stopping: the best so far are decided on; press Ctrl-C once more to end at once"


def _seconds(budget: str | None) -> float:
    """Return the seconds that ``--budget`` names."""
    text = budget or _BUDGET
    return inf if text.strip() == _ALL else read_span(text, "budget", f"10m, or {_ALL}") or 0.0


def _types(text: str) -> list[str]:
    """Return the operator types that an option names, in any case; all of them exist."""
    from opbuild.graph.passes.infer import check_types, known_types

    types = [each.strip() for each in text.split(",") if each.strip()]
    known = {each.lower() for each in known_types()} if types else set()
    check_types([each for each in types if each.lower() not in known], "--operators")
    return types


@contextmanager
def _progress_display(
    name: str, budget: float
) -> Iterator[tuple[Callable[[TuningProgress], None], Callable[[], bool]]]:
    """Give the watcher of tuning's progress, and what tells whether Ctrl-C asked for its end once it began.

    It is shown on a terminal all the time, else by a line now and then.
    """
    console = Terminal(stderr=True)
    told: list[TuningProgress] = []
    asked: list[Callable[[], bool]] = []

    def tell(progress: TuningProgress) -> None:
        if not told and progress.untried:
            say(_outlook(name, progress, budget), console, soft_wrap=True)
            asked.append(stack.enter_context(INTERRUPTS.asking_first(_STOPPING)))
        told[:] = [progress]

    with ExitStack() as stack:
        if console.is_terminal:
            status = stack.enter_context(console.status(_line(name, told)))
            show, interval = (lambda: status.update(_line(name, told))), _REDRAW_SECONDS
        else:
            show, interval = (lambda: say(_line(name, told), console, soft_wrap=True)), QUIET_SECONDS
        stack.enter_context(shown_while(show, interval, interval, lambda: _kept_text(told)))
        yield tell, lambda: any(each() for each in asked)


def _outlook(name: str, first: TuningProgress, budget: float) -> str:
    """Return how long tuning is going to take."""
    calls, candidates = counted(first.total - first.done, "distinct call"), counted(first.untried, "candidate")
    ends = f"; it ends after {duration(budget)}, --budget {_ALL} tries all" if first.left > budget else ""
    return f"{name}: {calls} to tune with {candidates}, about {duration(first.left)}{ends}"


def _line(name: str, told: Sequence[TuningProgress]) -> str:
    if not told:
        return f"{name}: measuring the machine and the network ..."
    (now,) = told
    candidates = counted(now.tried + now.untried, "candidate")
    return (
        f"{name}: {now.done} of {counted(now.total, 'distinct call')} known, {now.found} faster, "
        f"{now.tried} of {candidates} tried, about {duration(now.left)} for the rest ..."
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
        f"{counted(len(rows), 'distinct call')} measured, {faster} faster, {counted(result.tried, 'candidate')} tried, "
        f"{len(result.rows) - len(rows)} known before, {result.skipped} left alone; {duration(result.seconds)}"
    ]
    if result.untried:
        lines.append(
            f"{result.ended}: {counted(result.untried, 'distinct call')} with {result.untried_share:.0%} of the time "
            f"untried; the next run goes on there, for about {duration(result.left)}"
        )
    if not faster and rows:
        lines.append("nothing faster was found: the tables' choices stay")
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
    """Write the records that count into a file.

    Each is written once, and signed if $OPBUILD_SIGNING_KEY is set.
    """
    from opbuild.tuning.listing import export_database

    require_writable("the tuning database", file)
    say(f"{counted(export_database(Config.from_environment(cache_path=cache_path), file), 'record')} in {file}")


@bank.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=FILE)
@cache_path_option
def import_(files: tuple[Path, ...], cache_path: Path | None) -> None:
    """Add the records of other tuning databases.

    Added are those that this one lacks or has earlier ones for.
    """
    from opbuild.tuning.listing import import_databases

    added, left_out = import_databases(Config.from_environment(cache_path=cache_path), files)
    problem = f"; {counted(left_out, 'line')} damaged or not signed with the key" if left_out else ""
    say(f"{counted(added, 'record')} added{problem}")
