"""Claims of a fleet: who compiles what, on this host by locks, and beyond it by leases in a remote store.

A host asks the fleet once: its processes hold the host's claim first. A claim of the fleet is given up only after what
it was for was sent, so that whoever comes next finds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from opbuild.kernel.interfaces import Claim, Claims, Holder
from opbuild.kernel.key import Key


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

    def take(self, key: Key) -> Claim | Holder:
        """Return the claim on an operator, or who has it here or elsewhere."""
        near = self._near.take(key)
        if isinstance(near, Holder):
            return near
        far = self._far.take(key)
        if isinstance(far, Holder):
            near.release()
            return replace(far, is_far=True)
        return _Held(near, far, self._after)

    def close(self) -> None:
        """Leave nothing behind that is not in use."""
        self._near.close()
        self._far.close()


class _Held:
    """Both claims on an operator."""

    def __init__(self, near: Claim, far: Claim, after: Callable[[Callable[[], None]], None]) -> None:
        self._near, self._far, self._after = near, far, after
        self._is_held = True

    def release(self) -> None:
        """Give both up, the fleet's behind what is being sent; harmless if they were."""
        if self._is_held:
            self._is_held = False
            self._near.release()
            self._after(self._far.release)
