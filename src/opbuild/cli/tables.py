"""Tables and lines on the terminal: results of commands, and a build's operators, each with why and how long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from opbuild.report import Report
from opbuild.text.visible import visible

if TYPE_CHECKING:
    from opbuild.tuning.bench.measure import AnyFigures


class Terminal(Console):
    """rich's console, to which foreign words are no orders: neither their control characters nor their brackets."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the output; only rich's own orders to the terminal stay orders."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)


STYLES = {"built": "yellow", "reused": "green", "shared": "cyan"}


LOG_WIDTH = 160
"""Characters in a line where there is no terminal: names of operators stay whole, so that a log can be searched."""


def output_console() -> Console:
    """Return the console for commands' results: the standard output, wide enough for a log if it is not a terminal."""
    console = Terminal()
    return console if console.is_terminal else Terminal(width=LOG_WIDTH)


def say(line: str, console: Console | None = None, *, soft_wrap: bool = False) -> None:
    """Print a line as it is, where results go unless told; with ``soft_wrap`` names in it stay whole."""
    (console or output_console()).print(line, highlight=False, markup=False, soft_wrap=soft_wrap)


WHOLE_NAMES = 80
"""Characters in a line from which on names of operators stay whole, so that they can be copied; other columns fold."""


def plain_table(*columns: str, header: bool = True) -> Table:
    """Return a table as commands print them: no empty lines around it, nothing before the first column."""
    return Table(*columns, box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), show_header=header)


def figures_table(
    columns: Sequence[str], figures: Iterable[AnyFigures], cells: Callable[[AnyFigures], Sequence[str]]
) -> Table:
    """Return a table with a row for each runtime and number of threads; one that failed has the reason instead."""
    table = plain_table("runtime")
    for name in ("threads", *columns):
        table.add_column(name, justify="right")
    for each in figures:
        title = Text(each.title)
        if each.failure:
            title.append(f"\n{each.failure}", style="red")
        table.add_row(title, str(each.threads), *(() if each.failure else cells(each)))
    return table


def text_table(
    names: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[str] = (), *, folds: bool = True
) -> Table:
    """Return a table of texts; behind the columns that fold where there is no room stand those of numbers."""
    table = plain_table(*names)
    for column in table.columns:
        column.overflow = "fold" if folds else column.overflow
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def show_table(table: Table) -> None:
    """Print a table that has rows where results go."""
    if table.rows:
        output_console().print(table)


PLANNED = {"built": "build", "reused": "reuse", "shared": "share"}
"""What a build that is only planned would do."""


def operators_table(report: Report, *, planned: bool = False) -> Table:
    """Return a table of a build's operators, made or planned: those that were built first, the slowest first."""
    timed = not planned and any(operator.status == "built" for operator in report.operators)
    table = plain_table("operator", "nodes", "", "why", *["ms"] * timed)
    for column in table.columns:
        column.overflow = "fold"
    table.columns[0].no_wrap = output_console().width >= WHOLE_NAMES
    table.columns[-1].justify = "right" if timed else "left"
    for operator in sorted(report.operators, key=lambda operator: (operator.status != "built", -operator.milliseconds)):
        row = [
            Text(operator.name),
            Text(_nodes(operator.nodes)),
            Text(PLANNED[operator.status] if planned else operator.status, STYLES[operator.status]),
            Text(report.why(operator)),
            Text(f"{operator.milliseconds:.0f}" if operator.status == "built" else ""),
        ]
        table.add_row(*row[: len(table.columns)])
    return table


def _nodes(names: Sequence[str]) -> str:
    """Return one node's name, or the first one and how many more there are."""
    first = names[0] if names else ""
    return first if len(names) < 2 else f"{first} +{len(names) - 1}"


def show_report(report: Report, *, planned: bool = False) -> None:
    """Print the table of operators, and those that fall back to numpy; arguments as for ``operators_table``."""
    show_table(operators_table(report, planned=planned))
    if report.variants:
        say(report.variants)
    for said in report.on_cpu:
        say(said)
    for name, count in sorted(report.host.items()):
        say(f"no kernel yet, falls back to numpy: {count} x {name}")
    for node in report.breaks if planned else ():
        say(f"in parts: what follows {node} is bound when the network is called")
