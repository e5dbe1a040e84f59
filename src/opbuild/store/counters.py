"""Counters: the results of look-ups, build after build, for ``opbuild cache stats``.

Each build that looked operators up adds one line to a file, with one write that appends: processes neither wait for
each other nor overwrite what others wrote, and a line that is torn nevertheless (a network file system, a full disk, a
killed process) is left out of the sum; the next begins on a line of its own. A file that has grown large becomes
the old one, and the old one goes, so the counters cover the last thousands of builds. Nothing is read to count, and a
network that starts from its image counts nothing.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from opbuild.platform.files.private import publish
from opbuild.platform.files.trust import Trust, parse_json
from opbuild.platform.files.writing import append, make_folder
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass, field

FILE, OLD_FILE = "counters.jsonl", "counters.old.jsonl"
LARGEST = 1024 * 1024
"""Bytes of one of the two files at most: about 8,000 builds."""


@dataclass(frozen=True)
class Counters:
    """The results of look-ups, counted.

    Attributes:
        builds: Number of builds counted.
        hits: Operators that were in the store.
        misses: Operators that had to be compiled, by the reason's code.
        saved_ms: What compiling the hits took when they were compiled, in milliseconds.
        spent_ms: What compiling the misses took, in milliseconds.
        since: Seconds since 1970 of the first build counted; 0 if there is none.
    """

    builds: int = 0
    hits: int = 0
    misses: Mapping[str, int] = field(default_factory=dict)
    saved_ms: float = 0.0
    spent_ms: float = 0.0
    since: float = 0.0


def count_build(folder: Path, hits: Iterable[float], misses: Iterable[tuple[str, float]]) -> None:
    """Add one build to the counters; a folder that cannot be written is not counted.

    Args:
        folder: The folder of the counters.
        hits: For each operator that was in the store the milliseconds that compiling it took.
        misses: For each operator that was compiled the reason's code and the milliseconds.
    """
    saved, missed = list(hits), list(misses)
    line = {
        "time": round(time.time()),
        "hits": len(saved),
        "saved_ms": round(sum(saved), 1),
        "misses": Counter(code for code, _ in missed),
        "spent_ms": round(sum(milliseconds for _, milliseconds in missed), 1),
    }
    with contextlib.suppress(OSError):
        make_folder(folder)
        _append(folder / FILE, b"\n" + json.dumps(line, separators=(",", ":")).encode())


def read_counters(folder: Path) -> Counters:
    """Return the sum of a folder's counters."""
    lines = [line for name in (OLD_FILE, FILE) for line in _lines(folder / name)]
    misses: Counter[str] = Counter()
    for line in lines:
        misses.update(line["misses"])
    return Counters(
        builds=len(lines),
        hits=sum(line["hits"] for line in lines),
        misses=dict(sorted(misses.items())),
        saved_ms=sum(line["saved_ms"] for line in lines),
        spent_ms=sum(line["spent_ms"] for line in lines),
        since=min((line["time"] for line in lines), default=0.0),
    )


def _append(path: Path, line: bytes) -> None:
    try:
        size = append(path, line, create=True)
    except OSError:  # a folder, a pipe: whatever is there that cannot be added to
        publish(path, line)
        return
    if size > LARGEST and path.stat().st_size > LARGEST:  # asked again: another process may just have done it
        path.replace(path.with_name(OLD_FILE))


def check_counters(path: Path, trust: Trust) -> None:
    """Refuse a file of counters of which nothing counts; torn lines are left out of the sum, and are no damage.

    Raises:
        OSError: If it cannot be read or others can write to it.
        ValueError: If it holds something, and no sound line.
    """
    if trust.read(path, 2 * LARGEST).strip() and not _lines(path):
        raise ValueError(f"{path.name} holds no counters")


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        data = Trust(shared=True).read(path, 2 * LARGEST)
    except OSError:
        return []
    lines = []
    for text in data.splitlines():
        try:
            line = parse_json(text)
        except ValueError:
            continue
        if _is_sound(line):
            lines.append(line)
    return lines


def _is_sound(line: Any) -> bool:
    if not isinstance(line, dict) or not isinstance(line.get("misses"), dict):
        return False
    numbers = [line.get(name) for name in ("time", "hits", "saved_ms", "spent_ms")] + list(line["misses"].values())
    return all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in numbers)
