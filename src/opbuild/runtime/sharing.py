"""Sharing: of several processes that pack the same weights at once each packs some, and gives them to the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opbuild.kernel.interfaces import PackingClaims

ADVANCE = 1e-3
"""Seconds of the processor by which a process may give more than it has of others: one of its weights."""


class Sharing:
    """The part of a process in packing weights, named by the digests of their sources. Threads may share it.

    What is packed is stored behind a build, for which who is alone does not wait. While others pack the same it is
    stored at once, so that they need not: for as long as that saves this process as much time as it takes. So nobody is
    later than he would be alone, also beside one who was stopped, and the more there are the more is shared. Nobody
    waits, either: what others have begun and not given is packed once all else is.

    Args:
        claims: Says what others pack; None: nobody is asked.
        is_certain: Returns whether the sources are those that their digests name: what is given is believed.
    """

    def __init__(self, claims: PackingClaims | None = None, is_certain: Callable[[], bool] = lambda: True) -> None:
        self._claims, self._is_certain = claims, is_certain
        self._own, self._others, self._has_met = set[str](), set[str](), False
        self._balance, self._packed_seconds, self._packed_bytes = ADVANCE, 0.0, 0
        self._counting = threading.Lock()

    def begin(self, source: str) -> bool:
        """Return whether this process packs a source; else another does just now, or has it in memory."""
        if self._claims is None or source in self._own:
            return True
        is_own = self._claims.take(source)
        (self._own if is_own else self._others).add(source)
        self._has_met = self._has_met or not is_own
        return is_own

    def end(self, source: str) -> None:
        """Note that a source needs to be packed no longer."""
        if self._claims is not None and source in self._own:
            self._own.discard(source)
            self._claims.give(source)

    def is_own(self, source: str) -> bool:
        """Return whether this process said that it packs a source."""
        return source in self._own

    def came(self, source: str, nbytes: int) -> None:
        """Note that a source was found packed, perhaps by another process that said so."""
        self.end(source)
        if source in self._others:
            self._others.discard(source)
            with self._counting:
                self._balance += self._packed_seconds * nbytes / max(1, self._packed_bytes)

    def packed(self, nbytes: int, seconds: float) -> None:
        """Note how long packing took."""
        with self._counting:
            self._packed_seconds += seconds
            self._packed_bytes += nbytes

    @property
    def gives(self) -> bool:
        """Whether others pack the same, and have given enough."""
        return self._has_met and self._balance > 0 and self._is_certain()

    def gave(self, seconds: float) -> None:
        """Note how long it took to give something to others."""
        with self._counting:
            self._balance -= seconds

    def close(self) -> None:
        """End it: nothing is left to be given."""
        if self._claims is not None:
            self._claims.close()
            self._claims = None
