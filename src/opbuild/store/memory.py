"""A store in memory: for tests, and for builds that must leave nothing behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from opbuild.kernel.entry import Entry, read_entry
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.key import Key
from opbuild.kernel.reason import Reason
from opbuild.platform.locks import Lock


class MemoryStore:
    """Entries by name. Threads may share it."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._lock = Lock()

    def lookup(self, key: Key) -> Found | Missing:
        """Return the entry of ``key``, whichever device built it."""
        with self._lock:
            entry = next((entry for name, entry in self._entries.items() if name.rpartition("_")[0] == key.stem), None)
        if entry is None:
            return Missing(Reason("absent", "not in the store"))
        read = read_entry(key, entry.name, entry.object, entry.info, entry.record)
        return Missing(read) if isinstance(read, Reason) else Found(read)

    def origins(self, keys: Sequence[Key]) -> list[Mapping[str, str]]:
        """Return for each of several operators the sources that it was compiled from, by what these defined."""
        with self._lock:
            known = [(Key(entry.info["key"]["components"], ""), entry.pipeline) for entry in self._entries.values()]
        return [
            {pipeline: each.origin for each, pipeline in known if pipeline and each.operator == key.operator}
            for key in keys
        ]

    def publish(self, entry: Entry) -> str | None:
        """Add or replace an entry."""
        with self._lock:
            self._entries[entry.name] = entry
        return None

    def names(self, at_most: int | None = None) -> tuple[str, ...]:
        """Return the names of the entries present, or of so many, sorted."""
        with self._lock:
            return tuple(sorted(islice(self._entries, at_most)))

    def last_use(self, name: str) -> float:
        """Return 0: it is not known."""
        return 0.0

    def components(self, name: str) -> Mapping[str, Any] | None:
        """Return the key's components of the entry ``name``; None if it is not there."""
        with self._lock:
            entry = self._entries.get(name)
        components = entry.info.get("key", {}).get("components") if entry else None
        return components if isinstance(components, Mapping) else None

    def evict(self, name: str) -> None:
        """Remove an entry if it is there."""
        with self._lock:
            self._entries.pop(name, None)
