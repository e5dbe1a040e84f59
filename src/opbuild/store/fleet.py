"""Claims of a fleet: on this host by locks, and beyond it by leases in a remote store.

A host asks the fleet once: its processes hold the host's claim first. A claim of the fleet is given up only after what
it was for was sent, so that whoever comes next finds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing

from opbuild.kernel.interfaces import Claim, Claims, Holder
from opbuild.kernel.key import Key
from opbuild.platform.records import replace
from opbuild.store.concurrent_map import concurrent_map


class FleetClaims:
    """Claims that are this host's and then the fleet's. Threads may share it if they may share both.

    Args:
        near: The host's.
        far: The fleet's.
        after: Calls a function once all that was published so far has been sent, or given up.
    """

    def __init__(self, near: Claims, far: Claims, after: Callable[[Callable[[], None]], None]) -> None:
        self._near = near
        self._far = far
        self._after = after

    def take(self, key: Key, patience: float = math.inf) -> Claim | Holder:
        """Return the claim on an operator, or who has it here or elsewhere."""
        return self._both(self._near.take(key), lambda: self._far.take(key, patience))

    def take_all(self, keys: Sequence[Key]) -> list[Claim | Holder]:
        """Return the answer of ``take`` for each of several operators; the fleet is asked for all at once."""
        near = [self._near.take(key) for key in keys]
        asked = [key for key, each in zip(keys, near, strict=True) if not isinstance(each, Holder)]
        with closing(concurrent_map(asked, self._far.take)) as answers:
            far = iter([answer for _, answer in answers])
        return [self._both(each, lambda: next(far)) for each in near]

    def _both(self, near: Claim | Holder, ask: Callable[[], Claim | Holder]) -> Claim | Holder:
        if isinstance(near, Holder):
            return near
        far = ask()
        if isinstance(far, Holder):
            near.release()
            return replace(far, is_far=True)
        return _HeldClaims(near, far, self._after)

    def close(self) -> None:
        """Leave nothing behind that is not in use."""
        self._near.close()
        self._far.close()


class _HeldClaims:
    """Both claims on an operator."""

    def __init__(self, near: Claim, far: Claim, after: Callable[[Callable[[], None]], None]) -> None:
        self._near, self._far, self._after = near, far, after
        self._is_held = True

    def release(self) -> None:
        """Give both up, the fleet's behind the uploads under way; harmless if they were."""
        if self._is_held:
            self._is_held = False
            self._near.release()
            self._after(self._far.release)
