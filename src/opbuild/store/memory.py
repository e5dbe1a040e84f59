"""Stores in memory: for builds that must leave nothing behind, and where the cache's folder is not used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from opbuild.kernel.entry import Entry, read_entry
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.key import Key
from opbuild.kernel.networks import Bytes, ImageKey, StoredNetwork, Weight
from opbuild.kernel.reason import Reason
from opbuild.platform.locks import Lock
from opbuild.store.answers import answers_of

if TYPE_CHECKING:
    from opbuild.kernel.answers import Answers


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


class MemoryNetworks:
    """Networks by name. Threads may share it."""

    def __init__(self) -> None:
        self._networks: dict[str, tuple[ImageKey, StoredNetwork]] = {}

    def lookup(self, key: ImageKey) -> StoredNetwork | Reason:
        """Return the network of ``key``."""
        stored, network = self._networks.get(key.stem, (None, None))
        if stored is None or network is None:
            return Reason("absent", "there is none yet")
        if not key.suits(network.compiler):
            return Reason("other-compiler", "another compiler is installed now")
        return network

    def publish(self, key: ImageKey, network: StoredNetwork) -> str | None:
        """Add or replace a network."""
        self._networks[key.stem] = key, network
        return None

    def answers(self, key: ImageKey) -> Iterator[Answers]:
        """Return the answers by which networks were made that differ from ``key`` in tuning alone."""
        alike = (stored for own, stored in self._networks.values() if own.tuned("") == key.tuned(""))
        return (answers for network in alike for answers in answers_of(network.record))

    def note(self, key: ImageKey, states: Mapping[str, Any]) -> None:
        """Do nothing: weights in memory need not be looked at again."""


class MemoryWeights:
    """Weights by digest. Threads may share it."""

    def __init__(self) -> None:
        self._weights: dict[str, Weight] = {}
        self._sources: dict[str, str] = {}

    def get(self, digest: str, nbytes: int, state: Any = None) -> Weight | Reason:
        """Return weights."""
        weight = self._weights.get(digest)
        if weight is None:
            return Reason("absent", "not in the store")
        return weight if weight.array.nbytes == nbytes else Reason("damaged", f"it has not {nbytes} bytes")

    def put(self, digest: str, array: Bytes) -> Weight | Reason:
        """Add weights."""
        return self._weights.setdefault(digest, Weight(digest, array))

    def whole(self, digest: str) -> Weight | Reason:
        """Return weights of whatever size."""
        return self._weights.get(digest) or Reason("absent", "not in the store")

    def find(self, source: str, nbytes: int) -> Weight | Reason:
        """Return what a source was packed to."""
        return self.get(self._sources.get(source, ""), nbytes)

    def remember(self, source: str, weight: Weight) -> str | None:
        """Keep what a source packs to."""
        self._sources[source] = weight.digest
        return None
