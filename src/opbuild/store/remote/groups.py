"""Groups: the operators that a build lacks are one object as soon as somebody has most of them.

    groups/<SHA-256 of the keys>    a line of JSON with name and bytes of each operator, then those, as ``packing`` says

Pods of one image lack the same operators of a network, so one request brings what there is. Of those that find most of
a group one by one, one claims to collect it: it is written with what there is, and again once that is all. The others
wait for it. Who has built all writes it, too. A group can only save requests: each operator is an object as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import threading
from collections.abc import Callable, Mapping, Sequence

from opbuild.files.trust import parse_json
from opbuild.kernel.entry import Entry
from opbuild.kernel.interfaces import UNCLAIMED, Claim, Holder
from opbuild.kernel.key import Key
from opbuild.kernel.reason import Reason
from opbuild.store.items import REFUSED
from opbuild.store.remote.leases import Leases
from opbuild.store.remote.objects import GROUPS, Objects
from opbuild.store.remote.packing import packed, unpacked
from opbuild.text.canonical import canonical_json

LEAST = 4
"""Operators of a group at least: fewer are asked for one by one."""

AGAIN_SECONDS = 0.1
"""For so long a group that was absent is not asked for again."""

COLLECTED = 0.5
"""Seconds for which others wait for him who collects a group; then one of them does."""

_ROUNDS = 2
"""Who collects one after the other and brings nothing; then everybody does."""

_MOST = 64 * 2**20
"""Bytes of a group."""

_OPEN = 8
"""Groups that are remembered while something of them is missing."""

Write = Callable[[str, Sequence[Entry], Claim | None], None]
"""Told the name of a group that is to be written, its entries, and the claim to collect it, which is released then."""


class Group:
    """Operators that a build lacks.

    Attributes:
        name: What the group is called.
        keys: The operators' keys, by name without device.
        known: Names of those that are no longer lacking.
        entries: Of a group that is to be written, those that are known; else those that came and were not taken yet.
        written: How many were written so far.
        is_ours: Whether this process built some.
        claim: That this process is to collect it, if it has claimed that.
        asked: When it was asked for.
    """

    def __init__(self, keys: Mapping[str, Key]) -> None:
        self.name = hashlib.sha256(" ".join(sorted(key.sha256 for key in keys.values())).encode()).hexdigest()
        self.keys = keys
        self.known: set[str] = set()
        self.entries: dict[str, Entry] = {}
        self.written = 0
        self.is_ours = False
        self.claim: Claim | None = None
        self.asked = -math.inf

    @property
    def lacking(self) -> int:
        """The number of operators that are lacking."""
        return len(self.keys) - len(self.known)


class Groups:
    """The groups of which a process lacks something. Threads may share it.

    Args:
        objects: The remote store's objects.
        again: Seconds until a group is asked for again.
        claims: Who collects what; None: everybody asks for each operator.
        write: Told of groups that are to be written; None: none is.
    """

    def __init__(
        self,
        objects: Objects,
        again: float = AGAIN_SECONDS,
        claims: Leases | None = None,
        write: Write | None = None,
    ) -> None:
        self._objects = objects
        self._again = again
        self._claims = claims
        self._write = write
        self._lock = threading.Lock()
        self._open: dict[str, Group] = {}

    def knows(self, keys: Sequence[Key]) -> bool:
        """Return whether some operators were asked for before, as a part of a group."""
        stems = {key.stem for key in keys}
        with self._lock:
            return any(stems <= group.keys.keys() for group in self._open.values())

    def take(self, keys: Sequence[Key]) -> dict[str, Entry]:
        """Return those of some operators that came as a group, by name without device; each once.

        Their group is asked for where they are most of what it lacks. Several that are of no group yet become one.
        """
        group = self._group_of(keys)
        if group is None:
            return {}
        came: dict[str, Entry] = {}
        if 2 * len(keys) >= group.lacking and self._is_due(group):
            body = self._objects.get(GROUPS + group.name, _MOST)
            came, is_sound = ({}, True) if isinstance(body, Reason) else _entries(body, group.keys)
            if not is_sound:
                self._objects.damaged(GROUPS + group.name, Reason("damaged", "it holds what is no operator"))
        with self._lock:
            group.entries |= {stem: entry for stem, entry in came.items() if stem not in group.known}
            group.known |= came.keys()
            taken = {key.stem: group.entries[key.stem] for key in keys if key.stem in group.entries}
            if self._write is None:
                group.entries = {stem: entry for stem, entry in group.entries.items() if stem not in taken}
            if not group.lacking and taken.keys() >= group.entries.keys():
                self._open.pop(group.name, None)
            return taken

    def collected(self, keys: Sequence[Key], *, waits: bool) -> dict[str, Entry] | None:
        """Return the entries of a group that another process collects, as ``take`` does; None: ask for each.

        Args:
            keys: Operators of which most are likely there.
            waits: Whether to wait until they come.
        """
        group = self._group_of(keys) if len(keys) >= LEAST else None
        if group is None or self._claims is None or group.claim is not None:
            return None
        for _ in range(_ROUNDS):
            claim = self._claims.claim(group.name, patience=COLLECTED)
            if not isinstance(claim, Holder):
                group.claim = claim
                return None
            if not waits:
                return {}
            service = self._objects.service
            latest = service.clock() + COLLECTED
            while service.clock() < latest:
                service.sleep(self._again)
                if came := self.take(keys):
                    return came
        return None

    def add(self, entry: Entry, *, is_ours: bool = False) -> None:
        """Take note of an operator that was built here, or came alone; write the groups that are whole by that."""
        if self._write is None:
            return
        stem = entry.name.rpartition("_")[0]
        with self._lock:
            groups = [group for group in self._open.values() if stem in group.keys]
            for group in groups:
                group.known.add(stem)
                group.entries[stem] = entry
                group.is_ours |= is_ours
            whole = [group for group in groups if not group.lacking]
            for group in whole:
                del self._open[group.name]
        for group in whole:
            if group.is_ours or group.claim is not None:
                self._write(group.name, list(group.entries.values()), group.claim)

    def offer(self, keys: Sequence[Key]) -> None:
        """Write the part of a group that this process has collected, if that is more than before."""
        group = self._group_of(keys)
        if group is None or group.claim is None or self._write is None:
            return
        with self._lock:
            entries = list(group.entries.values())
            if not group.lacking or len(entries) < group.written + LEAST:
                return
            group.written = len(entries)
        self._write(group.name, entries, UNCLAIMED)

    def _group_of(self, keys: Sequence[Key]) -> Group | None:
        """Return the group that has all of some operators, a new one if there is none; None: they are too few."""
        stems = {key.stem: key for key in keys}
        with self._lock:
            for group in self._open.values():
                if stems.keys() <= group.keys.keys():
                    return group
            if len(stems) < LEAST:
                return None
            group = Group(stems)
            while len(self._open) >= _OPEN:
                del self._open[next(iter(self._open))]
            self._open[group.name] = group
            return group

    def _is_due(self, group: Group) -> bool:
        """Return whether it is time to ask for a group, which is then asked for."""
        now = self._objects.service.clock()
        with self._lock:
            if group.claim is not None or now - group.asked < self._again or group.lacking < LEAST:
                return False
            group.asked = now
            return True


def write_group(objects: Objects, name: str, entries: Sequence[Entry], claim: Claim | None) -> Reason | None:
    """Write a group, unless it is there and nobody collected it; return None, or why not."""
    problem, service = None, objects.service
    parts = {entry.name.rpartition("_")[0]: packed(entry) for entry in entries}
    head = canonical_json([[stem, len(part)] for stem, part in parts.items()]).encode()
    body = b"".join([head, b"\n", *parts.values()])
    if len(body) <= _MOST and (claim is not None or service.damaged or service.exists(GROUPS + name) is not True):
        problem = objects.put([(GROUPS + name, body)])
    if claim is not None:
        claim.release()
    return problem


def mend_group(objects: Objects, entries: Sequence[Entry]) -> Reason | None:
    """Write again the group that some operators are, if it is there and damaged; return None, or why not."""
    if len(entries) < LEAST:
        return None
    name = Group({entry.key.stem: entry.key for entry in entries}).name
    problem = problem_of_group(objects, name)
    is_damaged = problem is not None and problem.code == "damaged"
    return write_group(objects, name, entries, None) if is_damaged else None


def problem_of_group(objects: Objects, name: str) -> Reason | None:
    """Return the problem of a group, whatever is in it."""
    body = objects.get(GROUPS + name, _MOST)
    if isinstance(body, Reason):
        return body
    if _entries(body, None)[1]:
        return None
    return objects.damaged(GROUPS + name, Reason("damaged", "it holds what is no operator"))


def _entries(body: bytes, keys: Mapping[str, Key] | None) -> tuple[dict[str, Entry], bool]:
    """Return the sound operators of a group's object, by name without device, and whether all of it is sound."""
    head, _, rest = body.partition(b"\n")
    found: dict[str, Entry] = {}
    start = 0
    with contextlib.suppress(*REFUSED):
        for stem, size in parse_json(head):
            entry = unpacked(rest[start : start + int(size)], stem, None if keys is None else keys[stem])
            if isinstance(entry, Entry):
                found[stem] = entry
            start += int(size)
        return found, len(found) == len(parse_json(head)) and start == len(rest)
    return found, False
