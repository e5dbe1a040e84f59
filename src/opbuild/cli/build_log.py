"""Messages of a build: its operators, its warnings, and where operators were stored, or could not be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from opbuild.cli.progress import build_progress
from opbuild.cli.tables import Terminal, operators_table, output_console, say
from opbuild.config import Config
from opbuild.errors import BuildError
from opbuild.events import CompileFinished, CompileStarted, Event, Observer, Taken, Warned
from opbuild.platform.paths import Path
from opbuild.report import OperatorReport, Report
from opbuild.text.plural import counted, verb


class StorageWatch:
    """Passes events on and counts the operators that could not be stored."""

    def __init__(self, observer: Callable[[Event], None]) -> None:
        self._observer = observer
        self.not_stored = self.not_sent = 0

    def __call__(self, event: Event) -> None:
        """Observe one event."""
        if isinstance(event, Warned):
            self.not_stored += event.not_stored
            self.not_sent += event.not_sent
        self._observer(event)

    @property
    def summary(self) -> str:
        """The addition to a line that sums a build up; empty if everything was stored."""
        counts = ((self.not_stored, "stored"), (self.not_sent, "sent"))
        return "".join(f", {count} not {what}" for count, what in counts if count)

    def require_stored(self, strict: bool) -> None:
        """Fail if the user was strict and something was not stored or sent; all was built and written all the same."""
        for count, failed, remedy in (
            (self.not_stored, "stored", "make the cache folder writable"),
            (self.not_sent, "sent", "send it by 'opbuild push'"),
        ):
            if strict and count:
                raise BuildError(
                    f"{counted(count, 'part')} {verb(count, 'was', 'were')} built and not {failed}, "
                    "and --strict was given",
                    f"the warning says why; {remedy}, or leave --strict out",
                )


def stored_in(config: Config, watch: StorageWatch) -> str:
    """Return the line that says where a build has put its items; empty if it was to store nothing."""
    from opbuild.platform.files.trust import trusted

    if not config.uses_cache:
        return ""
    place = config.cache_folder
    if config.op_compiler_cache_dir is not None and not config.soc_version:
        place = place.parent
    if watch.not_stored or not trusted(config)[0].uses_folder:
        return f"not kept in {place}: the warning says why; --cache_path names another folder"
    return f"kept in {place} for later builds and runs"


LEVELS = ("debug", "info", "warning", "error", "null")
"""From most to least; ``error`` and ``null`` print the same, since an error that ends the command is always shown."""


class BuildLog:
    """Observes a build and prints the messages of its level; keeps the rows of the table at the end."""

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
        """Print the result of the build; ``remark`` follows the counts, after a comma."""
        if not self._explain and not self._shows("info"):
            return
        from opbuild.offline.file import read_offline
        from opbuild.platform.files.trust import make_trust

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
    """Give an observer that prints a build as a level of ``LEVELS`` asks; with ``explain`` the table at any level."""
    console = Terminal(stderr=True)
    with build_progress(console, ends=LEVELS.index(level) <= LEVELS.index("info")) as progress:
        yield BuildLog(level, explain=explain, progress=progress, console=console)
