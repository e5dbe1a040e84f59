"""Tiers: the user's store, and below it stores that are only read; entries that none of them has are compiled."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opbuild.kernel.entry import Entry
from opbuild.kernel.interfaces import Found, Looks, Missing, Store, look_up, note_origin, origins
from opbuild.kernel.key import Key
from opbuild.platform.paths import Path
from opbuild.platform.records import replace


class TieredStore:
    """A store that takes what it lacks from tiers below it. Threads may share it if they may share each of them.

    An entry of a tier is lent until it is published here, unless it stays where it is (``Found.stays``). What was lent
    is not offered: it came from there, or who lends it has offered it.

    Args:
        near: The store that is asked first, and the only one that is written to, listed and emptied.
        tiers: What is asked next, in this order, and only read. They can only save work: none raises.
        offer: Told of each entry that is published.
        known: Told of each entry that the near store had.
    """

    def __init__(
        self,
        near: Store,
        tiers: Sequence[Looks],
        offer: Callable[[Entry], None] | None = None,
        known: Callable[[Entry], None] | None = None,
    ) -> None:
        self.near = near
        self._known = known
        self.tiers = tuple(tiers)
        self._offer = offer
        self._lent: set[str] = set()
        self._kept: dict[str, str] = {}
        self._linkable: dict[str, tuple[Entry, Path]] = {}

    def lookup(self, key: Key) -> Found | Missing:
        """Return the nearest entry of ``key``; if there is none, why the near store has none."""
        return self.lookup_all([key])[0]

    def lookup_all(self, keys: Sequence[Key]) -> list[Found | Missing]:
        """Return the answer of ``lookup`` for each of several keys; each tier is asked at once for all it may have."""
        answers = [self._named(answer) for answer in look_up(self.near, keys)]
        if self._known is not None:
            for answer in answers:
                if isinstance(answer, Found) and not answer.source:
                    self._known(answer.entry)
        for tier in self.tiers:
            lacking = [number for number, answer in enumerate(answers) if isinstance(answer, Missing)]
            lent = look_up(tier, [keys[number] for number in lacking]) if lacking else []
            for number, answer in zip(lacking, lent, strict=True):
                answers[number] = answer if isinstance(answer, Found) else _both(answers[number], answer)
                if isinstance(answer, Found) and answer.is_kept:
                    self._kept[answer.entry.sha256] = answer.source
                if isinstance(answer, Found) and answer.folder is not None:
                    self._linkable[answer.entry.name] = answer.entry, answer.folder
        self._lent.update(each.entry.sha256 for each in answers if isinstance(each, Found) and each.is_lent)
        return answers

    def origins(self, keys: Sequence[Key]) -> list[Mapping[str, str]]:
        """Return the origins of operators that the near store and the tiers remember."""
        known = [origins(store, keys) for store in (self.near, *self.tiers)]
        return [dict(ChainMap(*map(dict, each))) for each in zip(*known, strict=True)]

    def note_origin(self, key: Key, pipeline: str) -> None:
        """Let the near store remember the pipeline of an operator's sources."""
        note_origin(self.near, key, pipeline)

    def publish(self, entry: Entry, linked_from: Path | None = None) -> str | None:
        """Add or replace an entry in the near store, and offer it; return None, or why it could not be stored.

        That of a tier with files is linked if that is possible.
        """
        if self._offer is not None and entry.sha256 not in self._lent:
            self._offer(entry)
        lent, folder = self._linkable.pop(entry.name, (None, None))
        return self.near.publish(entry, linked_from or (folder if lent is entry else None))

    def _named(self, answer: Found | Missing) -> Found | Missing:
        """Return the near store's answer; an entry put there by a tier since this store was opened is the tier's."""
        source = "" if isinstance(answer, Missing) else self._kept.get(answer.entry.sha256, "")
        return replace(answer, source=source, is_kept=True) if isinstance(answer, Found) and source else answer

    def names(self, at_most: int | None = None) -> tuple[str, ...]:
        """Return the names of the near store's entries, sorted; ``at_most``: the most files to look at."""
        return self.near.names(at_most)

    def last_use(self, name: str) -> float:
        """Return the time of the last use of an entry of the near store, in seconds since the epoch; 0 if unknown."""
        return self.near.last_use(name)

    def components(self, name: str) -> Mapping[str, Any] | None:
        """Return the key's components of an entry of the near store; None if it cannot be read."""
        return self.near.components(name)

    def evict(self, name: str) -> None:
        """Remove an entry from the near store if it is there."""
        self.near.evict(name)


def _both(own: Found | Missing, other: Missing) -> Found | Missing:
    """Return the reason that the near store has no entry, with a tier's word on itself."""
    if isinstance(own, Found) or not other.reason.elsewhere:
        return own
    return Missing(own.reason._replace(elsewhere=other.reason.elsewhere))
