"""The lines that ``opbuild compile`` prints of a build, by ``--log``: from every operator to a mere sign of life."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from opbuild.cli.progress import build_progress
from opbuild.cli.tables import operators_table, output_console, say
from opbuild.cli.terminal import Terminal
from opbuild.config import Config
from opbuild.events import CompileFinished, CompileStarted, Event, Observer, Taken, Warned
from opbuild.files.trust import make_trust
from opbuild.offline.file import read_offline
from opbuild.platform.paths import Path
from opbuild.report import OperatorReport, Report
from opbuild.text.plural import counted

LEVELS = ("debug", "info", "warning", "error", "null")
"""From most to least; ``error`` and ``null`` print the same, since an error that ends the command is always shown."""


class BuildLog:
    """Observes a build and prints what its level asks for; keeps what it needs for the table at the end.

    Args:
        level: One of ``LEVELS``.
        explain: Whether the table is wanted at any level.
        progress: Shows the progress.
        console: Where messages go.
    """

    def __init__(self, level: str, *, explain: bool, progress: Observer, console: Console) -> None:
        self._level = LEVELS.index(level)
        self._explain = explain
        self._progress = progress
        self._console = console
        self._reasons: dict[str, str] = {}
        self._milliseconds: dict[str, float] = {}
        self._shared: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        """Observe one event."""
        if isinstance(event, CompileStarted):
            self._reasons[event.name] = event.reason
        elif isinstance(event, CompileFinished):
            self._milliseconds[event.name] = event.milliseconds
            if self._shows("debug"):
                reason = self._reasons.get(event.name, "")
                say(f"compiled {event.name} in {event.milliseconds:.0f} ms: {reason}", self._console, soft_wrap=True)
        elif isinstance(event, Taken):
            self._shared[event.name] = event.source
        if not isinstance(event, Warned) or self._shows("warning"):
            self._progress(event)

    def finish(self, path: Path, seconds: float, remark: str = "") -> None:
        """Print the result of the build.

        Args:
            path: The file that was written.
            seconds: How long that took.
            remark: What else belongs to the counts, after a comma.
        """
        if not self._explain and not self._shows("info"):
            return
        built = read_offline(path, verify=False, trust=make_trust(Config.from_environment()))
        report = Report(built.name, tuple(self._operator(name, nodes) for name, nodes in built.build["operators"]))
        if report.operators and (self._explain or self._shows("debug")):
            output_console().print(operators_table(report))
        if self._shows("info"):
            size = path.stat().st_size / 2**20
            say(f"{path}: {size:.1f} MiB for {built.level}; {counted(report.built, 'operator')} built, "
                f"{report.reused} reused{remark}, {seconds:.2f} s", soft_wrap=True)  # fmt: skip

    def tell(self, line: str) -> None:
        """Print a result beside the file, if the level allows and there is one."""
        if line and self._shows("info"):
            say(line, soft_wrap=True)

    def _operator(self, name: str, nodes: list[str]) -> OperatorReport:
        if name in self._shared:
            return OperatorReport(name, "shared", self._shared[name], tuple(nodes))
        milliseconds = self._milliseconds.get(name)
        if milliseconds is None:
            return OperatorReport(name, "reused", "in the store", tuple(nodes))
        return OperatorReport(name, "built", self._reasons.get(name, ""), tuple(nodes), milliseconds)

    def _shows(self, level: str) -> bool:
        return self._level <= LEVELS.index(level)


def make_warner(level: str = "warning") -> Observer:
    """Return an observer that prints the warnings of commands that only look, each once, if the level allows."""
    console, printed = Terminal(stderr=True, soft_wrap=True), set[str]()
    shows = LEVELS.index(level) <= LEVELS.index("warning")

    def observe(event: Event) -> None:
        if shows and isinstance(event, Warned) and event.message not in printed:
            printed.add(event.message)
            console.print(Text(f"warning: {event.message}", style="yellow"))

    return observe


@contextmanager
def build_log(level: str, *, explain: bool) -> Iterator[BuildLog]:
    """Give an observer that prints a build on the standard error as its level asks.

    Args:
        level: One of ``LEVELS``.
        explain: Whether the table of operators is wanted at any level.
    """
    console = Terminal(stderr=True)
    with build_progress(console, ends=LEVELS.index(level) <= LEVELS.index("info")) as progress:
        yield BuildLog(level, explain=explain, progress=progress, console=console)
