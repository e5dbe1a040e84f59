"""Operators: ``kernel_meta``, three blobs an entry.

Constraints, and how the format meets them:

* A look-up costs a few opens and one digest, whatever the number of entries: files are opened by name, nothing is
  scanned, there is no index that could disagree with the files, and no lock that a dead process could hold.
* Any number of processes on any number of hosts may write: all contents are checked on reading (the whole key in
  ``.info``, the object's digest in ``.json``, ``.json`` against the object), so files of two writers never load as one
  entry.
* A fault of the storage is never a fault of the build: a look-up answers ``Missing``, a publish says why it failed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from opbuild.kernel.entry import MILLISECONDS, SUFFIXES, Entry, check_entry_signature, read_entry, sign_entry
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.key import KEY_FORMAT, Key, key_digest
from opbuild.kernel.reason import Reason
from opbuild.platform.files.trust import ENTRY, PRIVATE, RECORD, SignatureError, Trust, parse_json
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass
from opbuild.store.blobs import ABSENT, Blobs, Folder, LocalBlobs, LocalMemos
from opbuild.store.hints import ORIGINS_SUFFIX, Origins
from opbuild.store.items import REFUSED, FileForm, reason_of

OTHER_DEVICES = 16
"""Entries that devices 0 to 15 built are found by every device: code does not depend on the device that built it."""

MOST_REFUSED = 256
"""Entries that stay in memory where the storage refuses them, so that this process need not compile them again."""

_REPLACING_SECONDS = 0.002
"""How long a replacement under way may take to show its last file; it takes three renames."""

_MARK = SUFFIXES[-1]

ENTRIES = FileForm("operator", (".json", ".o", ".info"), r"[a-z0-9_]+_[0-9]+_[0-9]+", marked=True)
"""An entry's files; the folder may hold others."""

ENTRIES_BESIDE_NETWORKS = ENTRIES._replace(needs=frozenset({".o", ".info"}))
"""Those of the compiler's runtime library, in a folder where networks have such names too."""


class Operators:
    """Entries as blobs of this machine. Threads and processes may share it.

    Args:
        blobs: Where they lie.
        device_id: The device that builds; its own entries are looked for first.
        beside: Where it is remembered what they were compiled from; default: with them.
    """

    def __init__(self, blobs: LocalBlobs, device_id: int = 0, beside: LocalBlobs | None = None) -> None:
        self.blobs = blobs
        self.device_id = device_id
        self._origins = Origins(LocalMemos(beside or blobs, ORIGINS_SUFFIX))
        self._refused: dict[str, Entry] = {}

    def lookup(self, key: Key) -> Found | Missing:
        """Return the entry of ``key``, checked byte for byte, or why there is none.

        Codes of the reason: ``absent``, ``incomplete`` (a file is missing), ``unreadable`` (the storage refused),
        ``damaged`` (a file is not what was written), ``other-key`` (the files belong to another key), ``untrusted``
        (others can write to the folder or a file), ``unsigned`` and ``wrong-signature`` (where there is a key).
        """
        answer = self._lookup_devices(key)
        if isinstance(answer, Missing) and answer.reason.code not in ("absent", "untrusted"):
            time.sleep(_REPLACING_SECONDS)  # another process may be replacing the entry just now
            answer = self._lookup_devices(key)
        if isinstance(answer, Found):
            self.blobs.used(answer.entry.name + _MARK)
            return answer
        refused = self._refused.get(key.sha256)
        return answer if refused is None else Found(refused)

    def publish(self, entry: Entry, linked_from: Path | None = None) -> str | None:
        """Add or replace an entry; return None, or why the storage refused or others can write to it.

        Files that another store's folder has, too, are linked where they can be.
        """
        files = sign_entry(entry, self.blobs.trust).files()
        for name, content in files:
            if len(content) > ENTRY[Path(name).suffix]:
                return f"{name} has {len(content)} bytes, more than a look-up reads"
        if entry.pipeline:
            self._origins.note(entry.key, entry.pipeline)  # before the entry: one without it would never get it
        problem = self.blobs.put(files, linked_from)
        if problem is not None:
            if len(self._refused) >= MOST_REFUSED:
                self._refused.clear()
            self._refused[entry.key.sha256] = entry
            return problem.text
        self.blobs.used(entry.name + _MARK, is_new=True)
        return None

    def origins(self, keys: Sequence[Key]) -> list[Mapping[str, str]]:
        """Return for each of several operators the sources that it was compiled from, by their pipelines."""
        return [self._origins.known(key) for key in keys]

    def note_origin(self, key: Key, pipeline: str) -> None:
        """Remember the pipeline of an operator's sources, as it is of published entries."""
        self._origins.note(key, pipeline)

    def names(self, at_most: int | None = None) -> tuple[str, ...]:
        """Return the names of the entries present, sorted; private files of dead writers are removed on the way.

        Args:
            at_most: Files to look at, three of each entry, in the folder's own order; None: all.
        """
        found = self.blobs.names(at_most=at_most)
        names = [name.removesuffix(_MARK) for name in found if name.endswith(_MARK)] if isinstance(found, tuple) else []
        return tuple(name for name in sorted(names) if ENTRIES.fits(name, SUFFIXES))

    def names_of(self, stem: str) -> list[str]:
        """Return the names of the entries that devices have of a name without device, one's own first."""
        devices = [self.device_id, *(each for each in range(OTHER_DEVICES) if each != self.device_id)]
        return [name for name in (f"{stem}_{each}" for each in devices) if self.blobs.has(name + _MARK)]

    def last_use(self, name: str) -> float:
        """Return the time of an entry's last use, in seconds since the epoch; 0 if it is gone."""
        return self.blobs.last_use(name + _MARK)

    def components(self, name: str) -> Mapping[str, Any] | None:
        """Return the key's components as the entry's ``.info`` states them; None if it cannot be read."""
        info = self.blobs.get(f"{name}.info", RECORD)
        try:
            components = None if isinstance(info, Reason) else parse_json(bytes(info))["key"]["components"]
        except (ValueError, KeyError, TypeError):
            return None
        return components if isinstance(components, Mapping) else None

    @property
    def listed(self) -> Operators:
        """Themselves."""
        return self

    def _lookup_devices(self, key: Key) -> Found | Missing:
        own = self._lookup_name(key, key.name(self.device_id))
        if isinstance(own, Found):
            return own
        for device in range(OTHER_DEVICES):
            name = key.name(device)
            if device != self.device_id and self.blobs.has(name + _MARK):
                other = self._lookup_name(key, name)
                if isinstance(other, Found):
                    return other
        return own

    def _lookup_name(self, key: Key, name: str) -> Found | Missing:
        entry = entry_in(self.blobs, name, key)
        return Missing(entry) if isinstance(entry, Reason) else Found(entry)


