"""Retry: a layer round blobs that fail, which asks within limits, once more, and then not at all for a while.

A request has its time, and where a failure may pass it is repeated once. What fails again and again is left alone by
this process, and tried again after a while. What is lost is measured in the time that passed, whoever waited: of
requests that fail together one counts, since what held all of them up is one stall, of the service or of this host.
Each answer gives a little of it back, so that a service which mostly answers is not given up in a program that asks
much.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TypeVar

from opbuild.events import RemoteAsked, tell
from opbuild.kernel.reason import Reason
from opbuild.platform.locks import Lock
from opbuild.platform.records import NamedTuple
from opbuild.store.blobs import Blobs, Data, Files
from opbuild.store.remote.failures import ABANDONED, ABSENT, DAMAGED, EXISTS, REFUSED, UNKNOWN, Transient
from opbuild.store.remote.uploads import ENDING, Ending

T = TypeVar("T")

SECONDS = 1.0
"""How long a connection, and each answer or piece of one, may take."""

_PAUSE = 0.1
"""Seconds after which what failed is asked for once more, where that may pass."""

_TOO_LATE = Reason(ABANDONED, "the program has ended")

FAILURES = 3
"""Failures one after the other that end it."""

GIVEN_BACK = 0.05
"""What part of a request's limit an answer makes up for: one request of twenty may fail for ever."""

LEFT_ALONE = 30.0
"""Seconds until one request is tried again; twice as many after each that fails."""


