"""Explaining: why an operator that is not in the store is new, by comparing its key with the nearest entry's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opbuild.kernel.difference import distance, first_change
from opbuild.kernel.interfaces import Reason, Store
from opbuild.kernel.key import Key, file_op_type

READ_AT_MOST = 64
"""Entries read for one operator type in a build: enough to be helpful, and little beside what a compile takes."""


class Explainer:
    """Finds for keys that a store lacks the entry that comes nearest. Reads each entry's ``.info`` at most once.

    Args:
        store: Where to look.
        others: Returns stores of other targets, where to look if ``store`` has nothing of an operator's type.
        read_at_most: Entries read for one operator type; None for all.
    """

    def __init__(
        self, store: Store, others: Callable[[], Sequence[Store]] = list, read_at_most: int | None = READ_AT_MOST
    ) -> None:
        self._stores = [store]
        self._others: Callable[[], Sequence[Store]] | None = others
        self._read_at_most = read_at_most
        self._names: dict[int, dict[str, list[str]]] = {}
        self._read: dict[tuple[int, str], list[tuple[str, Mapping[str, Any]]]] = {}

    def explain(self, key: Key, reason: Reason) -> Reason:
        """Return a reason that names the first field which differs from the nearest entry.

        Args:
            key: The key that was looked up.
            reason: The store's answer; only ``absent`` can be explained further.
        """
        if reason.code != "absent":
            return reason
        op_type = file_op_type(key.components["op_types"])
        for number in self._numbers():
            candidates = self._candidates(number, op_type)
            if candidates:
                name, nearest = min(candidates, key=lambda item: (distance(item[1], key.components), item[0]))
                change = first_change(nearest, key.components)
                return Reason("changed", f"{change} since {name}") if change else reason
        return reason

    def _numbers(self) -> Iterator[int]:
        yield 0
        if self._others is not None:
            self._stores += self._others()
            self._others = None
        yield from range(1, len(self._stores))

    def _candidates(self, number: int, op_type: str) -> Sequence[tuple[str, Mapping[str, Any]]]:
        place = (number, op_type)
        if place not in self._read:
            names = self._by_type(number).get(op_type, [])[: self._read_at_most]
            found = ((name, self._stores[number].components(name)) for name in names)
            self._read[place] = [(name, components) for name, components in found if components is not None]
        return self._read[place]

    def _by_type(self, number: int) -> dict[str, list[str]]:
        if number not in self._names:
            self._names[number] = {}
            for name in self._stores[number].names():
                self._names[number].setdefault(name.rsplit("_", 2)[0], []).append(name)
        return self._names[number]
