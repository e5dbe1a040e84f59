"""Events: the messages of the builder and the runtime for whoever watches. Nothing in them prints."""

from __future__ import annotations

from collections.abc import Callable

from opbuild.platform.records import NamedTuple


class BuildStarted(NamedTuple):
    """A build of ``total`` distinct operators begins; ``to_compile`` of them are not in the store."""

    network: str
    total: int
    to_compile: int


class CompileStarted(NamedTuple):
    """A worker begins to compile one operator."""

    name: str
    reason: str


class CompileFinished(NamedTuple):
    """A worker compiled one operator, in ``milliseconds``; ``done`` of ``to_compile`` are finished."""

    name: str
    milliseconds: float
    done: int
    to_compile: int


class Waiting(NamedTuple):
    """Only operators that others compile are left: ``name``, by ``holder``, for ``seconds`` now."""

    name: str
    holder: str
    seconds: float


class Taken(NamedTuple):
    """An operator that was to be compiled came from others, as ``source`` says; ``done`` of ``to_compile`` are."""

    name: str
    source: str
    done: int
    to_compile: int


class LowerServes(NamedTuple):
    """The network runs a lower level's code, since none can be made; ``level`` says which, and why."""

    network: str
    level: str


class BuildFinished(NamedTuple):
    """A build ended: ``built`` operators were compiled, ``reused`` came from the store or from others."""

    network: str
    built: int
    reused: int
    seconds: float


READING, PREPARING, PACKING = "reading the model", "preparing the operators", "packing weights"
LINKING, WRITING = "linking", "writing the network"
"""Steps of a build besides compiling."""


class Working(NamedTuple):
    """A step besides compiling goes on: ``done`` of ``total`` bytes, 0 of 0 where they are not counted.

    Weights are packed while operators are compiled; the other steps come before or after.
    """

    step: str
    done: int = 0
    total: int = 0


class Warned(NamedTuple):
    """Something the user should know that stops nothing, e.g. a store that could not be written.

    ``not_stored`` is the number of operators and networks that are used and could not be stored, ``not_sent`` of those
    that could not be written to the store that others share.
    """

    message: str
    not_stored: int = 0
    not_sent: int = 0


Event = (
    BuildStarted | CompileStarted | CompileFinished | Waiting | Taken | BuildFinished | Working | LowerServes | Warned
)
Observer = Callable[[Event], None]


Watch = Callable[[int, int], None]
"""Told of a work on many things how many are done, and how many there are; it must not raise."""


def working(observer: Observer, step: str) -> Watch:
    """Tell an observer that a step begins; return a function that takes the number of bytes done."""
    observer(Working(step))
    return lambda done, total: observer(Working(step, done, total))


def log_warnings(event: Event) -> None:
    """Log warnings, each once in a process, where nobody observes the build."""
    if isinstance(event, Warned) and event.message not in _LOGGED:
        import logging

        from opbuild.text.visible import visible

        _LOGGED.add(event.message)
        logging.getLogger("opbuild").warning("%s", visible(event.message))


_LOGGED: set[str] = set()


def only_warnings(observer: Observer) -> Observer:
    """Return an observer that tells another one warnings alone, of work that nobody waits for."""
    return lambda event: observer(event) if isinstance(event, Warned) else None


def ignore(event: Event) -> None:
    """Observe nothing."""


def unwatched(done: int, total: int) -> None:
    """Watch nothing."""
