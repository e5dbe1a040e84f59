"""Operators in a remote store: each is an object, and those that a build lacks together are another one, a group.

    operators/<optype>_<number>     a line of JSON with name and sizes, then the entry's three files
    groups/<SHA-256 of the keys>    a line of JSON with name and bytes of each operator, then those

Pods of one image lack the same operators of a network, so one request brings what there is. Of those that find most of
a group one by one, one claims to collect it: it is written with what there is, and again once that is all. The others
wait for it. Who has built all writes it, too. A group can only save requests: each operator is an object as well.
Of the processes and ranks of a host one asks (``SingleFlight``), and the others take its answers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence

from opbuild.events import REMOTE
from opbuild.kernel.entry import SUFFIXES, Entry
from opbuild.kernel.interfaces import UNCLAIMED, Claim, Found, Holder, Missing, Store
from opbuild.kernel.key import Key
from opbuild.kernel.reason import NOWHERE, Reason
from opbuild.platform.files.trust import ENTRY, parse_json
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass, replace
from opbuild.store.claims import Flights
from opbuild.store.concurrent_map import results_of
from opbuild.store.hints import Origins
from opbuild.store.items import REFUSED
from opbuild.store.operators import entry_of
from opbuild.store.remote.failures import ABSENT
from opbuild.store.remote.leases import Leases
from opbuild.store.remote.objects import GROUPS, OPERATORS, ORIGINS, Objects, SealedMemos
from opbuild.store.remote.service import described
from opbuild.text.canonical import canonical_json

FIRST = 4
"""Operators that are asked for first, where others are asked for again before they are compiled."""

ABSENT_SECONDS = 1.0
"""For so long what was absent is not asked for again: a build asks twice, and again while another process compiles."""

_MOST = 8 * 2**20
"""Bytes of an operator; most have some tens of kilobytes."""


@dataclass(eq=False, repr=False)
class RemoteStore:
    """Entries in a remote store, whichever device built them. Threads may share it.

    Attributes:
        objects: The remote store's objects.
        absent_seconds: For how long what was absent is not asked for again.
        claims: See ``Groups``.
        write: See ``Groups``.
    """

    objects: Objects
    absent_seconds: float = ABSENT_SECONDS
    claims: Leases | None = None
    write: Write | None = None

    def __post_init__(self) -> None:
        self._origins = Origins(SealedMemos(self.objects, ORIGINS))
        self._groups = Groups(self.objects, max(self.absent_seconds, AGAIN_SECONDS), self.claims, self.write)
        self._lock = threading.Lock()
        self._absent: dict[str, float] = {}

    def lookup(self, key: Key) -> Found | Missing:
        """Return the entry of ``key``, checked byte for byte, or why there is none.

        Codes of the reason are those of ``Objects.get`` and of ``store.operators.entry_of``.
        """
        return self.lookup_all([key])[0]

    def lookup_all(self, keys: Sequence[Key]) -> list[Found | Missing]:
        """Return the answer of ``lookup`` for each of several keys, asking for them together.

        Who looks again for each before he compiles it asks for a few first: where most of them are absent the others
        are too, and need no request now.
        """
        is_first = not self._groups.knows(keys)
        answers: dict[str, Found | Missing] = {
            stem: Found(entry, REMOTE) for stem, entry in self._groups.take(keys).items()
        }
        alone = [key for key in keys if key.stem not in answers]
        few, rest = (alone, []) if self.absent_seconds else (alone[:FIRST], alone[FIRST:])
        answers |= zip([key.stem for key in few], self._look_up(few), strict=True)
        if rest and _has_most([answers[key.stem] for key in few]):
            came = self._groups.collected(rest, waits=is_first)
            if came is None:
                answers |= zip([key.stem for key in rest], self._look_up(rest), strict=True)
                self._groups.offer(keys)
            else:
                answers |= {stem: Found(entry, REMOTE) for stem, entry in came.items()}
        return [answers.get(key.stem, missing(Reason(ABSENT, ""))) for key in keys]

    def _look_up(self, keys: Sequence[Key]) -> list[Found | Missing]:
        if len(keys) < 2:
            return [self._one(key) for key in keys]
        return results_of(keys, self._one)

    def _one(self, key: Key) -> Found | Missing:
        now = self.objects.service.clock()
        with self._lock:
            if now - self._absent.get(key.stem, -self.absent_seconds) < self.absent_seconds:
                return missing(Reason(ABSENT, ""))
        answer = self.entry(key.stem, key)
        if isinstance(answer, Entry):
            self._groups.add(answer)
            return Found(answer, REMOTE)
        if answer.code == ABSENT:
            with self._lock:
                self._absent[key.stem] = self.objects.service.clock()
        return missing(answer)

    def built(self, entry: Entry) -> None:
        """Take note of an operator that was built here, and with which a group may be whole."""
        self._groups.add(entry, is_ours=True)

    def entry(self, stem: str, key: Key | None = None) -> Entry | Reason:
        """Return the entry of a name without device, checked, or why there is none."""
        body = self.objects.get(OPERATORS + stem, _MOST)
        if isinstance(body, Reason):
            return body
        entry = unpacked(body, stem, key)
        return self.objects.damaged(OPERATORS + stem, entry) if isinstance(entry, Reason) else entry

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
        if self.objects.checks and self.holds(entry):
            return None
        problem = self.objects.put([(OPERATORS + stem, body)])
        if problem is None:
            self._origins.note(entry.key, entry.pipeline)
        with self._lock:
            self._absent.pop(stem, None)
        return None if problem is None else described(problem)

    def origins(self, keys: Sequence[Key]) -> list[Mapping[str, str]]:
        """Return for each of several operators its origins, by their pipelines."""
        return results_of(keys, self._origins.known)

    def stems(self) -> tuple[str, ...] | Reason:
        """Return the names of all entries without their devices, or why they cannot be listed."""
        return self.objects.names(OPERATORS)


def _has_most(answers: Sequence[Found | Missing]) -> bool:
    absent = sum(isinstance(answer, Missing) and answer.reason.code == ABSENT for answer in answers)
    return 2 * absent <= len(answers)


def message_of(reason: Reason) -> str:
    """Return the message of a look-up that found nothing."""
    if reason.code == ABSENT:
        return f"{NOWHERE}{REMOTE}"
    return f"{REMOTE}: {reason.code}, {reason.text}"


def missing(reason: Reason) -> Missing:
    """Return the answer that there is no entry; its further text is for people."""
    return Missing(reason._replace(elsewhere=message_of(reason)))


_KEPT = "kept "
"""The beginning of a turn's end where all that there is was kept; what it was follows."""

