"""Events: the messages of the builder and the runtime for whoever watches. Nothing in them prints.

An observer is told of the builds that it was given to; those who subscribe are told of all builds of the process, of
the sizes that networks are bound to, and of requests to remote stores. All events are counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opbuild.platform.locks import Lock
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
    """A worker compiled one operator, in ``milliseconds``; ``done`` of ``to_compile`` are finished.

    ``nbytes`` are those of the result; ``reason`` says why it was compiled, and ``failure`` why it could not be.
    """

    name: str
    milliseconds: float
    done: int
    to_compile: int
    nbytes: int = 0
    reason: str = ""
    failure: str = ""


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


class Reused(NamedTuple):
    """The origin of an operator that was not compiled: ``source`` names the store or process that lent it.

    An empty ``source`` is one's own store; ``reason`` says the same for people.
    """

    name: str
    reason: str
    source: str
    nbytes: int


class BuildFinished(NamedTuple):
    """A build ended: ``built`` operators were compiled, ``reused`` came from the store or from others.

    ``origins`` has one entry for each of the latter.
    """

    network: str
    built: int
    reused: int
    seconds: float
    origins: tuple[Reused, ...] = ()


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


COMPILE, BIND = "compile", "bind"
"""Steps that a caller waits for: the call of ``compile``, and making a network ready for a size."""


class Began(NamedTuple):
    """A step that a caller waits for begins; the same thread tells its end, after those of the steps within it."""

    step: str


class Ended(NamedTuple):
    """The step ended, after ``seconds``; ``failure`` names the error that ended it, if one did.

    ``network`` is empty where it is not known.
    """

    step: str
    network: str
    seconds: float
    failure: str = ""


STORED, BY_NUMBERS, BUILT = "stored", "by numbers", "built"
"""The ways to a bound network: as it was stored, by the numbers of a program for many sizes, or built for it."""


class NetworkBound(NamedTuple):
    """A network, or a segment of one, is ready for a size.

    Attributes:
        network: Its name.
        inputs: Its inputs, with ``name`` and ``type``.
        how: ``STORED``, ``BY_NUMBERS`` or ``BUILT``.
        why: Why it was built; empty: it was not.
        fallbacks: Number of calls that numpy computes, by operator type.
        pending: Operators that are compiled behind the calls, which others compute until then.
        seconds: How long it took.
    """

    network: str
    inputs: Sequence[Any]
    how: str
    why: str
    fallbacks: Mapping[str, int]
    pending: int
    seconds: float


class NetworkLoaded(NamedTuple):
    """A stored network was loaded, with so many distinct ``operators``."""

    network: str
    operators: int


class NetworkFetched(NamedTuple):
    """A whole network came from a remote store."""

    network: str


class RemoteAsked(NamedTuple):
    """A remote store was asked for something.

    Attributes:
        place: Its address.
        request: ``get``, ``put``, ``put_new``, ``size``, ``names`` or ``delete``.
        name: What it was asked for.
        read: Bytes of contents that came.
        written: Bytes of contents that were sent.
        seconds: How long the answer took.
        code: ``absent`` or ``exists`` where that is the answer, or the code of the failure.
        failure: Why there was no answer; empty: there was one.
    """

    place: str
    request: str
    name: str
    read: int
    written: int
    seconds: float
    code: str = ""
    failure: str = ""


Event = (
    BuildStarted | CompileStarted | CompileFinished | Waiting | Taken | BuildFinished | Working | LowerServes | Warned
)
"""The events of a build, which its observer is told of."""
ProcessEvent = Event | Began | Ended | NetworkBound | NetworkLoaded | NetworkFetched | RemoteAsked
"""The events of a process, which subscribers are told of."""
Observer = Callable[[Event], None]
Subscriber = Callable[[ProcessEvent], None]

PACK, REMOTE = "the pack", "the remote store"
"""The release's pack, as the names of all packs begin, and a store that others share, as sources of operators."""

_subscribers: list[Subscriber] = []
_counts: dict[str, float] = {}
_lock = Lock()
_under_way: dict[object, Callable[[], int]] = {}


def subscribe(subscriber: Subscriber) -> Callable[[], None]:
    """Have all events of this process told to a function, from the threads in which they happen.

    Returns:
        A function that ends it.
    """
    _subscribers.append(subscriber)

    def end() -> None:
        if subscriber in _subscribers:
            _subscribers.remove(subscriber)

    return end


def tell(event: ProcessEvent) -> None:
    """Count an event, and tell subscribers."""
    counted = _COUNTED.get(type(event))
    if counted is not None:
        with _lock:
            for name, number in counted(event).items():
                _counts[name] = _counts.get(name, 0) + number
    for subscriber in tuple(_subscribers):
        subscriber(event)


