"""Timing: who takes the time of each call of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from opbuild.graph.types import Node
from opbuild.platform.records import NamedTuple

if TYPE_CHECKING:
    from opbuild.runtime.calls import NetworkCall


class Described(Protocol):
    """An object that describes the calls it makes, as ``Executor`` does."""

    def call_of(self, step: int) -> NetworkCall:
        """Describe the call of a step."""


class Timed(NamedTuple):
    """One call of one run; ``what`` makes it. It began when ``time.perf_counter`` was ``started``."""

    what: Described | Node
    step: int
    seconds: float
    started: float


class Timer:
    """Takes the time of each call of one run."""

    def __init__(self) -> None:
        self.calls: list[Timed] = []

    def wrapped(self, runner: Described, steps: Iterable[tuple[Callable[..., Any], Any]]) -> list[tuple[Any, Any]]:
        """Return steps that do the same with the same arguments and are timed."""
        return [(self._timing(runner, index, function), operands) for index, (function, operands) in enumerate(steps)]

    def node(self, node: Node, evaluate: Callable[[], Any]) -> Any:
        """Evaluate a node between segments."""
        return self._timing(node, 0, evaluate)()

    def _timing(self, what: Described | Node, step: int, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*operands: Any) -> Any:
            started = time.perf_counter()
            result = function(*operands)
            self.calls.append(Timed(what, step, time.perf_counter() - started, started))
            return result

        return timed


TIMER: ContextVar[Timer | None] = ContextVar("opbuild_timer", default=None)
"""Who times the calls of runs in this context; None: nobody."""


@contextmanager
def timing() -> Iterator[Timer]:
    """Time the calls of all runs in this context."""
    timer = Timer()
    token = TIMER.set(timer)
    try:
        yield timer
    finally:
        TIMER.reset(token)
