"""The tuning database: a file of lines, each a record under a digest of its own.

Lines are only appended, with one write each, so that processes which tune at once neither wait for each other nor
overwrite anything. A line that is damaged, torn or signed with another key costs itself alone. Of two records for one
query the later one counts.

A line is ``<16 hexadecimal digits> <JSON object>``, the digits of the object's BLAKE3 digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opbuild.errors import OptionError
from opbuild.families.family import Variant
from opbuild.kernel.reason import Reason
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.trust import SignatureError, Trust, parse_json
from opbuild.platform.files.writing import append, make_folder
from opbuild.platform.limits import unwritten
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple, dataclass, field, fields_of
from opbuild.store.blobs import ABSENT, Blobs
from opbuild.store.machine_class import LARGEST
from opbuild.text.canonical import canonical_json

FORMAT = 1
"""Raised whenever a record's meaning changes."""

MOST = 16 * 2**20
"""Bytes of a database that is shared; some 30,000 records."""

TRIES = 4
"""How often a database is written again that another overwrote."""

_NAME = "tune_bank"
_DIGITS = 16


@dataclass(frozen=True)
class TuningRecord:
    """The result of tuning for one query on one kind of machine.

    Attributes:
        family: The kernel family.
        arguments: What it was asked with, as canonical JSON.
        level: The level of the code.
        machine: The machine's class as it was measured; empty if it was not.
        system: The machine's class as the system describes it.
        threads: Threads that ran the network.
        sources: Digest of the family's sources that were measured.
        default: The family's own answer.
        choice: The fastest; the default if nothing was faster beyond noise.
        before: Microseconds that the default took, the median.
        after: Microseconds that the choice took, the median.
        bound: The ratio below which the median of the choice's times lies with the confidence that tuning asks for.
        spread: The distance of the quarters of the ratios.
        pairs: How many pairs of runs these are of.
        date: When, in UTC: ``2026-11-23T22:10:05Z``.
        network: Where it was measured, for readers.
        kernels: Digests of the pipelines of the kernels that were measured, of the default and of the choice, by the
            operators' names; empty: they are not known.
    """

    family: str
    arguments: str
    level: str
    machine: str
    system: str
    threads: int
    sources: str
    default: Variant | None
    choice: Variant | None
    before: float
    after: float
    bound: float
    spread: float
    pairs: int
    date: str
    network: str = ""
    kernels: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> tuple[str, str, str, str, str, int]:
        """The subject of the record; of two with one place the later counts."""
        return self.family, self.arguments, self.level, self.machine, self.system, self.threads

    @property
    def is_tuned(self) -> bool:
        """Whether something faster than the default was found."""
        return self.choice != self.default


class TuningDatabase(NamedTuple):
    """The content of a tuning database's file.

    Attributes:
        records: The sound records, the earliest first.
        damaged: Lines that are none.
        unsigned: Lines that are not signed with the key.
    """

    records: tuple[TuningRecord, ...] = ()
    damaged: int = 0
    unsigned: int = 0

    def latest(self) -> dict[tuple[Any, ...], TuningRecord]:
        """Return the record that counts for each place."""
        return {record.place: record for record in self.records}


