"""Operators of a remote store that a host asks for once: its processes and ranks take one another's answers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from opbuild.kernel.interfaces import Found, Missing, Store
from opbuild.kernel.key import Key
from opbuild.kernel.reason import Reason
from opbuild.platform.records import replace
from opbuild.store.flights import Flights
from opbuild.store.remote.failures import ABSENT
from opbuild.store.remote.operators import RemoteStore, missing

_KEPT = "kept "
"""What a turn ends with where all that there is was kept, and what it was."""

_DIGITS = 32


class SingleFlight:
    """A remote store which of several processes that lack the same operators one asks. Threads may share it.

    Args:
        near: Where what it gives is put at once, and found by the others.
        remote: The remote store.
        turns: Whose turn it is.
    """

    def __init__(self, near: Store, remote: RemoteStore, turns: Flights) -> None:
        self._near, self._remote, self._turns = near, remote, turns

    def lookup(self, key: Key) -> Found | Missing:
        """Return the entry of ``key`` as ``RemoteStore.lookup`` does; one that another process was given is near."""
        return self.lookup_all([key])[0]

    def lookup_all(self, keys: Sequence[Key]) -> list[Found | Missing]:
        """Return the answer of ``lookup`` for each of several keys, asked for together.

        Several are asked for by one process at a time, whatever they are: another one may have found some already.
        """
        wanted = _digest(keys)
        with self._turns.turn(f"fetch_{wanted if len(keys) == 1 else 'operators'}") as turn:
            answers = [self._looked_up_near(key) for key in keys]
            if turn.said != _KEPT + wanted:
                lacking = [number for number, answer in enumerate(answers) if isinstance(answer, Missing)]
                asked = self._remote.lookup_all([keys[number] for number in lacking]) if lacking else []
                for number, answer in zip(lacking, asked, strict=True):
                    answers[number] = self._kept(answer)
            if all(_is_final(answer) for answer in answers):
                turn.end(_KEPT + wanted)
        return answers

    def origins(self, keys: Sequence[Key]) -> list[Mapping[str, str]]:
        """Return the origins of operators that the remote store remembers."""
        return self._remote.origins(keys)

    def _looked_up_near(self, key: Key) -> Found | Missing:
        found = self._near.lookup(key)
        return self._kept(found) if isinstance(found, Found) else missing(Reason(ABSENT, ""))

    def _kept(self, answer: Found | Missing) -> Found | Missing:
        """Put an entry where others find it, before they may look."""
        if isinstance(answer, Found) and self._near.publish(answer.entry) is None:
            return replace(answer, is_kept=True)
        return answer


def _is_final(answer: Found | Missing) -> bool:
    """Return whether nobody else needs to ask."""
    return answer.is_kept if isinstance(answer, Found) else answer.reason.code == ABSENT


def _digest(keys: Sequence[Key]) -> str:
    return hashlib.sha256(" ".join(sorted(key.sha256 for key in keys)).encode()).hexdigest()[:_DIGITS]
