"""Sharing: of several processes that pack the same weights at once each packs some, and gives them to the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from opbuild.platform.files.shared_pages import map_shared_pages, shared_descriptor

if TYPE_CHECKING:
    from opbuild.graph.types import Array
    from opbuild.kernel.interfaces import PackingClaims

LEAST_PATIENCE = 0.02
"""Seconds for which it is waited at least for what another process packs."""

_PATIENCE = 2
"""How many times longer another may take to pack something than this process would."""


class Sharing:
    """The part of a process in packing weights, named by the digests of their sources. Threads may share it.

    Who meets others packs into pages that these can map, and offers what it packed before, a copy, as long as as many
    bytes come from them. What another has begun is waited for as long as packing it here would take twice, from when it
    was met on, so nobody waits long for one who was stopped. Who is alone packs into pages of its own.

    Args:
        claims: Says what others pack; None: nobody is asked.
        is_certain: Returns whether the sources are those that their digests name: what is given is believed.
        clock: Returns seconds.
    """

    def __init__(
        self,
        claims: PackingClaims | None = None,
        is_certain: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._claims, self._is_certain, self._clock = claims, is_certain, clock
        self._own = set[str]()
        self._met: dict[str, float] = {}  # when each source of others was met
        self._balance = self._packed_bytes = 0
        self._packed_seconds = 0.0
        self._counting = threading.Lock()

    def begin(self, source: str) -> bool:
        """Return whether this process packs a source; else another does just now, or has it in memory."""
        if self._claims is None or source in self._own or not self._is_certain():
            return True
        if self._claims.take(source):
            self._own.add(source)
            return True
        self._met.setdefault(source, self._clock())
        return False

    def end(self, source: str) -> None:
        """Note that a source needs to be packed no longer."""
        if self._claims is not None and source in self._own:
            self._own.discard(source)
            self._claims.give(source)

    def is_own(self, source: str) -> bool:
        """Return whether this process said that it packs a source."""
        return source in self._own

    def is_due(self, source: str, nbytes: int) -> bool:
        """Return whether another who packs a source is to be waited for no longer."""
        with self._counting:
            cost = self._packed_seconds * nbytes / max(1, self._packed_bytes)
        return self._clock() - self._met.get(source, 0.0) >= LEAST_PATIENCE + _PATIENCE * cost

    def packed(self, nbytes: int, seconds: float) -> None:
        """Note how long packing took."""
        with self._counting:
            self._packed_seconds += seconds
            self._packed_bytes += nbytes

    @property
    def gives(self) -> bool:
        """Whether others pack the same, and may have what this process packs."""
        return bool(self._met) and self._claims is not None and self._is_certain()

    @property
    def owes(self) -> bool:
        """Whether at least as much came from others as was copied for them."""
        return self._balance <= 0

    def offer(self, source: str, pages: Array, *, is_copy: bool = False) -> bool:
        """Let others map what a source packs to; return whether they may, and the pages are shared ones."""
        descriptor = shared_descriptor(pages) if self.gives else None
        if self._claims is None or descriptor is None:
            return False
        self._claims.offer(source, descriptor)
        with self._counting:
            self._balance += pages.nbytes * is_copy
        return True

    def take(self, source: str, nbytes: int) -> Array | None:
        """Return the packed bytes that another process offers for a source, if any does."""
        offered = self._claims.offered(source) if self._claims is not None and source in self._met else None
        pages = None if offered is None else map_shared_pages(*offered, source, nbytes)
        if pages is not None:
            with self._counting:
                self._balance -= nbytes
        return pages

    def close(self) -> None:
        """End it: nothing is left to be given."""
        if self._claims is not None:
            self._claims.close()
            self._claims = None
