"""Operators in a remote store: each is an object, and those that a build lacks together are another one."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from opbuild.kernel.entry import Entry
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.key import Key
from opbuild.kernel.reason import NOWHERE, Reason
from opbuild.platform.paths import Path
from opbuild.store.concurrent_map import concurrent_map
from opbuild.store.origins import Origins
from opbuild.store.remote.failures import ABSENT
from opbuild.store.remote.groups import AGAIN_SECONDS, Groups, Write
from opbuild.store.remote.leases import Leases
from opbuild.store.remote.objects import OPERATORS, ORIGINS, Objects, SealedMemos
from opbuild.store.remote.packing import packed, unpacked
from opbuild.store.remote.service import described

SOURCE = "the remote store"
"""What people call it."""

FIRST = 4
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
        claims: See ``Groups``.
        write: See ``Groups``.
    """

    def __init__(
        self,
        objects: Objects,
        absent_seconds: float = ABSENT_SECONDS,
        claims: Leases | None = None,
        write: Write | None = None,
    ) -> None:
        self._objects = objects
        self._absent_seconds = absent_seconds
        self._origins = Origins(SealedMemos(objects, ORIGINS))
        self._groups = Groups(objects, max(absent_seconds, AGAIN_SECONDS), claims, write)
        self._lock = threading.Lock()
        self._absent: dict[str, float] = {}

    def lookup(self, key: Key) -> Found | Missing:
        """Return the entry of ``key``, checked byte for byte, or why there is none.

        Codes of the reason are those of ``Objects.get`` and of ``store.inspect.check``.
        """
        return self.lookup_all([key])[0]

    def lookup_all(self, keys: Sequence[Key]) -> list[Found | Missing]:
        """Return the answer of ``lookup`` for each of several keys, asking for them together.

        Who looks again for each before he compiles it asks for a few first: where most of them are absent the others
        are too, and need no request now.
        """
        is_first = not self._groups.knows(keys)
        answers: dict[str, Found | Missing] = {
            stem: Found(entry, SOURCE) for stem, entry in self._groups.take(keys).items()
        }
        alone = [key for key in keys if key.stem not in answers]
        few, rest = (alone, []) if self._absent_seconds else (alone[:FIRST], alone[FIRST:])
        answers |= zip([key.stem for key in few], self._look_up(few), strict=True)
        if rest and _most_are_there([answers[key.stem] for key in few]):
            came = self._groups.collected(rest, waits=is_first)
            if came is None:
                answers |= zip([key.stem for key in rest], self._look_up(rest), strict=True)
                self._groups.offer(keys)
            else:
                answers |= {stem: Found(entry, SOURCE) for stem, entry in came.items()}
        return [answers.get(key.stem, missing(Reason(ABSENT, ""))) for key in keys]

    def _look_up(self, keys: Sequence[Key]) -> list[Found | Missing]:
        if len(keys) < 2:
            return [self._one(key) for key in keys]
        with closing(concurrent_map(keys, self._one)) as answers:
            return [answer for _, answer in answers]

    def _one(self, key: Key) -> Found | Missing:
        now = self._objects.service.clock()
        with self._lock:
            if now - self._absent.get(key.stem, -self._absent_seconds) < self._absent_seconds:
                return missing(Reason(ABSENT, ""))
        answer = self.entry(key.stem, key)
        if isinstance(answer, Entry):
            self._groups.add(answer)
            return Found(answer, SOURCE)
        if answer.code == ABSENT:
            with self._lock:
                self._absent[key.stem] = self._objects.service.clock()
        return missing(answer)

    def built(self, entry: Entry) -> None:
        """Take note of an operator that was built here, and with which a group may be whole."""
        self._groups.add(entry, is_ours=True)

    def entry(self, stem: str, key: Key | None = None) -> Entry | Reason:
        """Return the entry of a name without device, checked, or why there is none."""
        body = self._objects.get(OPERATORS + stem, _MOST)
        if isinstance(body, Reason):
            return body
        entry = unpacked(body, stem, key)
        return self._objects.damaged(OPERATORS + stem, entry) if isinstance(entry, Reason) else entry

    def holds(self, entry: Entry) -> bool:
        """Return whether an entry's object is there, with sound records, whoever wrote them."""
        there = self.entry(entry.name.rpartition("_")[0])
        return isinstance(there, Entry) and there.sha256 == entry.sha256

    def publish(self, entry: Entry, linked_from: Path | None = None) -> str | None:
        """Add or replace an entry; return None, or why it could not be stored. Nothing is linked here."""
        stem = entry.name.rpartition("_")[0]
        body = packed(entry)
        if len(body) > _MOST:
            return f"{entry.name} has {len(body)} bytes, more than a look-up reads"
        if self._objects.checks and self.holds(entry):
            return None
        problem = self._objects.put([(OPERATORS + stem, body)])
        if problem is None:
            self._origins.note(entry.key, entry.pipeline)
        with self._lock:
            self._absent.pop(stem, None)
        return None if problem is None else described(problem)

    def origins(self, keys: Sequence[Key]) -> list[Mapping[str, str]]:
        """Return for each of several operators its origins, by their pipelines."""
        with closing(concurrent_map(keys, self._origins.known)) as answers:
            return [known for _, known in answers]

    def names(self, at_most: int | None = None) -> tuple[str, ...]:
        """Return the names of the entries present, sorted; none where the service cannot list them."""
        stems = self.stems()
        entries = [] if isinstance(stems, Reason) else [self.entry(stem) for stem in stems[:at_most]]
        return tuple(sorted(entry.name for entry in entries if isinstance(entry, Entry)))

    def stems(self) -> tuple[str, ...] | Reason:
        """Return the names of all entries without their devices, or why they cannot be listed."""
        return self._objects.names(OPERATORS)

    def last_use(self, name: str) -> float:
        """Return 0: it is not known."""
        return 0.0

    def components(self, name: str) -> Mapping[str, Any] | None:
        """Return the key's components of the entry ``name``; None if it cannot be read."""
        entry = self.entry(name.rpartition("_")[0])
        return entry.info["key"]["components"] if isinstance(entry, Entry) else None

    def evict(self, name: str) -> None:
        """Remove an entry if it is there."""
        self._objects.delete(OPERATORS + name.rpartition("_")[0])


def _most_are_there(answers: Sequence[Found | Missing]) -> bool:
    absent = sum(isinstance(answer, Missing) and answer.reason.code == ABSENT for answer in answers)
    return 2 * absent <= len(answers)


def message_of(reason: Reason) -> str:
    """Return the message of a look-up that found nothing."""
    if reason.code == ABSENT:
        return f"{NOWHERE}{SOURCE}"
    return f"{SOURCE}: {reason.code}, {reason.text}"


def missing(reason: Reason) -> Missing:
    """Return the answer that there is no entry; its further text is for people."""
    return Missing(reason._replace(elsewhere=message_of(reason)))
