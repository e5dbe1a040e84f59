"""Taking turns: which operator this process compiles next, and which ones others compile meanwhile.

An operator is claimed before it is compiled, and looked up once more then: whoever had the claim before may have
published it. What others have claimed is passed over, so that processes which begin at once divide the work, and is
asked for again when nothing else is left. A claim that is free while the entry is missing means that its holder failed
or died, and this process takes over at once. It never waits longer than a compile may take.

Processes that share only a remote store are far: each look is a request, and nobody sees at once that one died.
A claim that they hold is asked for once; then only the entry is. Where a few requests in a row bring nothing, the rest
is asked later, less and less often, and each process goes on somewhere else and at another time. Nobody waits for them
longer than he would be ready alone, and a little: who is behind that takes their claims over. Where others have done
that already they have a moment to build; then it is built without a claim. A far claim takes as long as several
requests, so who meets nobody asks for several at once, for as many as it compiles meanwhile.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence

from opbuild.builder.job import OperatorJob
from opbuild.kernel.interfaces import UNCLAIMED, Claim, Claims, Found, Holder, ManyClaims, Store, look_up
from opbuild.kernel.key import Key
from opbuild.platform.records import dataclass

SAID_AFTER = 2.0
"""Seconds of waiting for others after which it is said; then every ``SAID_EVERY``."""

SAID_EVERY = 10.0

_LEAST_PAUSE, _LONGEST_PAUSE, _PAUSES_GROW = 0.005, 0.1, 1.5
"""Seconds until a claim that others hold is tried again."""

_LEAST_FAR_PAUSE, _LONGEST_FAR_PAUSE = 0.2, 1.0
"""The same until far processes are asked again."""

_MOST_FAILURES = 3
"""Requests to far processes in a row that bring nothing, after which there is a pause."""

USUAL_SECONDS = 0.15
"""How long an operator takes to compile, where none of this build has said it yet."""

A_LITTLE = 1.0
"""Seconds to wait for those others longer than building takes here: their entries have to be sent."""

SUCCESSION = 0.5
"""Seconds that who took a claim over has before others do: enough for a compile and for sending what it made."""

_SUCCESSORS = 2
"""Holders that took a claim over one after the other and brought nothing; then nobody is asked."""

_MOST_AHEAD = 8
"""Claims that are asked for before there are workers for them: others could build what waits here."""

_LOOK_EVERY = 1.0
"""Seconds after which an entry is looked up although its claim is held: a lock may be stuck whose work is done."""


def turn(claims: Claims | None, store: Store, key: Key) -> Claim | Holder | Found:
    """Return the claim on an operator that must be compiled, who has it, or the entry that came meanwhile."""
    return UNCLAIMED if claims is None else _exchange_found([claims.take(key)], store, [key])[0]


def turns(claims: ManyClaims, store: Store, keys: Sequence[Key]) -> list[Claim | Holder | Found]:
    """Return the answer of ``turn`` for each of several operators, asked for together."""
    return _exchange_found(claims.take_all(keys), store, keys)


def _exchange_found(taken: Sequence[Claim | Holder], store: Store, keys: Sequence[Key]) -> list[Claim | Holder | Found]:
    """Return claims; of those whose entries came meanwhile the entries, and these claims are given up."""
    answers: list[Claim | Holder | Found] = [*taken]
    mine = [(number, claim) for number, claim in enumerate(taken) if not isinstance(claim, Holder)]
    found = look_up(store, [keys[number] for number, _ in mine]) if mine else []
    for (number, claim), answer in zip(mine, found, strict=True):
        if isinstance(answer, Found):
            claim.release()
            answers[number] = answer
    return answers


@dataclass
class _Wait:
    """The state of an operator that others compile."""

    holder: Holder
    since: float
    looked: float
    next: float = 0.0
    pause: float = _LEAST_PAUSE
    said: float = 0.0
    successors: int = 0


class _FarSchedule:
    """The schedule of requests to far processes: there is a pause once a few in a row brought nothing.

    Attributes:
        next: The time of the next one.
        has_looked: Whether the entries were looked up since then.
    """

    def __init__(self) -> None:
        self.next = 0.0
        self.has_looked = True
        self._failures = 0
        self._pause = _LEAST_FAR_PAUSE

    def note_success(self) -> None:
        """Take note of a request that brought a claim or an entry."""
        self._failures, self._pause = 0, _LEAST_FAR_PAUSE

    def note_entry(self) -> None:
        """Take note of an entry that others built: now is the time to look for more."""
        self.has_looked = False

    def note_failure(self, now: float, left: int) -> None:
        """Take note of a request that brought nothing; ``left``: the operators for which there are more requests."""
        self._failures += 1
        if self._failures >= _MOST_FAILURES or not left:
            self._failures, self.has_looked = 0, False
            self.next = now + self._pause * random.uniform(0.75, 1.25)  # noqa: S311  no secret
            self._pause = min(self._pause * _PAUSES_GROW, _LONGEST_FAR_PAUSE)


@dataclass(eq=False, repr=False)
class Queue:
    """The jobs of a build in the order in which to compile them.

    Attributes:
        jobs: All of them.
        claims: Who compiles what; None: nobody is asked.
        limit: Jobs under way at once.
        patience: Seconds to wait for another process at most.
        clock: Returns the time in seconds.
    """

    jobs: Sequence[OperatorJob]
    claims: Claims | None
    limit: int
    patience: float
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._open = list(self.jobs)
        self._began = self.clock()
        # So that not all begin to build what a dead one had.
        self._grace = A_LITTLE * random.uniform(0.5, 1.0)  # noqa: S311  no secret
        self._far = _FarSchedule()
        self._meets_far = False
        self._claim_seconds = 0.0
        self._under_way: list[OperatorJob] = []
        self._waits: dict[OperatorJob, _Wait] = {}
        self._taken: list[tuple[OperatorJob, Found]] = []

    @property
    def busy(self) -> bool:
        """Whether a job is under way."""
        return bool(self._under_way)

    def next(self) -> OperatorJob | None:
        """Return the next job to compile, which is under way then; None if there is no room or others have the rest."""
        self._look_up_far()
        self._claim_next()
        if len(self._under_way) >= self.limit:
            return None
        met = self._meets_far
        for job in self._claim_order():
            now = self.clock()
            if now >= self._claim_time(job) and self._begins(job, now):
                self._open.remove(job)
                self._under_way.append(job)
                return job
            if met != self._meets_far or self.clock() >= self._far_lookup_time():
                return self.next()
        return None

    def answered(self, job: OperatorJob) -> None:
        """Take note that a job is no longer under way."""
        if job in self._under_way:
            self._under_way.remove(job)

    def again(self, job: OperatorJob) -> None:
        """Take note that a job that is no longer under way has its turn again; it keeps its claim."""
        self._open.insert(0, job)

    def lost(self) -> None:
        """Take note that nothing is under way any more: jobs that were have their turn again, and keep their claims."""
        self._open[:0] = self._under_way
        self._under_way.clear()

    def taken(self) -> list[tuple[OperatorJob, Found]]:
        """Return the jobs that others have done since the last call, and their entries."""
        taken, self._taken = self._taken, []
        return taken

    def pause(self) -> float | None:
        """Return seconds after which ``next`` may have something that it has not now; None: only an answer helps."""
        if len(self._under_way) >= self.limit or not self._open:
            return None
        return max(0.0, min(self._far_lookup_time(), *map(self._claim_time, self._open)) - self.clock())

    def overdue(self) -> list[tuple[OperatorJob, Holder, float]]:
        """Return the operators, the holders and the seconds that this process waits, where it is time to say so."""
        now = self.clock()
        due = []
        for job, wait in self._waits.items():
            waited = now - wait.since
            if waited >= SAID_AFTER and (not wait.said or now - wait.said >= SAID_EVERY):
                wait.said = now
                due.append((job, wait.holder, waited))
        return due

    def _look_up_far(self) -> None:
        """Look up all that far processes may have built, together, after a pause."""
        if self.clock() < self._far_lookup_time():
            return
        jobs = [job for job in self._claim_order() if self._is_far(job)]
        found = look_up(jobs[0].store, [job.key for job in jobs]) if jobs else []
        for job, answer in zip(jobs, found, strict=True):
            if isinstance(answer, Found):
                self._settle(job, answer)
        self._far.has_looked = True
        if not self._unclaimed():
            self._far.note_failure(self.clock(), 0)

    def _far_lookup_time(self) -> float:
        """Return the time to look up operators of far processes: after a pause, and again once all is claimed."""
        return math.inf if not self._meets_far or (self._far.has_looked and self._unclaimed()) else self._far.next

    def _is_far(self, job: OperatorJob) -> bool:
        """Return whether far processes may build an open job."""
        wait = self._waits.get(job)
        return job.claim is None and job.debug is None and (wait is None or wait.holder.is_far)

    def _unclaimed(self) -> list[OperatorJob]:
        """Return the open jobs that nobody is known to have claimed."""
        return [job for job in self._open if job.claim is None and job.debug is None and job not in self._waits]

    def _claim_next(self) -> None:
        """Claim several operators at once where a claim takes time: as many as are compiled meanwhile, or begun now.

        Not more than that where far processes build the same: most of these they have.
        """
        if not isinstance(self.claims, ManyClaims) or any(job.claim is not None for job in self._open):
            return
        if self._meets_far and self.clock() < self._far.next:
            return
        workers = max(1, self.limit - 1)
        soon = (
            min(_MOST_AHEAD, round(self._claim_seconds * workers / self._usual_seconds()))
            if self._claim_seconds
            else workers
        )
        fresh = self._unclaimed()
        if min(soon, len(fresh)) < 2:
            return
        if self._meets_far or not self._claim_seconds:  # all begin at the same end
            jobs = random.sample(fresh, min(soon, len(fresh)))
        else:
            jobs = fresh[: max(soon, self.limit - len(self._under_way))]
        began = self.clock()
        for job, answer in zip(jobs, turns(self.claims, jobs[0].store, [job.key for job in jobs]), strict=True):
            self._settle(job, self._wait(job, answer, began) if isinstance(answer, Holder) else answer)
        self._claim_seconds = self.clock() - began

    def _claim_order(self) -> list[OperatorJob]:
        """Return the open jobs in the order in which to ask for them: anywhere, where others have begun as well."""
        jobs = random.sample(self._open, len(self._open)) if self._meets_far else self._open
        return sorted(jobs, key=lambda job: job.claim is None)

    def _claim_time(self, job: OperatorJob) -> float:
        """Return the time to ask for the claim on a job."""
        wait = self._waits.get(job)
        if wait is not None and not wait.holder.is_far:
            return wait.next
        if job.claim is not None or job.debug is not None or not self._meets_far:
            return 0.0
        return min(self._far.next, self._takeover_time(wait)) if wait is None else self._takeover_time(wait)

    def _takeover_time(self, wait: _Wait | None) -> float:
        """Return the time to build it, whoever has the claim: a little after its holder could have had one more, alone.

        Not while somebody who took the claim over has time, and never while its workers have enough to do: what others
        build is taken meanwhile.
        """
        if len(self._under_way) >= max(1, self.limit - 1):
            return math.inf
        done = len(self.jobs) - len(self._open)
        alone = min(self.patience, self._usual_seconds() * (done + 1) / max(1, self.limit - 1))
        return max(self._began + self._grace + alone, 0.0 if wait is None else wait.next)

    def _usual_seconds(self) -> float:
        """Return the seconds that an operator takes to compile here."""
        built = [job.milliseconds for job in self.jobs if not job.open and job.milliseconds]
        return sum(built) / len(built) / 1e3 if built else USUAL_SECONDS

    def _begins(self, job: OperatorJob, now: float) -> bool:
        """Return whether a job is this process's now; an entry that others have built is taken instead."""
        if job.claim is not None:
            return True
        answer = self._claim_or_find(job, now)
        return self._settle(job, self._wait(job, answer, now) if isinstance(answer, Holder) else answer)

    def _settle(self, job: OperatorJob, answer: Claim | Holder | Found) -> bool:
        """Return whether a job is this process's now, after the answer to its request."""
        if isinstance(answer, Holder):
            return False
        self._far.note_success()
        wait = self._waits.pop(job, None)
        if isinstance(answer, Found):
            if self._meets_far:
                self._far.note_entry()
            self._open.remove(job)
            job.take(answer, wait.holder if wait else "another process")
            self._taken.append((job, answer))
            return False
        job.claim = answer
        return True

    def _claim_or_find(self, job: OperatorJob, now: float) -> Claim | Holder | Found:
        """Return the claim on a job, who has it, or its entry."""
        if job.debug is not None:
            return UNCLAIMED
        wait = self._waits.get(job)
        if self._meets_far and self._is_far(job) and now >= self._takeover_time(wait):
            found = job.store.lookup(job.key)
            return found if isinstance(found, Found) else self._take_over(job, wait, now)
        answer = turn(self.claims, job.store, job.key)
        self._claim_seconds = self.clock() - now
        return answer

    def _take_over(self, job: OperatorJob, wait: _Wait | None, now: float) -> Claim | Holder:
        """Return the claim on an operator whose holder takes too long, or who has just taken it over.

        Where asking takes longer than building it is built without.
        """
        if self.claims is None or (wait is not None and wait.successors >= _SUCCESSORS):
            return UNCLAIMED
        if self._claim_seconds > self._usual_seconds():
            return UNCLAIMED
        answer = self.claims.take(job.key, SUCCESSION)
        if isinstance(answer, Holder) and answer.is_far:
            wait = self._waits.setdefault(job, _Wait(answer, now, now))
            wait.successors += 1
            wait.next = self.clock() + SUCCESSION
        return answer

    def _wait(self, job: OperatorJob, holder: Holder, now: float) -> Claim | Holder | Found:
        """Return the next action for an operator that another process has claimed: mostly, go on waiting."""
        wait = self._waits.setdefault(job, _Wait(holder, now, now))
        wait.holder = holder
        if holder.is_far:
            self._meets_far = True
            self._far.note_failure(self.clock(), len(self._unclaimed()))
            return holder
        patient = now - wait.since < self.patience
        if not patient or now - wait.looked >= _LOOK_EVERY:
            wait.looked = now
            found = job.store.lookup(job.key)
            if isinstance(found, Found):
                return found
        if not patient:
            return UNCLAIMED
        wait.next = now + wait.pause
        wait.pause = min(wait.pause * _PAUSES_GROW, _LONGEST_PAUSE)
        return holder
