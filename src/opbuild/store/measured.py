"""Measured: how large a large cache folder is, remembered, so that not every build looks at each of its files.

    network_meta/size.jsonl    the measurement as JSON; then for each build since the bytes that it added, a line each

Whoever measured a folder of many files writes down what was found; a build that adds something adds a line, with one
write that appends. While the sum is below the limit nothing needs to age, and nothing is listed. The sum may be too
large (what was replaced counts twice, what was removed still counts), and then the folder is measured early. It is too
small by what killed processes published, and for that it is believed for a day only. Folders of few files have no such
file: they are measured each time. A file that is damaged, gone, or anybody else's costs a measurement.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from opbuild.files.private import publish
from opbuild.files.trust import Trust, parse_json
from opbuild.files.writing import append
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass

FILE = "size.jsonl"

BELIEVED_SECONDS = 86400.0
"""For how long a measurement is believed."""

FEW_FILES = 1000
"""Files up to which a folder is measured at the end of each build that adds something: it takes 5 ms."""

_READ_AT_MOST = 65536
"""Bytes of the file: some thousand builds, after which the folder is measured again."""


@dataclass(frozen=True)
class MeasuredFolder:
    """A measurement.

    Attributes:
        nbytes: The folder's size, with what was added since.
        time: When it was measured, in seconds since the epoch.
        again: Before when ageing again would be in vain, or would take too large a part of the time.
    """

    nbytes: int
    time: float
    again: float = 0.0


def remembered(network_meta: Path, now: float, trust: Trust) -> MeasuredFolder | None:
    """Return the known size of a folder; None if it must be measured."""
    try:
        known = read_measured(network_meta / FILE, trust)
    except (OSError, ValueError, TypeError):
        return None
    if not 0 <= now - known.time < BELIEVED_SECONDS or known.again - now > BELIEVED_SECONDS:
        return None
    return known


def read_measured(path: Path, trust: Trust) -> MeasuredFolder:
    """Return the measurement in a file, however old it is.

    Raises:
        OSError: If it cannot be read, has too many lines or others can write to it.
        ValueError: If it is no measurement.
        TypeError: If it is no measurement.
    """
    first, *added = trust.read(path, _READ_AT_MOST).decode("ascii").splitlines() or [""]
    known = MeasuredFolder(**parse_json(first.encode()))
    if not all(_is_number(each) for each in (known.nbytes, known.time, known.again)):
        raise ValueError(f"{path.name} holds no measurement")
    return MeasuredFolder(known.nbytes + sum(map(int, added)), known.time, known.again)


def remember(network_meta: Path, measured: MeasuredFolder) -> None:
    """Write a measurement down; a folder that refuses is measured by the next build too."""
    with contextlib.suppress(OSError):
        publish(network_meta / FILE, json.dumps(vars(measured)).encode() + b"\n")


def forget(network_meta: Path) -> None:
    """Let the next build measure."""
    with contextlib.suppress(OSError):
        (network_meta / FILE).unlink()


def add(network_meta: Path, nbytes: int) -> None:
    """Note a build's additions to a folder whose size is remembered."""
    with contextlib.suppress(OSError):
        append(network_meta / FILE, b"%d\n" % nbytes)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e18
