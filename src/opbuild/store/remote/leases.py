"""Leases: the claims of a fleet's processes, said through the remote store itself.

    claims/<key>/<number>    who holds it, and a word that no other holder has

The holder is whoever wrote the object. Where the service writes an object only if it is not there, that is one of
many; elsewhere it is the one whose word is still there a moment later, and seldom two are. A lease ends when its holder
releases it, or when nobody saw it change for as long as it lasts: each who waits measures that by his own clock, so
that no two clocks need to agree. What a dead holder left is not overwritten, the next lease has the next number, so
that of those who see it end one follows. Who can wait no longer takes it for ended earlier, in the same way.

Leases only save work: where they cannot be had everybody is told to go on, and something is made more than once.

A host asks the fleet once: its processes hold the host's claim first. A claim of the fleet is given up only after what
it was for was sent, so that whoever comes next finds it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from opbuild.kernel.interfaces import UNCLAIMED, Claim, Claims, Holder
from opbuild.kernel.key import Key
from opbuild.kernel.reason import Reason
from opbuild.platform.files.trust import parse_json
from opbuild.platform.records import replace
from opbuild.store.concurrent_map import results_of
from opbuild.store.remote.failures import ABSENT, EXISTS
from opbuild.store.remote.service import Service

LEASE_SECONDS = 15.0
"""How long a claim holds that nobody releases; operators take fractions of a second."""

_SETTLED = 0.03
"""Seconds after which one's own word is looked for again, where any writer may overwrite another's."""

_MOST = 4096
_NUMBERS = 16
"""Holders of one claim that may die one after the other."""

_LONGEST = 300.0
"""Seconds for which a holder is believed."""

_MINE, _SOMEBODY = Holder(), Holder()


class Lease:
    """A claim that this process holds until it releases it, or its time is over."""

    def __init__(self, give_up: Callable[[], object]) -> None:
        self._give_up: Callable[[], object] | None = give_up

    def release(self) -> None:
        """Give it up; harmless if it was."""
        give_up, self._give_up = self._give_up, None
        if give_up is not None:
            give_up()


class Leases:
    """Claims on names through a remote store. Threads may share it.

    Args:
        service: The remote store.
        folder: Where they lie in it; ends with a slash.
        rank: This process's rank, to tell others.
        clock: Returns this process's seconds; None: the service's clock.
    """

    def __init__(self, service: Service, folder: str, rank: int = 0, clock: Callable[[], float] | None = None) -> None:
        self._service = service
        self._folder = folder
        self._rank = rank
        self._clock = clock or service.clock
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[str, float]] = {}

    def take(self, key: Key, patience: float = math.inf) -> Claim | Holder:
        """Return the claim on an operator, or who has it, as ``kernel.interfaces.Claims`` says."""
        return self.claim(key.sha256, patience=patience)

    def close(self) -> None:
        """Leave the leases of others alone; there is nothing else."""

    def claim(self, name: str, lease_seconds: float = LEASE_SECONDS, patience: float = math.inf) -> Claim | Holder:
        """Return the claim on a name, who has it, or where there can be no claims one that binds nobody.

        Args:
            name: What is claimed: letters, digits and ``_``.
            lease_seconds: How long it holds if it is not released.
            patience: For how long another's is believed, if that is shorter.
        """
        paths = []
        for number in range(_NUMBERS):
            path = f"{self._folder}{name}/{number}"
            paths.append(path)
            answer = self._take(path, lease_seconds, patience)
            if answer is _MINE:
                return Lease(partial(self._service.delete, *paths))
            if answer is not None:
                return answer
        return UNCLAIMED

    def _take(self, path: str, lease_seconds: float, patience: float) -> Claim | Holder | None:
        """Return the holder of a claim, ``_MINE`` if this process has it now, or None if its time is over."""
        known = self._service.get(path, _MOST)
        if not isinstance(known, Reason):
            return self._current_holder(path, bytes(known), patience)
        if known.code != ABSENT:
            return UNCLAIMED
        word = os.urandom(16).hex()
        said = {"word": word, "process": os.getpid(), "host": os.uname().nodename, "rank": self._rank}
        said["seconds"] = lease_seconds
        problem = self._write(path, json.dumps(said).encode())
        if problem is None:
            return _MINE
        if problem.code != EXISTS:
            return UNCLAIMED
        known = self._service.get(path, _MOST)
        return _SOMEBODY if isinstance(known, Reason) else self._current_holder(path, bytes(known), patience)

    def _write(self, path: str, data: bytes) -> Reason | None:
        """Return None if this process's word is the one that counts."""
        if self._service.writes_only_new():
            return self._service.put_new(path, data)
        problem = self._service.put([(path, data)])
        if problem is not None:
            return problem
        self._service.sleep(_SETTLED)
        there = self._service.get(path, _MOST)
        return None if there == data else Reason(EXISTS, "another process was later")

    def _current_holder(self, path: str, data: bytes, patience: float) -> Holder | None:
        """Return the holder of a claim, None if its time is over."""
        said = _parsed(data)
        word, seconds, now = str(said.get("word", "")), said.get("seconds"), self._clock()
        with self._lock:
            if path not in self._seen or self._seen[path][0] != word:
                self._seen[path] = word, now
            since = self._seen[path][1]
        lasts = seconds if isinstance(seconds, (int, float)) and 0 < seconds <= _LONGEST else LEASE_SECONDS
        if now - since >= min(lasts, patience):
            return None
        process, rank = said.get("process"), said.get("rank")
        return Holder(
            process if isinstance(process, int) else 0, str(said.get("host", ""))[:100],
            rank if isinstance(rank, int) else 0,
        )  # fmt: skip


def _parsed(data: bytes) -> dict[str, Any]:
    """Return the message of a holder; empty where no holder wrote it, so that its time begins now."""
    with contextlib.suppress(ValueError):
        said = parse_json(data)
        if isinstance(said, dict):
            return said
    return {}


class FleetClaims:
    """Claims that are this host's and then the fleet's. Threads may share it if they may share both.

    Args:
        near: The host's.
        far: The fleet's.
        after: Calls a function once all that was published so far has been sent, or given up.
    """

    def __init__(self, near: Claims, far: Claims, after: Callable[[Callable[[], None]], None]) -> None:
        self._near, self._far, self._after = near, far, after

    def take(self, key: Key, patience: float = math.inf) -> Claim | Holder:
        """Return the claim on an operator, or who has it here or elsewhere."""
        return self._near_and_far(self._near.take(key), lambda: self._far.take(key, patience))

    def take_all(self, keys: Sequence[Key]) -> list[Claim | Holder]:
        """Return the answer of ``take`` for each of several operators; the fleet is asked for all at once."""
        near = [self._near.take(key) for key in keys]
        asked = [key for key, each in zip(keys, near, strict=True) if not isinstance(each, Holder)]
        far = iter(results_of(asked, self._far.take))
        return [self._near_and_far(each, lambda: next(far)) for each in near]

    def _near_and_far(self, near: Claim | Holder, ask: Callable[[], Claim | Holder]) -> Claim | Holder:
        if isinstance(near, Holder):
            return near
        far = ask()
        if isinstance(far, Holder):
            near.release()
            return replace(far, is_far=True)

        def give_up() -> None:
            near.release()
            self._after(far.release)  # behind the uploads under way

        return Lease(give_up)

    def close(self) -> None:
        """Leave nothing behind that is not in use."""
        self._near.close()
        self._far.close()
