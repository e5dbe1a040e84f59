"""Stores of networks and of packed weights in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opbuild.kernel.answers import Answers
from opbuild.kernel.networks import Bytes, ImageKey, StoredNetwork, Weight
from opbuild.kernel.reason import Reason
from opbuild.store.answers import answers_of


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

    def find(self, source: str, nbytes: int) -> Weight | Reason:
        """Return what a source was packed to."""
        return self.get(self._sources.get(source, ""), nbytes)

    def remember(self, source: str, weight: Weight) -> str | None:
        """Keep what a source packs to."""
        self._sources[source] = weight.digest
        return None