_DIGITS = 32


class SingleFlight:
    """A remote store which of several processes that lack the same operators one asks. Threads may share it.

    What it gives is put near at once, and found there by the others.
    """

    def __init__(self, near: Store, remote: RemoteStore, turns: Flights) -> None:
        self._near, self._remote, self._turns = near, remote, turns

    def lookup(self, key: Key) -> Found | Missing:
        """Return the entry of ``key`` as ``RemoteStore.lookup`` does; one that another process was given is near."""
        return self.lookup_all([key])[0]

    def lookup_all(self, keys: Sequence[Key]) -> list[Found | Missing]:
        """Return the answer of ``lookup`` for each of several keys, asked for together.

        Several are asked for by one process at a time, whatever they are: another one may have found some already.
        """
        wanted = hashlib.sha256(" ".join(sorted(key.sha256 for key in keys)).encode()).hexdigest()[:_DIGITS]
        with self._turns.turn(f"fetch_{wanted if len(keys) == 1 else 'operators'}") as turn:
            answers = [self._look_up_near(key) for key in keys]
            if turn.said != _KEPT + wanted:
                lacking = [number for number, answer in enumerate(answers) if isinstance(answer, Missing)]
                asked = self._remote.lookup_all([keys[number] for number in lacking]) if lacking else []
                for number, answer in zip(lacking, asked, strict=True):
                    answers[number] = self._publish_near(answer)
            if all(_is_final(answer) for answer in answers):
                turn.end(_KEPT + wanted)
        return answers

    def origins(self, keys: Sequence[Key]) -> list[Mapping[str, str]]:
        """Return the origins of operators that the remote store remembers."""
        return self._remote.origins(keys)

    def _look_up_near(self, key: Key) -> Found | Missing:
        found = self._near.lookup(key)
        return self._publish_near(found) if isinstance(found, Found) else missing(Reason(ABSENT, ""))

    def _publish_near(self, answer: Found | Missing) -> Found | Missing:
        """Put an entry where others find it, before they may look."""
        if isinstance(answer, Found) and self._near.publish(answer.entry) is None:
            return replace(answer, is_kept=True)
        return answer


def _is_final(answer: Found | Missing) -> bool:
    """Return whether nobody else needs to ask."""
    return answer.is_kept if isinstance(answer, Found) else answer.reason.code == ABSENT


LEAST = 4
"""Operators of a group at least: fewer are asked for one by one."""

AGAIN_SECONDS = 0.1
"""For so long a group that was absent is not asked for again."""