def operators_in(
    folder: str | os.PathLike[str], device_id: int = 0, *, keep_times: bool = False, trust: Trust = PRIVATE
) -> Operators:
    """Return the operators in a folder; see ``Folder``.

    What they were compiled from is remembered in ``network_meta``, beside the folder or in it.
    """
    blobs = Folder(folder, trust, keep_times=keep_times)
    is_beside = blobs.path.name in ("kernel_meta", "network_meta")
    beside = (blobs.path.parent if is_beside else blobs.path) / "network_meta"
    return Operators(blobs, device_id, blobs if beside == blobs.path else Folder(beside, trust))


@dataclass(frozen=True)
class Summary:
    """One entry as its records describe it, unchecked.

    Attributes:
        op_types: The operator's types, joined.
        target: The level that it is for.
        variant: How it is computed.
        milliseconds: How long compiling took.
        components: The key's components.
        node: The node that first asked for it.
    """

    op_types: str
    target: str
    variant: str
    milliseconds: float
    components: dict[str, Any]
    node: str

    @property
    def is_of_another_release(self) -> bool:
        """Whether a release of opbuild stored it whose keys mean something else, so that no build finds it."""
        return bool(self.components) and self.components.get("format") != KEY_FORMAT


def summarize(blobs: Blobs, name: str) -> Summary:
    """Return a summary of an entry's records; fields that cannot be read are left empty."""
    info, record = _json(blobs, f"{name}.info"), _json(blobs, f"{name}.json")
    components = _mapping(_mapping(info.get("key")).get("components"))
    types, milliseconds = components.get("op_types"), record.get(MILLISECONDS)
    return Summary(
        op_types=" ".join(map(str, types)) if isinstance(types, list) else "",
        target=str(components.get("target", "")),
        variant=" ".join(f"{key}={value}" for key, value in _mapping(components.get("variant")).items()),
        milliseconds=float(milliseconds) if isinstance(milliseconds, (int, float)) else 0.0,
        components=components,
        node=str(_mapping(info.get("op_info")).get("full_name", "")),
    )


def entry_in(blobs: LocalBlobs, name: str, key: Key | None = None) -> Entry | Reason:
    """Return the entry of a name, checked byte for byte, or its problem.

    It must be the entry of the key; None: of what its own ``.info`` asks for.
    """
    contents: dict[str, bytes] = {}
    for suffix in reversed(SUFFIXES):  # the commit mark first
        data = blobs.get(name + suffix, ENTRY[suffix])
        if isinstance(data, Reason):
            is_absent = data.code == ABSENT
            return (
                _missing_file(blobs, name, suffix) if is_absent else data._replace(text=data.text.replace(name, "", 1))
            )
        contents[suffix] = bytes(data)
    entry = entry_of(name, contents, key)
    if isinstance(entry, Entry):
        try:
            check_entry_signature(entry, blobs.trust)
        except SignatureError as error:
            return reason_of(error)
    return entry


def entry_of(name: str, contents: Mapping[str, bytes], key: Key | None = None) -> Entry | Reason:
    """Return the entry that the contents of three files, by suffix, make, or its problem.

    Codes of the reason are those of a look-up, and ``other-format`` for an entry of another release of opbuild.
    """
    try:
        object_, info, record = (contents[suffix] for suffix in SUFFIXES)
        asked, came_out = parse_json(info), parse_json(record)
        if key is None:
            components = asked["key"]["components"]
            if components["format"] != KEY_FORMAT:
                return Reason("other-format", f"it has the key format {components['format']} of another release")
            key = Key(components, key_digest(components))
            if name.rpartition("_")[0] != key.stem:
                return Reason("other-key", f"its key belongs to {key.stem}")
        return read_entry(key, name, object_, asked, came_out)
    except REFUSED:
        return Reason("damaged", "a record is not what was written")


def _missing_file(blobs: LocalBlobs, name: str, missing: str) -> Reason:
    present = [suffix for suffix in SUFFIXES if blobs.has(name + suffix)]
    if not present:
        return Reason(ABSENT, "not in the store")
    return Reason("incomplete", f"{missing} is missing beside {' and '.join(present)}")


def _json(blobs: Blobs, name: str) -> dict[str, Any]:
    data = blobs.get(name, RECORD)
    try:
        return {} if isinstance(data, Reason) else _mapping(parse_json(bytes(data)))
    except ValueError:
        return {}


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
