"""Failures of requests to a remote store, in opbuild's own words: absent, transient or final.

The server's words are not repeated: they may hold what must not be in a log.
"""

from __future__ import annotations

import re

from opbuild.kernel.reason import Reason

ABSENT, REFUSED, SLOW, EXISTS, DAMAGED, ABANDONED = "absent", "refused", "slow", "exists", "damaged", "abandoned"
"""Codes of the reasons: the service has no such object; nobody listens, or the server does not want, cannot or must
not; no answer in time; an object is there where only a new one was to be written; it is larger than what was asked
for; it was not asked, since the program has ended."""


class Transient(Reason):
    """The reason of a failure that may pass: the same request may succeed in a moment."""

    __slots__ = ()


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


def failure_of(error: Exception) -> Reason:
    """Return the failure in an error of OpenDAL; its kind and the status of an answer stand in its text."""
    text = f"{type(error).__name__} {error}"
    status = _STATUS.search(text)
    number = int(status[1]) if status else 0
    if number == 409:  # S3's word where two such writes meet
        return Reason(EXISTS, "the object is there")
    if number >= 400 and number not in (404, 412):
        told = _STATUSES.get(number, f"it answered {number}")
        return (Transient if number in _PASSING else Reason)(REFUSED, told)
    held = text.lower().partition("backtrace:")[0]
    for sign, code, told in _HELD:
        if sign in held:
            return (Transient if sign == "ratelimited" else Reason)(code, told)
    return Transient(*UNKNOWN) if "(temporary)" in held else UNKNOWN