COLLECTED = 0.5
"""Seconds for which others wait for him who collects a group; then one of them does."""

_ROUNDS = 2
"""Who collects one after the other and brings nothing; then everybody does."""

_LARGEST_GROUP = 64 * 2**20
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


@dataclass(eq=False, repr=False)
class Groups:
    """The groups of which a process lacks something. Threads may share it.

    Attributes:
        objects: The remote store's objects.
        again: Seconds until a group is asked for again.
        claims: Who collects what; None: everybody asks for each operator.
        write: Told of groups that are to be written; None: none is.
    """

    objects: Objects
    again: float = AGAIN_SECONDS
    claims: Leases | None = None
    write: Write | None = None

    def __post_init__(self) -> None:
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
            body = self.objects.get(GROUPS + group.name, _LARGEST_GROUP)
            came, is_sound = ({}, True) if isinstance(body, Reason) else _entries(body, group.keys)
            if not is_sound:
                self.objects.damaged(GROUPS + group.name, Reason("damaged", "it holds what is no operator"))
        with self._lock:
            group.entries |= {stem: entry for stem, entry in came.items() if stem not in group.known}
            group.known |= came.keys()
            taken = {key.stem: group.entries[key.stem] for key in keys if key.stem in group.entries}
            if self.write is None:
                group.entries = {stem: entry for stem, entry in group.entries.items() if stem not in taken}
            if not group.lacking and taken.keys() >= group.entries.keys():
                self._open.pop(group.name, None)
            return taken

    def collected(self, keys: Sequence[Key], *, waits: bool) -> dict[str, Entry] | None:
        """Return the entries of a group that another process collects, as ``take`` does; None: ask for each."""
        group = self._group_of(keys) if len(keys) >= LEAST else None
        if group is None or self.claims is None or group.claim is not None:
            return None
        for _ in range(_ROUNDS):
            claim = self.claims.claim(group.name, patience=COLLECTED)
            if not isinstance(claim, Holder):
                group.claim = claim
                return None
            if not waits:
                return {}
            service = self.objects.service
            latest = service.clock() + COLLECTED
            while service.clock() < latest:
                service.sleep(self.again)
                if came := self.take(keys):
                    return came
        return None

    def add(self, entry: Entry, *, is_ours: bool = False) -> None:
        """Take note of an operator that was built here, or came alone; write the groups that are whole by that."""
        if self.write is None:
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
                self.write(group.name, list(group.entries.values()), group.claim)

    def offer(self, keys: Sequence[Key]) -> None:
        """Write the part of a group that this process has collected, if that is more than before."""
        group = self._group_of(keys)
        if group is None or group.claim is None or self.write is None:
            return
        with self._lock:
            entries = list(group.entries.values())
            if not group.lacking or len(entries) < group.written + LEAST:
                return
            group.written = len(entries)
        self.write(group.name, entries, UNCLAIMED)

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
        now = self.objects.service.clock()
        with self._lock:
            if group.claim is not None or now - group.asked < self.again or group.lacking < LEAST:
                return False
            group.asked = now
            return True


def write_group(objects: Objects, name: str, entries: Sequence[Entry], claim: Claim | None) -> Reason | None:
    """Write a group, unless it is there and nobody collected it; return None, or why not."""
    problem, service = None, objects.service
    parts = {entry.name.rpartition("_")[0]: packed(entry) for entry in entries}
    head = canonical_json([[stem, len(part)] for stem, part in parts.items()]).encode()
    body = b"".join([head, b"\n", *parts.values()])
    if len(body) <= _LARGEST_GROUP and (
        claim is not None or service.damaged or not isinstance(service.size(GROUPS + name), int)
    ):
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
    body = objects.get(GROUPS + name, _LARGEST_GROUP)
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


def packed(entry: Entry) -> bytes:
    """Return an entry as bytes."""
    contents = [content for _, content in entry.files()]
    head = json.dumps({"name": entry.name, "sizes": [len(content) for content in contents]})
    return b"".join([head.encode(), b"\n", *contents])


def unpacked(body: bytes, stem: str, key: Key | None = None) -> Entry | Reason:
    """Return the entry that ``packed`` made bytes of, checked as by ``entry_in``, or its problem."""
    try:
        name, files = _split(body)
    except REFUSED:
        return Reason("damaged", "it is no operator")
    if name.rpartition("_")[0] != stem:
        return Reason("other-key", f"it is {name[:100]}")
    return entry_of(name, files, key)


def _split(body: bytes) -> tuple[str, dict[str, bytes]]:
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
