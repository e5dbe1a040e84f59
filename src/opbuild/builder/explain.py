"""Explaining: why an operator that is not in the store is new, by comparing its key with the nearest entry's.

The nearest entry is looked for among some of the same operator type: a build must not take longer because a store holds
more. Of a store that holds more than a build looks at, any are taken, and of those the ones that were used last: the
operator that somebody has just edited was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opbuild.families.catalogue import with_implied
from opbuild.kernel.difference import distance, fields, first_change
from opbuild.kernel.interfaces import Store
from opbuild.kernel.key import Key, file_op_type
from opbuild.kernel.reason import Reason
from opbuild.platform.records import NamedTuple, dataclass


@dataclass(frozen=True)
class Effort:
    """The limits of a search for the nearest entry; None: all is looked at.

    Attributes:
        files: Names of files listed, in all stores together.
        times: Entries of one operator type whose last use is asked for, where there are more than are read.
        reads: Entries of one operator type that are read.
    """

    files: int | None
    times: int | None
    reads: int


IN_A_BUILD = Effort(files=30_000, times=512, reads=64)
"""Enough to be helpful, and little beside what a compile takes: all of 10,000 entries are listed in 25 ms."""

WHEN_ASKED = Effort(files=None, times=None, reads=1024)
"""For somebody who asks for the reasons and for nothing else."""


class _Candidate(NamedTuple):
    """An entry that may be the nearest: its name, its key's components, and their fields."""

    name: str
    components: Mapping[str, Any]
    fields: Mapping[str, str] | None


class Explainer:
    """Finds for keys that a store lacks the entry that comes nearest. Lists a store and reads an ``.info`` once.

    Args:
        store: Where to look.
        others: Returns stores of other levels, where to look if ``store`` has nothing of an operator's type.
        effort: How much to look at.
    """

    def __init__(self, store: Store, others: Callable[[], Sequence[Store]] = list, effort: Effort = IN_A_BUILD) -> None:
        self._stores = [store.listed]
        self._others: Callable[[], Sequence[Store]] | None = others
        self._effort = effort
        self._files_left = effort.files
        self._names: dict[int, dict[str, list[str]]] = {}
        self._read: dict[tuple[int, str], list[_Candidate]] = {}

    def explain(self, key: Key, reason: Reason) -> Reason:
        """Return a reason that names the first field that differs from the nearest entry, if it is ``absent``."""
        if reason.code != "absent":
            return reason
        op_type = file_op_type(key.components["op_types"])
        for number in self._numbers():
            candidates = self._candidates(number, op_type)
            if candidates:
                asked = with_implied(key.components)
                wanted = fields(asked)
                nearest = min(candidates, key=lambda each: (distance(each.fields, wanted), each.name))
                change = first_change(nearest.components, asked)
                changed = f"{change} since {nearest.name}"
                return reason._replace(code="changed", text=changed) if change else reason
        return reason

    def _numbers(self) -> Iterator[int]:
        yield 0
        if self._others is not None:
            self._stores += [each.listed for each in self._others()]
            self._others = None
        yield from range(1, len(self._stores))

    def _candidates(self, number: int, op_type: str) -> Sequence[_Candidate]:
        place = (number, op_type)
        if place not in self._read:
            store = self._stores[number]
            read = ((name, store.components(name)) for name in self._chosen(number, op_type))
            found = ((name, with_implied(each)) for name, each in read if each is not None)
            self._read[place] = [_Candidate(name, each, fields(each)) for name, each in found]
        return self._read[place]

    def _chosen(self, number: int, op_type: str) -> Sequence[str]:
        """Return the names of the entries to read: those of a type, or the ones of them that were used last."""
        names = self._by_type(number).get(op_type, [])
        if len(names) <= self._effort.reads:
            return names
        last_use = self._stores[number].last_use
        return sorted(names[: self._effort.times], key=last_use, reverse=True)[: self._effort.reads]

    def _by_type(self, number: int) -> dict[str, list[str]]:
        if number not in self._names:
            self._names[number] = {}
            names = self._stores[number].names(self._files_left)
            if self._files_left is not None:
                self._files_left = max(0, self._files_left - 3 * len(names))
            for name in names:
                self._names[number].setdefault(name.rsplit("_", 2)[0], []).append(name)
        return self._names[number]
