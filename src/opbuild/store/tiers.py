"""Tiers: the user's store, and below it stores that are only read; what none of them has is compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from opbuild.kernel.entry import Entry
from opbuild.kernel.interfaces import Found, Missing, Store
from opbuild.kernel.key import Key


class Tier(Protocol):
    """A store that is only read. It can only save work: what it can not read it lacks, and it never raises."""

    def lookup(self, key: Key) -> Found | Missing:
        """Return the entry that serves for ``key``, checked, and what people call this tier; or why there is none."""


class TieredStore:
    """A store that takes what it lacks from tiers below it. Threads may share it if they may share each of them.

    An entry of a tier is lent until it is published here, unless it stays where it is (``Found.stays``).

    Args:
        near: The store that is asked first, and the only one that is written to, listed and emptied.
        tiers: What is asked next, in this order.
    """

    def __init__(self, near: Store, tiers: Sequence[Tier]) -> None:
        self.near = near
        self.tiers = tuple(tiers)

    def lookup(self, key: Key) -> Found | Missing:
        """Return the nearest entry of ``key``; if there is none, why the near store has none."""
        answer = self.near.lookup(key)
        if isinstance(answer, Found):
            return answer
        for tier in self.tiers:
            lent = tier.lookup(key)
            if isinstance(lent, Found):
                return lent
        return answer

    def publish(self, entry: Entry) -> str | None:
        """Add or replace an entry in the near store; return None, or why it could not be stored."""
        return self.near.publish(entry)

    def names(self, at_most: int | None = None) -> tuple[str, ...]:
        """Return the names of the near store's entries, sorted; ``at_most``: the most files to look at."""
        return self.near.names(at_most)

    def last_use(self, name: str) -> float:
        """Return when an entry of the near store was last used, in seconds since the epoch; 0 if that is not known."""
        return self.near.last_use(name)

    def components(self, name: str) -> Mapping[str, Any] | None:
        """Return the key's components of an entry of the near store; None if it can not be read."""
        return self.near.components(name)

    def evict(self, name: str) -> None:
        """Remove an entry from the near store if it is there."""
        self.near.evict(name)
