"""The tuning bank in a remote store: one object with the lines that a bank has, each signed as there.

What comes is parsed as any bank is, so a damaged line costs itself. A writer adds to what is there, and looks again: of
two who write at once the one that was overwritten writes again.
"""

from __future__ import annotations

from opbuild.errors import OptionError
from opbuild.files.trust import Trust
from opbuild.kernel.reason import Reason
from opbuild.platform.paths import Path
from opbuild.store.bank import Bank, append_records, line_of, merged, parse_bank, read_bank
from opbuild.store.remote.failures import ABSENT
from opbuild.store.remote.objects import BANK, Objects

MOST = 16 * 2**20
"""Bytes of a bank that is shared; some 30,000 records."""

_TRIES = 4


class RemoteBank:
    """What tuning found, in a remote store.

    Args:
        objects: The remote store's objects.
        trust: What records are signed with.
    """

    def __init__(self, objects: Objects, trust: Trust) -> None:
        self._objects = objects
        self._trust = trust

    def read(self) -> Bank | Reason:
        """Return the bank that is there, an empty one if there is none, or why it can not be read."""
        body = self._objects.get(BANK, MOST)
        if isinstance(body, Reason):
            return Bank() if body.code == ABSENT else body
        return parse_bank(body, self._trust)

    def publish(self, own: Bank) -> int | Reason:
        """Add the records that it lacks, or has earlier ones for; return how many, or why they can not be stored."""
        added = 0
        for _ in range(_TRIES):
            there = self.read()
            if isinstance(there, Reason):
                if there.code != "damaged":
                    return there
                there = Bank()
            lacking = merged(there, [own])
            if not lacking:  # and none where what is damaged is all that there was
                return added
            records = there.latest() | {record.place: record for record in lacking}
            body = b"".join(line_of(record, self._trust) + b"\n" for record in records.values())
            if len(body) > MOST:
                return Reason("unwritable", f"a bank of {len(body)} bytes is more than is read")
            if (problem := self._objects.put(BANK, body)) is not None:
                return problem
            added = max(added, len(lacking))
        return added

    def take(self, path: Path) -> int | Reason:
        """Add to the bank in a file what it lacks, or has earlier records for; return how many, or why not."""
        there = self.read()
        if isinstance(there, Reason):
            return there
        try:
            added = merged(read_bank(path, self._trust), [there]) if there.records else []
            append_records(path, added, self._trust)
        except OptionError as error:
            return Reason("unwritable", error.message)
        return len(added)
