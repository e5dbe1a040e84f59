"""Failures of requests to a remote store, in opbuild's own words, and when it is given up for a while.

The server's words are not repeated: they may hold what must not be in a log.

A service that fails again and again is left alone by this process, and tried again after a while. What is lost is
measured in the time that passed, whoever waited: of requests that fail together one counts, since what held all of them
up is one stall, of the service or of this host. Each answer gives a little of it back, so that a service which mostly
answers is not given up in a program that asks much.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable

from opbuild.kernel.reason import Reason
from opbuild.platform.records import NamedTuple

ABSENT, REFUSED, SLOW, EXISTS, ABANDONED = "absent", "refused", "slow", "exists", "abandoned"
"""Codes of the reasons: the service has no such object; nobody listens, or the server does not want, cannot or must
not; no answer in time; an object is there where only a new one was to be written; it was not asked, since the program
has ended."""

UNKNOWN = Reason(REFUSED, "it answers what it should not, or breaks off")
"""What is told where an error says nothing more."""

_STATUS = re.compile(r"status: ([1-5][0-9]{2})")
_PASSING = (429, 500, 502, 503, 504)
_STATUSES = {
    401: "it wants other credentials (401)",
    403: "it does not allow that (403)",
    413: "that is too large for it (413)",
    429: "it asks for fewer requests (429)",
    507: "it is full (507)",
}
_HELD = (
    ("notfound (", ABSENT, "it has no such object"),
    ("conditionnotmatch", EXISTS, "the object is there"),
    ("alreadyexists", EXISTS, "the object is there"),
    ("timeout", SLOW, "no answer in time"),
    ("timed out", SLOW, "no answer in time"),
    ("dns error", REFUSED, "its host is not known"),
    ("name or service not known", REFUSED, "its host is not known"),
    ("connection refused", REFUSED, "nobody listens there"),
    ("tcp connect", REFUSED, "it cannot be reached"),
    ("certificate", REFUSED, "its certificate is not accepted"),
    ("noauth", REFUSED, "it wants other credentials"),
    ("wrongpass", REFUSED, "it wants other credentials"),
    ("authentication", REFUSED, "it wants other credentials"),
    ("permission denied", REFUSED, "it does not allow that"),
    ("permissiondenied", REFUSED, "it does not allow that"),
    ("read-only file system", REFUSED, "it is read-only"),
    ("no space left", REFUSED, "it is full"),
    ("out of memory", REFUSED, "it is full"),
    ("maxmemory", REFUSED, "it is full"),
    ("quota", REFUSED, "it is full"),
    ("not a directory", REFUSED, "its folder is a file"),
    ("nosuchbucket", REFUSED, "there is no such bucket"),
    ("region is missing", REFUSED, "its region is not known: set AWS_REGION"),
    ("credential", REFUSED, "there are no credentials for it"),
    ("ratelimited", REFUSED, "it asks for fewer requests"),
    ("no module named", REFUSED, "the package opendal is not installed: pip install 'opbuild[remote]'"),
    ("configinvalid", REFUSED, "its settings are not complete"),
    ("unsupported (", REFUSED, "it cannot do that"),
    ("corrupt message", REFUSED, "it does not speak TLS"),
    ("wrong_version_number", REFUSED, "it does not speak TLS"),
    ("record_layer_failure", REFUSED, "it does not speak TLS"),
    ("sslerror", REFUSED, "no TLS connection can be made with it"),
)
"""What the text of an error holds, in lower case, the word for it and what to tell; the first that fits counts."""


class RequestFailure(NamedTuple):
    """The reason that a request failed, and whether the same request may succeed in a moment."""

    reason: Reason
    passes: bool


def failure_of(error: Exception) -> RequestFailure:
    """Return the failure in an error of OpenDAL; its kind and the status of an answer stand in its text."""
    text = f"{type(error).__name__} {error}"
    status = _STATUS.search(text)
    number = int(status[1]) if status else 0
    if number == 409:  # S3's word where two such writes meet
        return RequestFailure(Reason(EXISTS, "the object is there"), passes=False)
    if number >= 400 and number not in (404, 412):
        told = _STATUSES.get(number, f"it answered {number}")
        return RequestFailure(Reason(REFUSED, told), passes=number in _PASSING)
    held = text.lower().partition("backtrace:")[0]
    for sign, code, told in _HELD:
        if sign in held:
            return RequestFailure(Reason(code, told), passes=sign == "ratelimited")
    return RequestFailure(UNKNOWN, passes="(temporary)" in held)


FAILURES = 3
"""Failures one after the other that end it."""

GIVEN_BACK = 0.05
"""What part of a request's limit an answer makes up for: one request of twenty may fail for ever."""

LEFT_ALONE = 30.0
"""Seconds until one request is tried again; twice as many after each that fails."""


class Breaker:
    """Counts what goes wrong with one kind of request. Threads may share it.

    Args:
        limit: Seconds that one request may take; twice as many may be lost by waiting for answers that do not come.
        clock: Returns seconds.

    Attributes:
        reason: Why the service is left alone; None: it is not.
    """

    def __init__(self, limit: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._lock = threading.Lock()
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
