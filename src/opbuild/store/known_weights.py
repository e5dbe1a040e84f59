"""Weights that are mapped already: a process maps those of a network once, however many sizes it is bound to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from opbuild.kernel.networks import Bytes, Weight
from opbuild.kernel.reason import Reason
from opbuild.platform.locks import Lock

if TYPE_CHECKING:
    from opbuild.kernel.interfaces import WeightStore


class KnownWeights:
    """A store of weights that returns what somebody still uses, instead of another mapping or copy of it.

    Threads may share it. Each time the store is asked whether its file is still what it was.

    Args:
        store: Where they are.
    """

    def __init__(self, store: WeightStore) -> None:
        self._store = store
        self._arrays: WeakValueDictionary[str, Bytes] = WeakValueDictionary()
        self._states: dict[str, Any] = {}
        self._lock = Lock()

    def get(self, digest: str, nbytes: int, state: Any = None) -> Weight | Reason:
        """Return weights as ``WeightStore.get`` does."""
        return self._one(self._store.get(digest, nbytes, state))

    def put(self, digest: str, array: Bytes) -> Weight | Reason:
        """Add weights as ``WeightStore.put`` does."""
        return self._one(self._store.put(digest, array))

    def find(self, source: str, nbytes: int) -> Weight | Reason:
        """Return what a source was packed to as ``WeightStore.find`` does."""
        return self._one(self._store.find(source, nbytes))

    def remember(self, source: str, weight: Weight) -> str | None:
        """Write down what a source packs to."""
        return self._store.remember(source, weight)

    def _one(self, found: Weight | Reason) -> Weight | Reason:
        """Return the array that is used already, if it is of the very same file; else note this one."""
        if isinstance(found, Reason):
            return found
        with self._lock:
            known = self._arrays.get(found.digest)
            if known is not None and self._states[found.digest] == found.state:
                return found._replace(array=known)
            self._arrays[found.digest], self._states[found.digest] = found.array, found.state
            return found
