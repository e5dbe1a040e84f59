"""``opbuild tune``: candidates of a model's calls measured on this machine, and faster ones kept in the database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import inf
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from opbuild.cli.cache_options import read_span
from opbuild.cli.interrupt import INTERRUPTS
from opbuild.cli.option_values import OnePath, Whole
from opbuild.cli.options import CORES, THREADS, cache_path_option, shapes_option
from opbuild.cli.progress import QUIET_SECONDS, ticking
from opbuild.cli.tables import output_console, plain_table, say
from opbuild.cli.terminal import Terminal
from opbuild.config import Config
from opbuild.errors import OptionError
from opbuild.platform.background import begin
from opbuild.platform.paths import Path
from opbuild.text.plural import counted, first_of

if TYPE_CHECKING:
    from rich.table import Table

    from opbuild.tuning.tuner import Row, TunedNetwork, TuningProgress


_REDRAW_SECONDS = 0.5


@click.command()
@click.argument("paths", metavar="MODEL.onnx...", nargs=-1, type=OnePath("the path of a file"))
@shapes_option
@click.option(
    "--budget",
    metavar="TIME",
    help="No further candidates are tried after that: 90s, 10m, 2h.  [default: until all is known]",
)
@click.option(
    "--operators", metavar="TYPE,TYPE", help="Tune the calls of these operator types: Conv,MatMul.  [default: all]"
)
@click.option("--again", is_flag=True, help="Measure again what the tuning database has already.")
@click.option(
    "--num_threads",
    "--threads",
    "num_threads",
    metavar="N",
    type=Whole(1, 1024),
    help=f"Threads that run the network; what is found is for as many.  [default: {THREADS}]",
)
@click.option("--soc_version", metavar="LEVEL", help="The level whose code is tuned: x86-64-v3, ...  [default: host]")
@cache_path_option
@click.option("--workers", metavar="N", type=Whole(1), help=f"Operators compiled at once.  [default: {CORES}]")
def tune(
    paths: tuple[Path, ...],
    *,
    input_shapes: dict[str, tuple[int, ...]],
    budget: str | None,
    operators: str | None,
    again: bool,
    soc_version: str | None,
    **options: Any,
) -> None:
    """Find faster variants of a model's operators on this machine.

    Each distinct call is measured in the network, beside what opbuild would choose by its tables, and the results are
    compared before a time counts. What is faster beyond noise is kept in the tuning database ($TUNE_BANK_PATH, else
    tune_bank beside the cache); the next build of any model takes it. Ctrl-C keeps what was found, and the next run
    goes on.
    """
    from opbuild.files.kinds import ONNX, require_kind
    from opbuild.target.host import resolve_soc_version
    from opbuild.tuning.tuner import tune_model

    if not paths:
        raise OptionError("the models are missing", "give their paths: opbuild tune MODEL.onnx...")
    for path in paths:
        require_kind(path, ONNX)  # hours of tuning the others would come first
    level = resolve_soc_version(soc_version or "host")
    config = Config.from_environment(**options)
    types = _types(operators or "")
    left = inf if budget is None else read_span(budget, "budget", "10m") or 0.0
    for path in paths:
        with _shown(path.name) as tell:
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
        if result.rows:
            output_console().print(_table(result))
        for line in _summary(result):
            say(line)
    say(f"the tuning database is {config.tune_bank}", soft_wrap=True)


def _types(text: str) -> list[str]:
    """Return the operator types that an option names, in any case.

    Raises:
        OptionError: If one of them does not exist.
    """
    from opbuild.graph.operator_types import check_types, known_types

    types = [each.strip() for each in text.split(",") if each.strip()]
    known = {each.lower() for each in known_types()} if types else set()
    check_types([each for each in types if each.lower() not in known], "--operators")
    return types


@contextmanager
def _shown(name: str) -> Iterator[Callable[[TuningProgress], None]]:
    """Give the watcher of tuning's progress; show it on a terminal all the time, else by a line now and then."""
    console = Terminal(stderr=True)
    told: list[TuningProgress] = []
    stop = threading.Event()
    with ExitStack() as stack:
        if console.is_terminal:
            status = stack.enter_context(console.status(_line(name, told)))
            show, interval = (lambda: status.update(_line(name, told))), _REDRAW_SECONDS
        else:
            show, interval = (lambda: say(_line(name, told), console, soft_wrap=True)), QUIET_SECONDS
        thread = begin(lambda: ticking(stop, interval, interval, show), "opbuild-progress")
        try:
            with INTERRUPTS.described(lambda: _kept(told)):
                yield lambda progress: told.__setitem__(slice(None), [progress])
        finally:
            stop.set()
            if thread:
                thread.join()


def _line(name: str, told: Sequence[TuningProgress]) -> str:
    if not told:
        return f"{name}: measuring the machine and the network ..."
    (now,) = told
    return (
        f"{name}: {now.done} of {counted(now.total, 'distinct call')} known, {now.found} faster, "
        f"{counted(now.forms, 'form')} measured ..."
    )


def _kept(told: Sequence[TuningProgress]) -> str:
    known = told[0].done if told else 0
    return f"{counted(known, 'distinct call')} known and kept; the next run goes on"


def _table(result: TunedNetwork) -> Table:
    table = plain_table("family", "nodes", "table's choice", "tuned")
    for column in table.columns:
        column.overflow = "fold"
    for name in ("us", "tuned us", "ratio below"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in result.rows:
        table.add_row(*map(Text, _cells(row)))
    return table


def _cells(row: Row) -> tuple[str, ...]:
    finding, is_new = row.finding, row.choice != row.default
    after = f"{1e6 * finding.after:.1f}" if is_new else ""
    mark = " (known)" if row.known else ""
    return (
        row.question.family,
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
