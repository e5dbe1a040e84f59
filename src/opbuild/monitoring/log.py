"""Log: the events of the process in the standard ``logging``, under the logger ``opbuild`` and its children.

A program that sets up ``logging`` finds them there. ``OPBUILD_LOG`` sets the level of ``opbuild``, and where the
program has no handlers what is logged goes to standard error. Where neither is so nothing is logged here: warnings
alone are, by the observer of builds that have no other (``events.log_warnings``).
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from logging import DEBUG, INFO
from typing import Any

from opbuild.events import (
    COMPILE,
    REMOTE,
    BuildFinished,
    BuildStarted,
    CompileFinished,
    CompileStarted,
    Ended,
    LowerServes,
    NetworkBound,
    NetworkFetched,
    NetworkLoaded,
    ProcessEvent,
    RemoteAsked,
    Taken,
    Waiting,
    Working,
    subscribe,
)
from opbuild.platform.records import NamedTuple
from opbuild.text.plural import counted, size
from opbuild.text.visible import visible

_ROOT = logging.getLogger("opbuild")


class Lines(NamedTuple):
    """The lines that a kind of events gives in the log: at which logger and level, and their texts."""

    logger: str
    level: int
    texts: Callable[[Any], Iterable[str]]


class _StandardError(logging.Handler):
    """Writes what no handler of the program gets."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def filter(self, record: logging.LogRecord) -> Any:
        return not logging.getLogger().handlers and super().filter(record)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
        except Exception:
            self.handleError(record)


def use_logging(level: str) -> None:
    """Log events from now on; ``level`` is that of the environment, empty where the program decides."""
    _subscribed()
    if level:
        _ROOT.setLevel(level.upper())
        if not _ROOT.hasHandlers():
            _ROOT.addHandler(_StandardError())


@cache
def _subscribed() -> None:
    subscribe(log_event)


def log_event(event: ProcessEvent) -> None:
    """Log an event, if somebody listens."""
    if not _ROOT.hasHandlers():
        return
    for lines in LINES.get(type(event), ()):
        logger = logging.getLogger(lines.logger)
        if logger.isEnabledFor(lines.level):
            for text in lines.texts(event):
                logger.log(lines.level, "%s", visible(text))


def _compiled(event: CompileFinished) -> Iterator[str]:
    count = f"{event.done} of {event.to_compile}"
    if event.failure:
        yield f"{event.name} could not be compiled: {event.failure}"
    else:
        yield f"compiled {event.name} in {event.milliseconds:.0f} ms, {size(event.nbytes)}, {count}: {event.reason}"


def _began_build(event: BuildStarted) -> Iterator[str]:
    if event.total:
        yield f"build of {event.network}: {counted(event.total, 'operator')}, {event.to_compile} to compile"


def _built(event: BuildFinished) -> Iterator[str]:
    if event.built or event.reused:
        count = f"{counted(event.built, 'operator')} built, {event.reused} reused"
        sources = Counter(each.source for each in event.origins if each.source)
        others = [f", {number} from {source}" for source, number in sources.items()]
        yield f"build of {event.network}: {count}{''.join(others)}, {event.seconds:.3f} s"


def _bound(event: NetworkBound) -> Iterator[str]:
    sizes = ", ".join(f"{each.name}:{','.join(map(str, each.type.shape))}" for each in event.inputs)
    parts = [f"{event.network} is ready for {sizes or 'no inputs'}: {event.how}, {1e3 * event.seconds:.1f} ms"]
    if event.why:
        parts.append(f"not started as stored: {event.why}")
    if event.fallbacks:
        kinds = ", ".join(f"{count} x {name}" for name, count in sorted(event.fallbacks.items()))
        parts.append(f"falls back to numpy: {kinds}")
    if event.pending:
        parts.append(f"{counted(event.pending, 'operator')} to be compiled behind the calls")
    yield "; ".join(parts)


def _ended(event: Ended) -> Iterator[str]:
    network = event.network or "a network"
    if event.failure:
        yield f"{event.step} of {network} failed after {event.seconds:.3f} s: {event.failure}"
    elif event.step == COMPILE:
        yield f"compile of {network}: {event.seconds:.3f} s"


def _request(event: RemoteAsked) -> str:
    return f"{event.request} {event.name} at {event.place}, {1e3 * event.seconds:.1f} ms"


def _answer(event: RemoteAsked) -> str:
    return event.code or f"{size(event.read)} read, {size(event.written)} written"


_BUILDER, _PIPELINE, _RUNTIME, _STORE = (f"opbuild.{name}" for name in ("builder", "pipeline", "runtime", "store"))

LINES: Mapping[type, tuple[Lines, ...]] = {
    BuildStarted: (Lines(_BUILDER, INFO, _began_build),),
    CompileStarted: (Lines(_BUILDER, DEBUG, lambda e: [f"compiling {e.name}: {e.reason}"]),),
    CompileFinished: (Lines(_BUILDER, INFO, _compiled),),
    Waiting: (Lines(_BUILDER, INFO, lambda e: [f"waiting {e.seconds:.0f} s for {e.name}, by {e.holder}"]),),
    Taken: (Lines(_BUILDER, INFO, lambda e: [f"{e.name} need not be compiled: {e.source}"]),),
    BuildFinished: (
        Lines(_BUILDER, DEBUG, lambda e: [f"reused {o.name}, {size(o.nbytes)}: {o.reason}" for o in e.origins]),
        Lines(_BUILDER, INFO, _built),
    ),
    Working: (Lines(_PIPELINE, DEBUG, lambda e: [] if e.total else [e.step]),),
    LowerServes: (Lines(_PIPELINE, INFO, lambda e: [f"{e.network} runs code of {e.level}"]),),
    NetworkLoaded: (
        Lines(_STORE, DEBUG, lambda e: [f"loaded the stored network {e.network}: {counted(e.operators, 'operator')}"]),
    ),
    NetworkFetched: (Lines(_STORE, INFO, lambda e: [f"the network {e.network} came from {REMOTE}"]),),
    NetworkBound: (Lines(_RUNTIME, INFO, _bound),),
    Ended: (Lines(_PIPELINE, INFO, _ended),),
    RemoteAsked: (
        Lines(_STORE, DEBUG, lambda e: [] if e.failure else [f"{_request(e)}: {_answer(e)}"]),
        Lines(_STORE, INFO, lambda e: [f"{_request(e)}: {e.failure}"] if e.failure else []),
    ),
}  # fmt: skip
"""The lines of each kind of events that is logged."""
