"""Operators in a remote store, an object each: a line of JSON with name and sizes, then the entry's three files."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from opbuild.files.trust import ENTRY, parse_json
from opbuild.kernel.entry import SUFFIXES, Entry
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.key import Key
from opbuild.kernel.reason import Reason
from opbuild.store.at_once import at_once
from opbuild.store.inspect import check
from opbuild.store.items import REFUSED
from opbuild.store.remote.failures import ABSENT
from opbuild.store.remote.objects import OPERATORS, Objects
from opbuild.store.remote.service import described

SOURCE = "the remote store"
"""What people call it."""

FIRST = 8
"""Operators that are asked for first, where others are asked for again before they are compiled."""

ABSENT_SECONDS = 1.0
"""For so long what was absent is not asked for again: a build asks twice, and again while another process compiles."""

_MOST = 8 * 2**20
"""Bytes of an operator; most have some tens of kilobytes."""


class RemoteStore:
    """Entries in a remote store, whichever device built them. Threads may share it.

    Args:
        objects: The remote store's objects.
        absent_seconds: For how long what was absent is not asked for again.
    """

    def __init__(self, objects: Objects, absent_seconds: float = ABSENT_SECONDS) -> None:
        self._objects = objects
        self._absent_seconds = absent_seconds
        self._lock = threading.Lock()
        self._absent: dict[str, float] = {}
        self._lent: set[str] = set()

    def lookup(self, key: Key) -> Found | Missing:
        """Return the entry of ``key``, checked byte for byte, or why there is none.

        Codes of the reason are those of ``Objects.get`` and of ``store.inspect.check``.
        """
        now = time.monotonic()
        with self._lock:
            if now - self._absent.get(key.stem, -self._absent_seconds) < self._absent_seconds:
                return missing(Reason(ABSENT, ""))
        answer = self.entry(key.stem, key)
        if isinstance(answer, Reason):
            if answer.code == ABSENT:
                with self._lock:
                    self._absent[key.stem] = time.monotonic()
            return missing(answer)
        with self._lock:
            self._lent.add(answer.sha256)
        return Found(answer, SOURCE)

    def lookup_all(self, keys: Sequence[Key]) -> list[Found | Missing]:
        """Return what ``lookup`` does for each of several keys, asking for them together.

        Who looks again for each before he compiles it asks for a few first: where most of them are absent the others
        are too, and need no request now.
        """
        if self._absent_seconds:
            return self._look_up(keys)
        return first_few(keys, self._look_up)

    def _look_up(self, keys: Sequence[Key]) -> list[Found | Missing]:
        if len(keys) == 1:
            return [self.lookup(keys[0])]
        with closing(at_once(keys, self.lookup)) as answers:
            return [answer for _, answer in answers]

    def lent(self, entry: Entry) -> bool:
        """Return whether an entry came from here."""
        return entry.sha256 in self._lent

    def entry(self, stem: str, key: Key | None = None) -> Entry | Reason:
        """Return the entry of a name without device, checked, or why there is none."""
        body = self._objects.get(OPERATORS + stem, _MOST)
        if isinstance(body, Reason):
            return body
        try:
            name, files = _unpacked(body)
        except REFUSED:
            return Reason("damaged", "it is no operator")
        if name.rpartition("_")[0] != stem:
            return Reason("other-key", f"it is {name[:100]}")
        return check(name, files, key)

    def publish(self, entry: Entry) -> str | None:
        """Add or replace an entry; return None, or why it could not be stored."""
        stem = entry.name.rpartition("_")[0]
        packed = _packed(entry)
        if len(packed) > _MOST:
            return f"{entry.name} has {len(packed)} bytes, more than a look-up reads"
        problem = self._objects.put(OPERATORS + stem, packed)
        with self._lock:
            self._absent.pop(stem, None)
        return None if problem is None else described(problem)

    def names(self, at_most: int | None = None) -> tuple[str, ...]:
        """Return the names of the entries present, sorted; none where the service can not list them."""
        stems = self.stems()
        entries = [] if isinstance(stems, Reason) else [self.entry(stem) for stem in stems[:at_most]]
        return tuple(sorted(entry.name for entry in entries if isinstance(entry, Entry)))

    def stems(self) -> tuple[str, ...] | Reason:
        """Return the names of all entries without their devices, or why they can not be listed."""
        return self._objects.service.names(OPERATORS)

    def last_use(self, name: str) -> float:
        """Return 0: it is not known."""
        return 0.0

    def components(self, name: str) -> Mapping[str, Any] | None:
        """Return the key's components of the entry ``name``; None if it can not be read."""
        entry = self.entry(name.rpartition("_")[0])
        return entry.info["key"]["components"] if isinstance(entry, Entry) else None

    def evict(self, name: str) -> None:
        """Remove an entry if it is there."""
        self._objects.service.delete(OPERATORS + name.rpartition("_")[0])


def first_few(keys: Sequence[Key], look_up: Callable[[Sequence[Key]], list[Found | Missing]]) -> list[Found | Missing]:
    """Return what ``look_up`` does, or where most of the first few keys are absent, that the rest is."""
    answers = look_up(keys[:FIRST])
    rest = keys[FIRST:]
    absent = sum(isinstance(answer, Missing) and answer.reason.code == ABSENT for answer in answers)
    if 2 * absent <= len(answers):
        return answers + look_up(rest) if rest else answers
    return answers + [missing(Reason(ABSENT, "")) for _ in rest]


def told(reason: Reason) -> str:
    """Return what to tell of a look-up that found nothing."""
    if reason.code == ABSENT:
        return f"absent from {SOURCE}"
    return f"{SOURCE}: {reason.code}, {reason.text}"


def missing(reason: Reason) -> Missing:
    """Return the answer that there is no entry; what is told of it is for people."""
    return Missing(reason._replace(elsewhere=told(reason)))


def _packed(entry: Entry) -> bytes:
    contents = [content for _, content in entry.files()]
    head = json.dumps({"name": entry.name, "sizes": [len(content) for content in contents]})
    return b"".join([head.encode(), b"\n", *contents])


def _unpacked(body: bytes) -> tuple[str, dict[str, bytes]]:
    """Return an entry's name and its files by suffix.

    Raises:
        ValueError: If it is none; or ``KeyError``, ``TypeError``.
    """
    head, _, rest = body.partition(b"\n")
    said = parse_json(head)
    name, sizes = str(said["name"]), [int(size) for size in said["sizes"]]
    files, start = {}, 0
    for suffix, size in zip(SUFFIXES, sizes, strict=True):
        if not 0 <= size <= ENTRY[suffix]:
            raise ValueError(f"{suffix} has {size} bytes")
        files[suffix] = rest[start : start + size]
        start += size
    if start != len(rest):
        raise ValueError("the sizes are not those of the files")
    return name, files
