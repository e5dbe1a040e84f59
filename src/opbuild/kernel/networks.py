"""Built networks and packed weights as stores keep them, without knowing what they hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from opbuild.platform.digest import blake3_of
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
        digest = blake3_of(canonical_json({"format": FORMAT, **self.components}).encode())
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
