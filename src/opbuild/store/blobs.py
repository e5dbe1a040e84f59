"""Blobs: bytes under names, in which everything that is kept lies; operators, networks, weights are kinds of records.

A folder, memory and a remote store have one interface of four methods, and so have the layers round one: what seals
and signs (``remote.objects``), what limits, repeats and gives up requests (``remote.retry``). A blob can only save
work: none of the methods raises for a fault of the storage.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from opbuild.kernel.networks import Bytes
from opbuild.kernel.reason import Reason
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.mapping import map_file, verified
from opbuild.platform.files.private import PREFIX, remove_rubbish
from opbuild.platform.files.trust import MEMO, PRIVATE, Trust
from opbuild.platform.locks import lazy_property
from opbuild.platform.paths import Path
from opbuild.store.items import REFUSED, mark_used, publish_files, read_quietly, reason_of, remove_files

Data = bytes | memoryview
Files = Sequence[tuple[str, Data]]
Mapped = tuple[Bytes, Any]
"""The bytes of a blob, and its state: what tells the next time that nobody touched it."""

ABSENT = "absent"
"""The code where there is no such blob."""


class Blobs(Protocol):
    """A store of bytes under names."""

    def get(self, name: str, most: int) -> Data | Reason:
        """Return a blob of at most so many bytes, or why not."""

    def put(self, files: Files) -> Reason | None:
        """Add or replace blobs, each whole or not at all, in this order; return None, or why they are not kept."""

    def names(self, folder: str = "", at_most: int | None = None) -> tuple[str, ...] | Reason:
        """Return the names in a folder, which ends with a slash, sorted; or why they cannot be listed.

        Args:
            folder: Where; empty: at the top.
            at_most: How many to look at, any of them; None: all.
        """

    def delete(self, *names: str) -> Reason | None:
        """Remove blobs that belong together, the commit mark first; return None, or why one is still there."""


class Folder:
    """Blobs as files in one folder. Threads and processes may share it.

    Args:
        path: The folder; created when the first blob is put there.
        trust: Whose files are believed, and what records are signed with.
        keep_times: Whether the times of use are kept, for ageing.
        copies: Whether blobs are copied instead of mapped.
        is_quiet: Whether reading is no use, and changes no access time.
        is_judged: Whether the folder was judged before: each file is by itself then, and the folder is not again.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        trust: Trust = PRIVATE,
        *,
        keep_times: bool = False,
        copies: bool = False,
        is_quiet: bool = False,
        is_judged: bool = False,
    ) -> None:
        self.path = Path(path).absolute()
        self.trust = trust
        self.keep_times, self.copies, self.is_quiet = keep_times, copies, is_quiet
        self._root, self._is_judged = f"{self.path}/", is_judged

    @lazy_property
    def problem(self) -> str | None:
        """The reason that others could have tampered with the folder: who writes here decides what code runs."""
        return None if self._is_judged else self.trust.folder_problem(self.path)

    def get(self, name: str, most: int) -> Data | Reason:
        """Return a file's contents."""
        if self.problem is not None:
            return Reason("untrusted", self.problem)
        try:
            if self.is_quiet:
                return read_quietly(self.path / name, most, self.trust)
            return self.trust.read(self._root + name, most)
        except OSError as error:
            return reason_of(error, missing=ABSENT)

    def put(self, files: Files, linked_from: Path | None = None) -> Reason | None:
        """Write files."""
        problem = self.problem or publish_files(self.path, files, linked_from)
        return None if problem is None else Reason("unwritable", problem)

    def names(self, folder: str = "", at_most: int | None = None) -> tuple[str, ...]:
        """Return the names of the files; private ones of dead writers are removed on the way."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.path / folder) as listing:
            for item in islice(listing, at_most):
                if item.name.startswith(PREFIX):
                    remove_rubbish(item)
                else:
                    found.append(item.name)
        return tuple(sorted(found))

    def delete(self, *names: str) -> Reason | None:
        """Remove files."""
        gone = remove_files([self._root + name for name in names])
        return None if gone else Reason("unwritable", f"{names[0]} cannot be removed")

    def mapped(self, name: str, nbytes: int | None, digest: str = "", state: Any = None) -> Mapped | Reason:
        """Map a file, or copy it."""
        if self.problem is not None:
            return Reason("untrusted", self.problem)
        try:
            if not digest:
                return map_file(self.path / name, nbytes, self.trust)
            return verified(self.path / name, nbytes, digest, state, self.trust, copies=self.copies)
        except OSError as error:
            return reason_of(error, missing=ABSENT)

    def used(self, mark: str, *, is_new: bool = False) -> None:
        """Note the time; a new file has it already."""
        mark_used(self.path / mark, keep_time=self.keep_times and not is_new)

    def has(self, name: str) -> bool:
        """Return whether there is a file, or anything else."""
        return os.path.lexists(self._root + name)

    def last_use(self, mark: str) -> float:
        """Return the access time."""
        try:
            return (self.path / mark).stat().st_atime
        except OSError:
            return 0.0


class Memory:
    """Blobs of this process: for builds that leave nothing behind, and where a folder is not used.

    Threads may share it: each step is one of a dictionary's.
    """

    path = Path("memory")
    trust = PRIVATE
    copies = False

    def __init__(self, blobs: Mapping[str, Data] = {}) -> None:
        self._blobs = dict(blobs)

    def get(self, name: str, most: int) -> Data | Reason:
        """Return a blob."""
        data = self._blobs.get(name)
        if data is None:
            return Reason(ABSENT, f"{name} is missing")
        return data if memoryview(data).nbytes <= most else Reason("damaged", f"{name} has more than {most} bytes")

    def put(self, files: Files, linked_from: Path | None = None) -> Reason | None:
        """Add or replace blobs."""
        self._blobs.update(files)
        return None

    def names(self, folder: str = "", at_most: int | None = None) -> tuple[str, ...]:
        """Return the names."""
        found = (name.removeprefix(folder) for name in list(self._blobs) if name.startswith(folder))
        return tuple(sorted(islice(found, at_most)))

    def delete(self, *names: str) -> Reason | None:
        """Remove blobs."""
        for name in names:
            self._blobs.pop(name, None)
        return None

    def mapped(self, name: str, nbytes: int | None, digest: str = "", state: Any = None) -> Mapped | Reason:
        """Return a blob as it is."""
        import numpy as np

        data = self.get(name, sys.maxsize)
        if isinstance(data, Reason):
            return data
        array = np.frombuffer(data, np.uint8)
        if nbytes not in (None, array.nbytes) or (digest and state is None and blake3_of(data) != digest):
            return Reason("damaged", f"{name} is not what was written")
        return array, [name]

    def used(self, mark: str, *, is_new: bool = False) -> None:
        """Do nothing: it ends with the process."""

    def has(self, name: str) -> bool:
        """Return whether there is something under a name."""
        return name in self._blobs

    def last_use(self, mark: str) -> float:
        """Return 0: it is not known."""
        return 0.0


LocalBlobs = Folder | Memory
"""Blobs of this machine, which are mapped rather than read, and age."""


class Memos(Protocol):
    """Small JSON objects that remember something, and whose loss costs only time."""

    def read(self, name: str) -> Mapping[str, Any]:
        """Return the content of a memo; nothing where it cannot be read."""

    def write(self, name: str, content: Mapping[str, Any]) -> Reason | None:
        """Remember something; return None, or why the storage refused."""


class LocalMemos:
    """Memos in blobs of this machine, each with a digest of itself and its place, and signed where there is a key.

    Their names end with a suffix.
    """

    def __init__(self, blobs: LocalBlobs, suffix: str) -> None:
        self._blobs, self._suffix = blobs, suffix

    def read(self, name: str) -> Mapping[str, Any]:
        """Return the content of a memo."""
        stored = self.stored(name)
        return {} if isinstance(stored, Reason) else stored

    def stored(self, name: str) -> Mapping[str, Any] | Reason:
        """Return the content of a memo, or why it is not used."""
        data = self._blobs.get(name + self._suffix, MEMO)
        try:
            return data if isinstance(data, Reason) else self._blobs.trust.parse_memo(self._place(name), data)
        except REFUSED as error:
            return reason_of(error)

    def write(self, name: str, content: Mapping[str, Any]) -> Reason | None:
        """Remember something."""
        data = self._blobs.trust.write_memo(self._place(name), content)
        return self._blobs.put([(name + self._suffix, data)])

    def _place(self, name: str) -> Path:
        return self._blobs.path / (name + self._suffix)
