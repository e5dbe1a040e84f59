"""Explaining: why an operator that is not in the store is new, by comparing its key with the nearest entry's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opbuild.kernel.interfaces import Reason, Store
from opbuild.kernel.key import Key, file_op_type
from opbuild.kernel.opdesc import canonical_json

_READ_AT_MOST = 64
"""Entries read for one operator type: enough to be helpful, little enough to cost nothing beside a compile."""


class Explainer:
    """Finds for keys that a store lacks the entry that comes nearest. Reads each entry's ``.info`` at most once.

    Args:
        store: Where to look.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: dict[str, list[str]] | None = None
        self._read: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}

    def explain(self, key: Key, reason: Reason) -> Reason:
        """Return a reason that names the first field which differs from the nearest entry.

        Args:
            key: The key that was looked up.
            reason: The store's answer; only ``absent`` can be explained further.
        """
        if reason.code != "absent":
            return reason
        op_type = file_op_type(key.components["op_types"])
        candidates = self._candidates(op_type)
        if not candidates:
            return Reason("absent", f"the store has no {op_type} yet")
        name, nearest = min(candidates, key=lambda item: (_distance(key.components, item[1]), item[0]))
        components = Key(nearest, "")
        difference = components.first_difference(key)
        return Reason("changed", f"{difference} since {name}") if difference else reason

    def _candidates(self, op_type: str) -> Sequence[tuple[str, Mapping[str, Any]]]:
        if op_type not in self._read:
            found = ((name, self._store.components(name)) for name in self._by_type().get(op_type, [])[:_READ_AT_MOST])
            self._read[op_type] = [(name, components) for name, components in found if components is not None]
        return self._read[op_type]

    def _by_type(self) -> dict[str, list[str]]:
        if self._names is None:
            self._names = {}
            for name in self._store.names():
                self._names.setdefault(name.rsplit("_", 2)[0], []).append(name)
        return self._names


def _distance(one: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    """Return in how many places two components differ."""
    return sum(_differs(one.get(name), other.get(name)) for name in one.keys() | other.keys())


def _differs(one: Any, other: Any) -> int:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return _distance(one, other)
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return sum(_differs(a, b) for a, b in zip(one, other, strict=True))
    return int(canonical_json(one) != canonical_json(other))