def read_database(path: Path, trust: Trust) -> TuningDatabase:
    """Return the content of a file; empty if there is none.

    Raises:
        OptionError: If it is there and cannot be read.
    """
    try:
        data = trust.read(path, LARGEST)
    except FileNotFoundError:
        return TuningDatabase()
    except (OSError, ValueError) as error:
        raise OptionError(
            f"the tuning database {path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    return parse_database(data, trust)


def parse_database(data: bytes, trust: Trust) -> TuningDatabase:
    """Return the content of the bytes of a tuning database, whatever they are."""
    records: list[TuningRecord] = []
    damaged = unsigned = 0
    for line in filter(None, data.split(b"\n")):
        try:
            records.append(_parse_line(line, trust))
        except SignatureError:
            unsigned += 1
        except (ValueError, TypeError):
            damaged += 1
    return TuningDatabase(tuple(records), damaged, unsigned)


def append_records(path: Path, records: Iterable[TuningRecord], trust: Trust) -> None:
    """Add records to a database, each with one write, which may be torn without harm to others.

    Raises:
        OptionError: If it cannot be written.
        BuildError: If the disk is full.
    """
    try:
        make_folder(path.parent)
        for record in records:
            append(path, b"\n" + line_of(record, trust), create=True)
    except OSError as error:
        hint = "set TUNE_BANK_PATH to a folder that can be written"
        raise unwritten(f"the tuning database {path}", error, hint) from error


def merged(own: TuningDatabase, others: Sequence[TuningDatabase]) -> list[TuningRecord]:
    """Return the records of other databases that one lacks, or has an earlier one for."""
    known = own.latest()
    added: dict[tuple[Any, ...], TuningRecord] = {}
    for record in (record for database in others for record in database.latest().values()):
        have = added.get(record.place) or known.get(record.place)
        if have is None or have.date < record.date:
            added[record.place] = record
    return list(added.values())


class SharedTuningDatabase:
    """A tuning database as one blob, which has the lines of its file.

    A writer adds to what is there, and looks again: of two who write at once the one that was overwritten writes again.
    """

    def __init__(self, blobs: Blobs, name: str, trust: Trust) -> None:
        self._blobs, self._name, self._trust = blobs, name, trust

    def read(self) -> TuningDatabase | Reason:
        """Return the database that is there, an empty one if there is none, or why it cannot be read."""
        body = self._blobs.get(self._name, MOST)
        if isinstance(body, Reason):
            return TuningDatabase() if body.code == ABSENT else body
        return parse_database(bytes(body), self._trust)

    def publish(self, own: TuningDatabase) -> int | Reason:
        """Add the records that it lacks, or has earlier ones for; return how many, or why they cannot be stored."""
        added = 0
        for _ in range(TRIES):
            there = self.read()
            if isinstance(there, Reason):
                if there.code != "damaged":
                    return there
                there = TuningDatabase()
            lacking = merged(there, [own])
            if not lacking:  # and none where what is damaged is all that there was
                return added
            records = there.latest() | {record.place: record for record in lacking}
            body = b"".join(line_of(record, self._trust) + b"\n" for record in records.values())
            if len(body) > MOST:
                return Reason("unwritable", f"a tuning database of {len(body)} bytes is more than is read")
            if (problem := self._blobs.put([(self._name, body)])) is not None:
                return problem
            added = max(added, len(lacking))
        return added

    def take(self, path: Path) -> int | Reason:
        """Add to the database in a file the records it lacks, or has older ones for; return how many, or why not."""
        there = self.read()
        if isinstance(there, Reason):
            return there
        try:
            added = merged(read_database(path, self._trust), [there]) if there.records else []
            append_records(path, added, self._trust)
        except OptionError as error:
            return Reason("unwritable", error.message)
        return len(added)


def line_of(record: TuningRecord, trust: Trust) -> bytes:
    """Return the line of a record, without its end."""
    text = canonical_json(trust.signed(_NAME, {"format": FORMAT, **vars(record)})).encode()
    return blake3_of(text)[:_DIGITS].encode() + b" " + text


def _parse_line(line: bytes, trust: Trust) -> TuningRecord:
    digits, _, text = line.partition(b" ")
    if blake3_of(text)[:_DIGITS].encode() != digits:
        raise ValueError("it is torn or was changed")
    whole = parse_json(text)
    if not isinstance(whole, dict):
        raise ValueError("it is no object")
    content = {"kernels": {}, **trust.unsigned(_NAME, whole)}
    if content.pop("format", None) != FORMAT:
        raise ValueError("it is of another release")
    return _record(content)


_TYPES: Mapping[str, tuple[type, ...]] = {
    "threads": (int,),
    "pairs": (int,),
    "kernels": (dict,),
    **dict.fromkeys(("default", "choice"), (dict, type(None))),
    **dict.fromkeys(("before", "after", "bound", "spread"), (int, float)),
}
_FIELDS = {name: _TYPES.get(name, (str,)) for name in fields_of(TuningRecord)}


def _record(content: Mapping[str, Any]) -> TuningRecord:
    if content.keys() != _FIELDS.keys() or any(not isinstance(content[name], _FIELDS[name]) for name in _FIELDS):
        raise ValueError("it is no record")
    machine = content["machine"].partition("/wake-")[0]  # earlier releases' classes had what waking a thread costs
    return TuningRecord(**{**content, "machine": machine})
