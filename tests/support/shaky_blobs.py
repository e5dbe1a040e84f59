"""Blobs that fail, as a layer round others."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from opbuild.kernel.reason import Reason
from opbuild.store.blobs import Blobs, Data, Files
from opbuild.store.remote.failures import Transient

PASSES = Transient("refused", "it asks for fewer requests")
"""The failure of a request that may succeed in a moment."""


class Shaky:
    """Blobs whose requests fail before they reach the inner store.

    Args:
        blobs: What is held.
        faults: The failure of each request, None if it does not fail; by default every second one fails, and may pass.

    Attributes:
        requests: How many there were.
    """

    def __init__(self, blobs: Blobs, faults: Iterable[Reason | None] | None = None) -> None:
        self._blobs = blobs
        self._faults = itertools.cycle((PASSES, None)) if faults is None else iter(faults)
        self.requests = 0

    def get(self, name: str, most: int) -> Data | Reason:
        """Return a blob, or the failure."""
        return self._fault() or self._blobs.get(name, most)

    def put(self, files: Files) -> Reason | None:
        """Add or replace blobs, or fail."""
        return self._fault() or self._blobs.put(files)

    def names(self, folder: str = "", at_most: int | None = None) -> tuple[str, ...] | Reason:
        """Return the names, or the failure."""
        return self._fault() or self._blobs.names(folder, at_most)

    def delete(self, *names: str) -> Reason | None:
        """Remove blobs, or fail."""
        return self._fault() or self._blobs.delete(*names)

    def _fault(self) -> Reason | None:
        self.requests += 1
        return next(self._faults)
