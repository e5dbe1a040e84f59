"""What the runtime asks of the stores of built networks and of packed weights; they know nothing of what they keep.

A store can only save work: it answers with a ``Reason`` where there is nothing that may be used, whatever the storage
does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from opbuild.kernel.reason import Reason
from opbuild.platform.digest import fast
from opbuild.text.canonical import canonical_json

Bytes = npt.NDArray[np.uint8]

FORMAT = 2
"""Raised whenever the meaning of what is stored changes; it is part of the key."""


class ImageKey(NamedTuple):
    """What a stored network was made from.

    Attributes:
        network: The network's name, for the files' names.
        components: Named JSON values: the model, its input signature, options, opbuild itself, the target.
        compiler: Identity of the compiler that is installed; empty if none is, and then any image's will do.
    """

    network: str
    components: Mapping[str, Any]
    compiler: str = ""

    @property
    def stem(self) -> str:
        """The network's name in its store: ``<network>_<number>``, the first 64 bits of the key's digest."""
        digest = fast(canonical_json({"format": FORMAT, **self.components}).encode())
        name = re.sub(r"[^a-z0-9_]+", "_", self.network.lower())[:60].strip("_") or "network"
        return f"{name}_{int(digest[:16], 16)}"


class StoredNetwork(NamedTuple):
    """A network as it is stored.

    Attributes:
        record: JSON values; weights are named by their digests, as texts.
        library: Its shared library.
        constants: The bytes of all constants that are not kept as weights.
        states: By digest, what the store of weights said of each the last time: see ``Weight``.
    """

    record: Any
    library: bytes
    constants: Bytes
    states: Mapping[str, Any] = {}


class Weight(NamedTuple):
    """Packed weights.

    Attributes:
        digest: BLAKE3 of the bytes.
        array: The bytes.
        state: A JSON value by which the store knows the next time that nobody touched them; None: it will look again.
    """

    digest: str
    array: Bytes
    state: Any = None


class NetworkStore(Protocol):
    """Where networks are kept."""

    def lookup(self, key: ImageKey) -> StoredNetwork | Reason:
        """Return the network of ``key``, library and constants checked byte for byte, or why there is none."""

    def publish(self, key: ImageKey, network: StoredNetwork) -> str | None:
        """Add or replace a network so that nobody ever sees part of it; return None, or why it could not be stored."""

    def note(self, key: ImageKey, states: Mapping[str, Any]) -> None:
        """Keep new states of a network's weights; lost ones only cost reading the weights once more."""


class WeightStore(Protocol):
    """Where packed weights are kept, by the digest of their bytes, each once for all networks."""

    def get(self, digest: str, nbytes: int, state: Any = None) -> Weight | Reason:
        """Return weights, checked by their digest unless ``state`` says that they were.

        Args:
            digest: BLAKE3 of the bytes.
            nbytes: Their number.
            state: What the store said of them before.
        """

    def put(self, digest: str, array: Bytes) -> Weight | Reason:
        """Add weights; return them as they are stored, or why they are not.

        Args:
            digest: BLAKE3 of the bytes.
            array: The bytes.
        """

    def find(self, source: str, nbytes: int) -> Weight | Reason:
        """Return what a source was packed to, as ``remember`` was told, checked as by ``get``."""

    def remember(self, source: str, weight: Weight) -> str | None:
        """Write down what a source, named by a digest, packs to; return None, or why it could not be."""
