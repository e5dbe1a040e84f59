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
import errno
import os
import re
import time
from collections.abc import Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from opbuild.files.most_bytes import ENTRY, RECORD
from opbuild.files.private import PREFIX, remove_rubbish
from opbuild.files.trust import PRIVATE, SignatureError, Trust, UntrustedError, parse_json
from opbuild.files.usage import mark_used
from opbuild.kernel.entry import SUFFIXES, Entry, check_entry_signature, read_entry, sign_entry
from opbuild.kernel.interfaces import Found, Missing, Reason
from opbuild.kernel.key import Key
from opbuild.store.publish import publish_files

OTHER_DEVICES = 16
"""Entries that devices 0 to 15 built are found by every device: code does not depend on the device that built it."""

_REPLACING_SECONDS = 0.002
"""How long a replacement under way may take to show its last file; it takes three renames."""

_COMMIT_MARK = re.compile(r"[a-z0-9_]+_[0-9]+_[0-9]+\.json")
"""The file whose presence makes an entry; the folder may hold other JSON files."""


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
        for last_try in (False, True):
            try:
                publish_files(self.folder, files, linked_from)
            except OSError as error:
                # Somebody removed the folder or the private files between two steps: once more from the start.
                if last_try or error.errno not in (errno.ENOENT, errno.ESTALE, errno.EBUSY):
                    return f"{self.folder}: {error.strerror or error}"
            else:
                break
        mark_used(self._mark(entry.name), keep_time=False)  # a new file has the time already
        return None

    def names(self, at_most: int | None = None) -> tuple[str, ...]:
        """Return the names of the entries present, sorted; private files of dead writers are removed on the way.

        Args:
            at_most: Files to look at, three of each entry, in the folder's own order; None: all.
        """
        marks = []
        with contextlib.suppress(OSError), os.scandir(self.folder) as listing:
            for item in islice(listing, at_most):
                if item.name.startswith(PREFIX):
                    remove_rubbish(item)
                elif item.name.endswith(SUFFIXES[-1]) and _COMMIT_MARK.fullmatch(item.name):
                    marks.append(item.name)
        return tuple(sorted(mark[: -len(SUFFIXES[-1])] for mark in marks))

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
        """Remove an entry if it is there; the commit mark first, so that a reader finds all of it or nothing."""
        for suffix in reversed(SUFFIXES):
            with contextlib.suppress(OSError):
                (self.folder / (name + suffix)).unlink()

    def distrust(self) -> str | None:
        """Return why others could have tampered with the folder, or None: who writes here decides what code runs."""
        return self.trust.folder_problem(self.folder)

    @cached_property
    def _problem(self) -> str | None:
        return self.distrust()

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
        contents: dict[str, bytes] = {}
        for suffix in reversed(SUFFIXES):  # the commit mark first
            try:
                contents[suffix] = self.trust.read(self.folder / (name + suffix), ENTRY[suffix])
            except OSError as error:
                return Missing(self._refusal(name, suffix, error))
        records = []
        for suffix in SUFFIXES[1:]:
            try:
                records.append(parse_json(contents[suffix]))
            except ValueError as error:
                return Missing(Reason("damaged", f"{suffix} is not JSON: {error}"))
        entry = read_entry(key, name, contents[SUFFIXES[0]], *records)
        if isinstance(entry, str):
            return Missing(Reason("other-key" if "another key" in entry else "damaged", entry))
        try:
            check_entry_signature(entry, self.trust)
        except SignatureError as error:
            return Missing(Reason(error.code, str(error)))
        return Found(entry)

    def _refusal(self, name: str, suffix: str, error: OSError) -> Reason:
        if isinstance(error, UntrustedError):
            return Reason("untrusted", f"{suffix} is not used: {error.strerror}")
        if error.errno == errno.EFBIG:
            return Reason("damaged", f"{suffix} is not what was written: {error.strerror}")
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            return Reason("unreadable", f"{suffix} can not be read: {error.strerror or error}")
        present = [other for other in SUFFIXES if os.path.lexists(self.folder / (name + other))]
        if not present:
            return Reason("absent", "not in the store")
        return Reason("incomplete", f"{suffix} is missing beside {' and '.join(present)}")