def with_subscribers(observer: Observer) -> Observer:
    """Return an observer that tells another one and all subscribers."""

    def observe(event: Event) -> None:
        tell(event)
        observer(event)

    return observe


@contextmanager
def step(name: str) -> Iterator[Callable[[str], None]]:
    """Tell subscribers the beginning and the end of a step that a caller waits for; take the name of its network."""
    tell(Began(name))
    started, failure, networks = time.perf_counter(), "", [""]
    try:
        yield networks.append
    except BaseException as error:
        failure = f"{type(error).__name__}: {error}"
        raise
    finally:
        tell(Ended(name, networks[-1], time.perf_counter() - started, failure))


def note_pending(build: object, pending: Callable[[], int] | None) -> None:
    """Note how to learn the number of operators that a build has yet to compile; None: it has ended."""
    if pending is None:
        _under_way.pop(build, None)
    else:
        _under_way[build] = pending


def counts() -> dict[str, float]:
    """Return the counts of this process, by name; a number that is 0 may be missing."""
    with _lock:
        found = dict(_counts)
    return {**found, "operators_pending": sum(each() for each in tuple(_under_way.values()))}


def _of_bound(event: NetworkBound) -> dict[str, float]:
    counted: dict[str, float] = {f"bindings_{event.how.replace(' ', '_')}": 1, "bind_seconds": event.seconds}
    if event.pending:
        counted |= {"first_answers": 1, "first_answer_seconds": event.seconds}
    return {**counted, "fallbacks": sum(event.fallbacks.values())}


def _of_compile(event: CompileFinished) -> dict[str, float]:
    seconds = {"compile_seconds": event.milliseconds / 1e3}
    if event.failure:
        return {"operators_failed": 1, **seconds}
    return {"operators_built": 1, "built_bytes": event.nbytes, **seconds}


def _of_build(event: BuildFinished) -> dict[str, float]:
    sources = [each.source for each in event.origins]
    return {
        "builds": 1,
        "build_seconds": event.seconds,
        "operators_reused": len(sources),
        "operators_from_pack": sum(source.startswith(PACK) for source in sources),
        "operators_from_remote": sources.count(REMOTE),
        "reused_bytes": sum(each.nbytes for each in event.origins),
    }


def _of_request(event: RemoteAsked) -> dict[str, float]:
    return {
        "remote_requests": 1,
        "remote_errors": bool(event.failure),
        "remote_read_bytes": event.read,
        "remote_written_bytes": event.written,
        "remote_seconds": event.seconds,
    }


_COUNTED: Mapping[type, Callable[[Any], dict[str, float]]] = {
    CompileFinished: _of_compile,
    BuildFinished: _of_build,
    NetworkBound: _of_bound,
    NetworkLoaded: lambda event: {"networks_loaded": 1, "operators_reused": event.operators},
    NetworkFetched: lambda event: {"networks_from_remote": 1},
    RemoteAsked: _of_request,
    Warned: lambda event: {"warnings": 1},
}


def _forget() -> None:
    """Begin anew in a fork, which has done nothing yet."""
    _counts.clear()
    _under_way.clear()


os.register_at_fork(after_in_child=_forget)


Watch = Callable[[int, int], None]
"""Told of a work on many things how many are done, and how many there are; it must not raise."""


def working(observer: Observer, step: str) -> Watch:
    """Tell an observer that a step begins; return a function that takes the number of bytes done."""
    observer(Working(step))
    return lambda done, total: observer(Working(step, done, total))


def log_warnings(event: Event) -> None:
    """Log warnings, each once in a process, where nobody observes the build."""
    if isinstance(event, Warned) and is_new(event.message, _LOGGED):
        import logging

        from opbuild.text.visible import visible

        logging.getLogger("opbuild").warning("%s", visible(event.message))


_LOGGED: set[str] = set()


def is_new(text: str, told: set[str]) -> bool:
    """Add a text to those that were told, and return whether it was not among them."""
    with _lock:
        was_told = text in told
        told.add(text)
        return not was_told


def tell_of_environment(warnings: Iterable[str], observer: Observer) -> None:
    """Tell an observer warnings about the environment: each once in a process, whose environment it is."""
    for each in warnings:
        if is_new(each, _TOLD):
            observer(Warned(each))


_TOLD: set[str] = set()


def only_warnings(observer: Observer) -> Observer:
    """Return an observer that tells another one warnings alone, of work that nobody waits for; subscribers all else."""
    return lambda event: observer(event) if isinstance(event, Warned) else tell(event)


def ignore(event: Event) -> None:
    """Observe nothing."""


def unwatched(done: int, total: int) -> None:
    """Watch nothing."""
