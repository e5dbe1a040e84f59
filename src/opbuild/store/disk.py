"""The store on disk: ``kernel_meta``, three files an entry.

Constraints, and how the format meets them:

* A look-up costs a few opens and one digest, whatever the number of entries: files are opened by name, nothing is
  scanned, there is no index that could disagree with the files, and no lock that a dead process could hold.
* Any number of processes on any number of hosts may write: all contents are checked on reading (the whole key in
  ``.info``, the object's digest in ``.json``, ``.json`` against the object), so files of two writers never load as one
  entry.
* A fault of the storage is never a fault of the build: a look-up answers ``Missing``, a publish says why it failed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from opbuild.files.private import PREFIX, remove_rubbish
from opbuild.files.trust import ENTRY, PRIVATE, RECORD, Trust, parse_json
from opbuild.kernel.entry import SUFFIXES, Entry, sign_entry
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.key import Key
from opbuild.kernel.reason import Reason
from opbuild.platform.lazily import lazily
from opbuild.platform.paths import Path
from opbuild.store.inspect import read
from opbuild.store.items import Form, mark_used, remove_files
from opbuild.store.origins import known_origins, note_origin
from opbuild.store.publish import publish_files

OTHER_DEVICES = 16
"""Entries that devices 0 to 15 built are found by every device: code does not depend on the device that built it."""

_REPLACING_SECONDS = 0.002
"""How long a replacement under way may take to show its last file; it takes three renames."""

ENTRIES = Form("operator", (".json", ".o", ".info"), r"[a-z0-9_]+_[0-9]+_[0-9]+", marked=True)
"""An entry's files; the folder may hold others."""

ENTRIES_BESIDE_NETWORKS = ENTRIES._replace(needs=frozenset({".o", ".info"}))
"""Those of the compiler's runtime library, in a folder where networks have such names too."""


class DiskStore:
    """Entries in one folder. Threads and processes may share it.

    Args:
        folder: ``kernel_meta``; created when the first entry is published.
        device_id: The device that builds; its own entries are looked for first.
        keep_times: Whether a look-up that finds an entry notes the time, for ageing.
        trust: Whose files are believed, and what entries are signed with.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        device_id: int = 0,
        *,
        keep_times: bool = False,
        trust: Trust = PRIVATE,
    ) -> None:
        self.folder = Path(folder).absolute()
        self.device_id = device_id
        self.keep_times = keep_times
        self.trust = trust

    def lookup(self, key: Key) -> Found | Missing:
        """Return the entry of ``key``, checked byte for byte, or why there is none.

        Codes of the reason: ``absent``, ``incomplete`` (a file is missing), ``unreadable`` (the storage refused),
        ``damaged`` (a file is not what was written), ``other-key`` (the files belong to another key), ``untrusted``
        (others can write to the folder or a file), ``unsigned`` and ``wrong-signature`` (where there is a key).
        """
        if self._problem is not None:
            return Missing(Reason("untrusted", self._problem))
        answer = self._lookup_devices(key)
        if isinstance(answer, Missing) and answer.reason.code != "absent":
            time.sleep(_REPLACING_SECONDS)  # another process may be replacing the entry just now
            answer = self._lookup_devices(key)
        if isinstance(answer, Found):
            mark_used(self._mark(answer.entry.name), keep_time=self.keep_times)
        return answer

    def publish(self, entry: Entry, linked_from: Path | None = None) -> str | None:
        """Add or replace an entry; return None, or why the storage refused or others can write to it.

        Args:
            entry: The entry.
            linked_from: Another store's folder that may hold the same files: they are linked where they can be.
        """
        if self._problem is not None:
            return self._problem
        files = sign_entry(entry, self.trust).files()
        for name, content in files:
            if len(content) > ENTRY[Path(name).suffix]:
                return f"{name} has {len(content)} bytes, more than a look-up reads"
        self._note(entry)  # before the entry: one that names none is a miss, an entry without it would never get it
        problem = publish_files(self.folder, files, linked_from)
        if problem is None:
            mark_used(self._mark(entry.name), keep_time=False)  # a new file has the time already
        return problem

    def origins(self, keys: Sequence[Key]) -> list[Mapping[str, str]]:
        """Return for each of several operators the sources that it was compiled from, by what these defined."""
        return [{} if self._problem is not None else known_origins(self.folder, key, self.trust) for key in keys]

    def note_origin(self, key: Key, pipeline: str) -> None:
        """Remember what an operator's sources define, as it is of what is published."""
        if self._problem is None:
            note_origin(self.folder, key, pipeline, self.trust)

    def names(self, at_most: int | None = None) -> tuple[str, ...]:
        """Return the names of the entries present, sorted; private files of dead writers are removed on the way.

        Args:
            at_most: Files to look at, three of each entry, in the folder's own order; None: all.
        """
        found = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as listing:
            for item in islice(listing, at_most):
                if item.name.startswith(PREFIX):
                    remove_rubbish(item)
                elif item.name.endswith(SUFFIXES[-1]):
                    found.append(item.name[: -len(SUFFIXES[-1])])
        return tuple(sorted(name for name in found if ENTRIES.fits(name, SUFFIXES)))

    def names_of(self, stem: str) -> list[str]:
        """Return the names of the entries that devices have of a name without device, one's own first."""
        devices = [self.device_id, *(each for each in range(OTHER_DEVICES) if each != self.device_id)]
        return [name for name in (f"{stem}_{each}" for each in devices) if os.path.lexists(self._mark(name))]

    def last_use(self, name: str) -> float:
        """Return when an entry was last used, in seconds since the epoch; 0 if it is gone."""
        try:
            return self._mark(name).stat().st_atime
        except OSError:
            return 0.0

    def components(self, name: str) -> Mapping[str, Any] | None:
        """Return the key's components as the entry's ``.info`` states them; None if it can not be read."""
        try:
            components = parse_json(self.trust.read(self.folder / f"{name}.info", RECORD))["key"]["components"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return components if isinstance(components, Mapping) else None

    def evict(self, name: str) -> None:
        """Remove an entry if it is there."""
        remove_files([f"{self.folder}/{name}{suffix}" for suffix in ENTRIES.suffixes])

    @lazily
    def _problem(self) -> str | None:
        """Why others could have tampered with the folder: who writes here decides what code runs."""
        return self.trust.folder_problem(self.folder)

    def _note(self, entry: Entry) -> None:
        if entry.pipeline:
            self.note_origin(Key(entry.info["key"]["components"], entry.info["key"]["sha256"]), entry.pipeline)

    def _mark(self, name: str) -> Path:
        return self.folder / (name + SUFFIXES[-1])

    def _lookup_devices(self, key: Key) -> Found | Missing:
        own = self._lookup_name(key, key.name(self.device_id))
        if isinstance(own, Found):
            return own
        for device in range(OTHER_DEVICES):
            name = key.name(device)
            if device != self.device_id and os.path.lexists(f"{self.folder}/{name}{SUFFIXES[-1]}"):
                other = self._lookup_name(key, name)
                if isinstance(other, Found):
                    return other
        return own

    def _lookup_name(self, key: Key, name: str) -> Found | Missing:
        entry = read(self.folder, name, self.trust, key=key, read_file=self.trust.read)
        return Missing(entry) if isinstance(entry, Reason) else Found(entry)