class Breaker:
    """Counts the failures of one kind of request. Threads may share it.

    Args:
        limit: Seconds that one request may take; twice as many may be lost by waiting for answers that do not come.
        clock: Returns seconds.

    Attributes:
        reason: Why the service is left alone; None: it is not.
    """

    def __init__(self, limit: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._lock = Lock()
        self._failures = 0
        self._lost = 0.0
        self._until = -math.inf
        self._again = 0.0
        self._pause = LEFT_ALONE
        self._tries = False
        self.reason: Reason | None = None

    def refuses(self) -> Reason | None:
        """Return the reason that nothing is to be asked now; None: it is, or this one request is to find out."""
        if self.reason is None or self._again == math.inf:
            return self.reason
        with self._lock:
            now = self._clock()
            if now < self._again:
                return self.reason
            self._tries = True
            self._pause *= 2
            self._again = now + self._pause
            return None

    def succeeded(self) -> None:
        """Take note of an answer; that something is absent is one."""
        with self._lock:
            self._failures = 0
            self._lost = max(0.0, self._lost - GIVEN_BACK * self._limit)
            if self._tries:
                self.reason, self._lost, self._pause, self._tries = None, 0.0, LEFT_ALONE, False

    def failed(self, reason: Reason, seconds: float = 0.0) -> None:
        """Take note of a failure that took some time; ``reason`` is there once nothing is to be asked any more."""
        with self._lock:
            now = self._clock()
            began = now - seconds
            self._lost += now - max(began, min(now, self._until))
            self._failures += began >= self._until
            self._until, self._tries = now, False
            if self.reason is None and (self._failures >= FAILURES or self._lost >= 2 * self._limit):
                self.reason = reason
                self._again = now + self._pause

    def stop(self, reason: Reason) -> None:
        """Ask nothing any more, ever; without the lock, which a fork may find held."""
        self._again, self._tries = math.inf, False
        self.reason = self.reason or reason


class Request(NamedTuple):
    """A request, for who watches: its kind, what it is for, and the bytes that it sends."""

    kind: str
    name: str
    written: int = 0

    def answered(self, place: str, answer: object, seconds: float) -> RemoteAsked:
        """Return the event of its answer."""
        kind, name, written = self
        if isinstance(answer, Reason):
            failure = "" if answer.code in (ABSENT, EXISTS) else f"{answer.code}: {answer.text}"
            return RemoteAsked(place, kind, name, 0, 0, seconds, answer.code, failure)
        read = len(answer) if isinstance(answer, (bytes, memoryview)) else 0
        return RemoteAsked(place, kind, name, read, written, seconds)


class Retried:
    """Blobs that are asked within limits: once more where a failure may pass, not for a while where several failed.

    Threads may share it if they may share what it holds.

    Args:
        blobs: What is asked.
        seconds: How long each step of a request may take; None: ``SECONDS``.
        ending: How much time is left once the program has ended.
        clock: Returns seconds, to all that use this layer.
        sleep: Lets so many of them pass, for all that use it.
        explained: Returns a better reason for a failure where there is one.
        place: What is asked, for people.

    Attributes:
        seconds: How long each step may take.
        reading: Says why nothing is read for a while, if so.
        writing: The same of writing and removing.
        failure: The first failure of all; None: there was none.
    """

    def __init__(
        self,
        blobs: Blobs,
        seconds: float | None = None,
        ending: Ending = ENDING,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        explained: Callable[[Reason], Reason] = lambda reason: reason,
        place: str = "",
    ) -> None:
        self._blobs = blobs
        self.seconds = SECONDS if seconds is None else seconds
        self._ending = ending
        self.clock, self.sleep = clock, sleep
        self._explained = explained
        self._place = place
        self.reading, self.writing = Breaker(self.seconds, clock), Breaker(self.seconds, clock)
        self._lock = Lock()
        self.failure: Reason | None = None

    def get(self, name: str, most: int) -> Data | Reason:
        """Return a blob, or why not.

        Who finds that it is what was written says so (``reading.succeeded``), or ``distrust``.
        """
        request = Request("get", name)
        return self._request(self.reading, request, lambda: self._blobs.get(name, most), settles=False)

    def put(self, files: Files) -> Reason | None:
        """Add or replace blobs; return None, or why they are not kept."""
        request = Request("put", ", ".join(name for name, _ in files), sum(len(data) for _, data in files))
        return self._request(self.writing, request, lambda: self._blobs.put(files))

    def names(self, folder: str = "", at_most: int | None = None) -> tuple[str, ...] | Reason:
        """Return the names in a folder, or why they cannot be listed."""
        return self._request(self.reading, Request("names", folder), lambda: self._blobs.names(folder, at_most))

    def delete(self, *names: str) -> Reason | None:
        """Remove blobs; return None, or why one is still there."""
        return self._request(self.writing, Request("delete", ", ".join(names)), lambda: self._blobs.delete(*names))

    def limit(self) -> float:
        """Return the seconds that each step of a request may take that begins now; 0: it is not to begin."""
        return self._ending.limit(self.seconds, SECONDS)

    def distrust(self, reason: Reason) -> None:
        """Take note that a blob was damaged: where all are, nothing more is asked for."""
        self.reading.failed(reason)
        self.warn_of(reason)

    def warn_of(self, reason: Reason) -> None:
        """Take note of a failure, unless there was one before."""
        with self._lock:
            self.failure = self.failure or reason

    def _request(
        self, breaker: Breaker, request: Request, ask: Callable[[], T | Reason], *, settles: bool = True
    ) -> T | Reason:
        """Return the result of a request, or why it failed; it is repeated once where that may pass."""
        refused, limit = breaker.refuses(), self.limit()
        if refused is not None or not limit:
            return refused or _TOO_LATE
        started = self.clock()
        answer = self._answer(breaker, ask, started, settles=settles)
        tell(request.answered(self._place, answer, self.clock() - started))
        return answer

    def _answer(self, breaker: Breaker, ask: Callable[[], T | Reason], started: float, *, settles: bool) -> T | Reason:
        answer = ask()
        if isinstance(answer, Transient) and not self._ending.has_begun:
            self.sleep(_PAUSE)
            answer = ask()
        if not isinstance(answer, Reason):
            if settles:
                breaker.succeeded()
            return answer
        if answer.code in (ABSENT, EXISTS):
            breaker.succeeded()
        elif answer.code != DAMAGED:
            answer = self._refined(answer)
            breaker.failed(answer, self.clock() - started)
            self.warn_of(answer)
        return answer

    def _refined(self, reason: Reason) -> Reason:
        """Return a better reason where there is one: a request that breaks off has often said before why."""
        if not self._ending.has_begun:
            reason = self._explained(reason)
        before = self.failure
        return before if reason == UNKNOWN and before is not None and before.code == REFUSED else reason
