"""Taking turns: which operator this process compiles next, and which ones others compile meanwhile.

An operator is claimed before it is compiled, and looked up once more then: whoever had the claim before may have
published it. What others have claimed is passed over, so that processes which begin at once divide the work, and is
asked for again when nothing else is left. A claim that is free while the entry is missing means that its holder failed
or died, and this process takes over at once. It never waits longer than a compile may take.

For a process that shares only a remote store nobody waits longer than building what is left would take here, and a
little: nobody sees at once that it died. Its claim is asked for once; then only the entry is, less and less often.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opbuild.builder.job import Job
from opbuild.kernel.interfaces import UNCLAIMED, Claim, Claims, Found, Holder, Store
from opbuild.kernel.key import Key

SAID_AFTER = 2.0
"""Seconds of waiting for others after which it is said; then every ``SAID_EVERY``."""

SAID_EVERY = 10.0

_LEAST_PAUSE, _LONGEST_PAUSE, _PAUSES_GROW = 0.005, 0.1, 1.5
"""Seconds until a claim that others hold is tried again."""

_LEAST_FAR_PAUSE, _LONGEST_FAR_PAUSE = 0.2, 1.0
"""The same until an entry is looked for that others build who share only a remote store."""

USUAL_SECONDS = 0.15
"""How long an operator takes to compile, where none of this build has said it yet."""

A_LITTLE = 1.0
"""Seconds to wait for those others longer than building takes here: their entries have to be sent."""

_LOOK_EVERY = 1.0
"""Seconds after which an entry is looked up although its claim is held: a lock may be stuck whose work is done."""


def turn(claims: Claims | None, store: Store, key: Key) -> Claim | Holder | Found:
    """Return the claim on an operator that must be compiled, who has it, or the entry that came meanwhile."""
    if claims is None:
        return UNCLAIMED
    claim = claims.take(key)
    if isinstance(claim, Holder):
        return claim
    found = store.lookup(key)
    if not isinstance(found, Found):
        return claim
    claim.release()
    return found


@dataclass
class _Wait:
    """What is known of an operator that others compile."""

    holder: Holder
    since: float
    looked: float
    next: float = 0.0
    pause: float = _LEAST_PAUSE
    said: float = 0.0


class Queue:
    """The jobs of a build in the order in which to compile them.

    Args:
        jobs: All of them.
        claims: Who compiles what; None: nobody is asked.
        limit: Jobs under way at once.
        patience: Seconds to wait for another process at most.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        claims: Claims | None,
        limit: int,
        patience: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._claims = claims
        self._limit = limit
        self._patience = patience
        self._clock = clock
        self._jobs = tuple(jobs)
        self._open = list(jobs)
        self._under_way: list[Job] = []
        self._waits: dict[Job, _Wait] = {}
        self._taken: list[tuple[Job, Found]] = []

    @property
    def busy(self) -> bool:
        """Whether a job is under way."""
        return bool(self._under_way)

    def next(self) -> Job | None:
        """Return the next job to compile, which is under way then; None if there is no room or others have the rest."""
        if len(self._under_way) >= self._limit:
            return None
        now = self._clock()
        for job in tuple(self._open):
            wait = self._waits.get(job)
            if (wait is None or now >= wait.next) and self._begins(job, now):
                self._open.remove(job)
                self._under_way.append(job)
                return job
        return None

    def answered(self, job: Job) -> None:
        """Take note that a job is no longer under way."""
        if job in self._under_way:
            self._under_way.remove(job)

    def lost(self) -> None:
        """Take note that nothing is under way any more: what was has its turn again, and keeps its claim."""
        self._open[:0] = self._under_way
        self._under_way.clear()

    def taken(self) -> list[tuple[Job, Found]]:
        """Return the jobs that others have done since the last call, and what they built."""
        taken, self._taken = self._taken, []
        return taken

    def pause(self) -> float | None:
        """Return seconds after which ``next`` may have something that it has not now; None: only an answer helps."""
        if len(self._under_way) >= self._limit or not self._open:
            return None
        now = self._clock()
        return min((max(0.0, self._waits[job].next - now) for job in self._open if job in self._waits), default=0.0)

    def overdue(self) -> list[tuple[Job, Holder, float]]:
        """Return for what, for whom and for how many seconds this process waits, where it is time to say so."""
        now = self._clock()
        due = []
        for job, wait in self._waits.items():
            waited = now - wait.since
            if waited >= SAID_AFTER and (not wait.said or now - wait.said >= SAID_EVERY):
                wait.said = now
                due.append((job, wait.holder, waited))
        return due

    def _begins(self, job: Job, now: float) -> bool:
        """Return whether a job is this process's now; what others have built is taken instead."""
        if job.claim is not None:
            return True
        waits = self._waits.get(job)
        if waits is not None and waits.holder.is_far:
            answer: Claim | Holder | Found = waits.holder
        else:
            answer = turn(self._claims if job.debug is None else None, job.store, job.key)
        if isinstance(answer, Holder):
            answer = self._wait(job, answer, now)
        if isinstance(answer, Holder):
            return False
        wait = self._waits.pop(job, None)
        if isinstance(answer, Found):
            self._open.remove(job)
            job.take(answer, wait.holder if wait else "another process")
            self._taken.append((job, answer))
            return False
        job.claim = answer
        return True

    def _patience_with(self, holder: Holder) -> float:
        """Return how many seconds to wait for a process: a far one as long as it takes to build what is left here."""
        if not holder.is_far:
            return self._patience
        built = [job.milliseconds for job in self._jobs if not job.open and job.milliseconds]
        each = sum(built) / len(built) / 1e3 if built else USUAL_SECONDS
        return min(self._patience, A_LITTLE + each * len(self._open) / max(1, self._limit - 1))

    def _wait(self, job: Job, holder: Holder, now: float) -> Claim | Holder | Found:
        """Return what to do about an operator that another process has claimed: mostly, go on waiting."""
        begins = job not in self._waits
        wait = self._waits.setdefault(job, _Wait(holder, now, now))
        if begins and holder.is_far:
            wait.pause = _LEAST_FAR_PAUSE
        patient = now - wait.since < self._patience_with(holder)
        if not patient or now - wait.looked >= _LOOK_EVERY or (holder.is_far and not begins):
            wait.looked = now
            found = job.store.lookup(job.key)
            if isinstance(found, Found):
                return found
        if not patient:
            return UNCLAIMED
        wait.holder = holder
        wait.next = now + wait.pause
        wait.pause = min(wait.pause * _PAUSES_GROW, _LONGEST_FAR_PAUSE if holder.is_far else _LONGEST_PAUSE)
        return holder
