"""Pods that start cold together, on a simulated clock.

The builder's queue, the claims, the leases and the remote store's operators are the real ones; compiling, the service
and time are made up. Each pod is a thread, and one of them runs at a time: the one whose time has come. Whatever takes
time, a request or a compile, lets the others go on first, so their requests interleave as those of machines would.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import statistics
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from unittest import mock

from opbuild.builder.job import OperatorJob
from opbuild.builder.queue import Queue
from opbuild.kernel.entry import Entry
from opbuild.kernel.interfaces import UNCLAIMED, Claim, Found, Holder
from opbuild.kernel.key import Key
from opbuild.kernel.reason import Reason
from opbuild.platform.files.trust import PRIVATE
from opbuild.store.blobs import Memory
from opbuild.store.operators import Operators
from opbuild.store.remote.leases import FleetClaims, Leases
from opbuild.store.remote.objects import CLAIMS, NAMESPACE, Objects
from opbuild.store.remote.operators import RemoteStore, write_group
from opbuild.store.remote.retry import Breaker
from opbuild.store.tiers import TieredStore
from support.samples import conv, entry_of
from support.together import shut

T, R = TypeVar("T"), TypeVar("R")

WORKERS = 2
"""Compiles at once in a pod."""

OBJECT_BYTES = 10_000
"""Bytes of code that an operator mostly has."""

ROUND_TRIP, PATIENCE = 0.004, 1.0
"""Seconds that a request takes at least and at most, as ``store.remote.retry`` has it."""


class World:
    """The time, and whose turn it is."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._waiting: list[tuple[float, int, threading.Lock]] = []
        self._done = shut()
        self.failed: list[BaseException] = []

    def __call__(self) -> float:
        """Return seconds."""
        return self.now

    def spawn(self, at: float, work: Callable[[], None]) -> None:
        """Let a piece of work begin at a time."""
        turn = shut()

        def run() -> None:
            turn.acquire()
            try:
                work()
            except BaseException as error:
                self.failed.append(error)
            self._next()

        thread = threading.Thread(target=run, daemon=True)
        heapq.heappush(self._waiting, (at, next(self._order), turn))
        thread.start()

    def sleep(self, seconds: float) -> None:
        """Let time pass for whoever's turn it is."""
        until = self.now + seconds
        if not self._waiting or until < self._waiting[0][0]:
            self.now = until
            return
        turn = shut()
        heapq.heappush(self._waiting, (until, next(self._order), turn))
        self._next()
        turn.acquire()

    def together(self, items: Iterable[T], do: Callable[[T], R]) -> Generator[tuple[T, R], None, None]:
        """Yield each item with what was done, as ``store.concurrent_map`` does; whoever's turn it is waits for all."""
        listed = list(items)
        done: dict[int, R] = {}
        turn = shut()

        def work(number: int, item: T) -> None:
            done[number] = do(item)
            if len(done) == len(listed):
                heapq.heappush(self._waiting, (self.now, next(self._order), turn))

        for number, item in enumerate(listed):
            self.spawn(self.now, partial(work, number, item))
        if listed:
            self._next()
            turn.acquire()
        yield from ((item, done[number]) for number, item in enumerate(listed))

    def run(self) -> None:
        """Go on until nobody has anything left to do; raise what went wrong."""
        self._next()
        self._done.acquire()
        if self.failed:
            raise self.failed[0]

    def _next(self) -> None:
        if self._waiting:
            self.now, _, turn = heapq.heappop(self._waiting)
            turn.release()
        else:
            self._done.release()


@dataclass
class Shared:
    """The content of a remote store's server, and the requests it got.

    Attributes:
        world: The time.
        exclusive: Whether an object can be written only if it is not there.
        per_second: Requests that it answers in a second.
        objects: What there is, by path.
        requests: When each request came.
        kinds: How many of each kind there were.
        nbytes: Bytes that were read and written.
        free: When it has answered all that came so far.
    """

    world: World
    exclusive: bool = True
    per_second: float = 1e9
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[float] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    nbytes: int = 0
    free: float = 0.0


class SharedService:
    """The remote store as one pod uses it: each request takes a while, one that takes too long is given up.

    Args:
        shared: The server.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.folder, self.damaged = "", set[str]()
        self.clock, self.sleep = shared.world, shared.world.sleep
        self.reading = self.writing = Breaker(PATIENCE, self.clock)

    def get(self, name: str, most: int) -> bytes | Reason:
        """Return an object."""
        if (problem := self._ask("read", name)) is not None:
            return problem
        data = self._shared.objects.get(name)
        self._shared.nbytes += len(data or b"")
        return data if data is not None else Reason("absent", "it has no such object")

    def size(self, path: str) -> int | Reason:
        """Return the bytes of an object."""
        problem = self._ask("look", path)
        if problem is None and path not in self._shared.objects:
            problem = Reason("absent", "it has no such object")
        return len(self._shared.objects[path]) if problem is None else problem

    def put(self, files: Sequence[tuple[str, bytes]]) -> Reason | None:
        """Write objects."""
        return next(filter(None, (self._write(path, data) for path, data in files)), None)

    def put_new(self, path: str, data: bytes) -> Reason | None:
        """Write an object unless it is there."""
        return self._write(path, data, only_new=True)

    def _write(self, path: str, data: bytes, *, only_new: bool = False) -> Reason | None:
        if (problem := self._ask("write", path)) is not None:
            return problem
        if only_new and path in self._shared.objects:
            return Reason("exists", "the object is there")
        self._shared.nbytes += len(data)
        self._shared.objects[path] = data
        return None

    def delete(self, *names: str) -> Reason | None:
        """Remove objects."""
        for path in names:
            if (problem := self._ask("delete", path)) is not None:
                return problem
            self._shared.objects.pop(path, None)
        return None

    def writes_only_new(self) -> bool:
        """Whether of many writers one succeeds."""
        return self._shared.exclusive

    def take_warning(self) -> None:
        """Nobody is told."""

    def _ask(self, kind: str, path: str) -> Reason | None:
        """Let a request take its time; return why it failed: a server that is slow is asked no more."""
        shared = self._shared
        if (refused := self.reading.refuses()) is not None:
            return refused
        now = shared.world.now
        shared.requests.append(now)
        shared.kinds[f"{kind} {path.removeprefix(NAMESPACE).partition('/')[0]}"] += 1
        shared.free = max(shared.free, now) + 1.0 / shared.per_second
        seconds = shared.free - now + ROUND_TRIP
        shared.world.sleep(min(seconds, PATIENCE))
        if seconds <= PATIENCE:
            self.reading.succeeded()
            return None
        slow = Reason("slow", "no answer in time")
        self.reading.failed(slow, PATIENCE)
        return slow


class NoClaims:
    """Claims that bind nobody."""

    def take(self, key: Key, patience: float = math.inf) -> Claim | Holder:
        """Return a claim at once."""
        return UNCLAIMED

    def close(self) -> None:
        """Leave nothing."""


@dataclass
class Outcome:
    """The outcome of a fleet.

    Attributes:
        built: How often each operator was compiled.
        ready: When each pod had all operators, after it began; those that died have none.
        shared: What was asked.
        alone: How long one pod alone would compile.
    """

    built: Counter[int]
    ready: list[float]
    shared: Shared
    alone: float

    @property
    def each(self) -> float:
        """How often an operator was compiled on average."""
        return sum(self.built.values()) / len(self.built)

    def peak(self, seconds: float = 1.0) -> int:
        """Return the most requests in so many seconds."""
        times = Counter(int(each / seconds) for each in self.shared.requests)
        return max(times.values())


class Pod:
    """One pod: builds the operators that the remote store lacks, and sends them.

    Args:
        fleet: What all share.
        number: Which one it is.
        dies: Seconds after which it dies; None: it does not.
    """

    def __init__(self, fleet: Fleet, number: int, dies: float | None) -> None:
        self._fleet, self._world = fleet, fleet.world
        self._dies = None if dies is None else fleet.world.now + dies
        self._sent: list[Callable[[], None]] = []
        self._sends = False
        service: Any = SharedService(fleet.shared)
        self._objects = Objects(service, PRIVATE)
        far = Leases(service, CLAIMS, number)
        self._remote = RemoteStore(self._objects, 0.0, far if fleet.claims else None, self._offer_group)
        self._store = TieredStore(Operators(Memory()), (self._remote,))
        self._claims = FleetClaims(NoClaims(), far, self._sent.append) if fleet.claims else None

    def run(self) -> None:
        """Look up everything, one after the other, then build the missing operators."""
        began, fleet = self._world.now, self._fleet
        numbers: dict[OperatorJob, int] = {}
        for number, (key, found) in enumerate(zip(fleet.keys, self._store.lookup_all(fleet.keys), strict=True)):
            if not isinstance(found, Found):
                decision = Reason("absent", "not in the store")
                numbers[OperatorJob(conv(number), key, fleet.entries[number].name, (), self._store, decision)] = number
        queue = Queue(list(numbers), self._claims, WORKERS + 1, 300.0, self._world)
        free = [self._world.now] * WORKERS
        under_way: list[tuple[float, int, OperatorJob]] = []
        while any(job.open for job in numbers):
            while (job := queue.next()) is not None:
                worker = min(range(WORKERS), key=free.__getitem__)
                free[worker] = max(free[worker], self._world.now) + fleet.seconds[numbers[job]]
                heapq.heappush(under_way, (free[worker], numbers[job], job))
            queue.taken()
            if self._is_dead():
                return
            if not any(job.open for job in numbers):
                break
            pause = queue.pause()
            waits = [at - self._world.now for at, *_ in under_way[:1]] + ([] if pause is None else [pause])
            self._world.sleep(max(1e-6, min(waits)))
            while under_way and under_way[0][0] <= self._world.now and not self._is_dead():
                _, number, job = heapq.heappop(under_way)
                fleet.built[number] += 1
                job.entry = fleet.entries[number]
                queue.answered(job)
                self._send(lambda entry=job.entry: self._publish(entry))  # type: ignore[misc]
                job.release()
                self._remote.built(job.entry)
        fleet.ready.append(self._world.now - began)

    def _publish(self, entry: Entry) -> None:
        self._remote.publish(entry)

    def _offer_group(self, name: str, entries: Sequence[Entry], claim: Claim | None) -> None:
        self._send(lambda: write_group(self._objects, name, entries, claim) and None)

    def _is_dead(self) -> bool:
        return self._dies is not None and self._world.now >= self._dies

    def _send(self, work: Callable[[], None]) -> None:
        """Send something beside the work, one thing after the other."""
        self._sent.append(work)
        if not self._sends:
            self._sends = True
            self._world.spawn(self._world.now, self._send_all)

    def _send_all(self) -> None:
        while self._sent and not self._is_dead():
            self._sent.pop(0)()
        self._sends = False


class Fleet:
    """Pods that need the same operators and start within some seconds.

    Args:
        pods: How many.
        operators: How many each needs.
        exclusive: Whether the service writes only new objects where it is asked to.
        claims: Whether they claim what they build.
        within: Seconds within which they start.
        per_second: Requests that the remote store answers in a second.
        dying: What part of them dies while it builds.
        seed: Of all that is random.
    """

    def __init__(
        self,
        pods: int,
        operators: int,
        *,
        exclusive: bool = True,
        claims: bool = True,
        within: float = 0.5,
        per_second: float = 1e9,
        dying: float = 0.0,
        seed: int = 0,
    ) -> None:
        chance = random.Random(seed)
        random.seed(seed)  # what the pods' own queues draw from
        self.world = World()
        self.shared = Shared(self.world, exclusive, per_second)
        self.seconds = [chance.uniform(0.04, 0.15) for _ in range(operators)]
        code = bytes(OBJECT_BYTES)
        made = [entry_of(conv(number), code=code, milliseconds=1e3 * each) for number, each in enumerate(self.seconds)]
        self.keys, self.entries = [key for key, _ in made], [entry for _, entry in made]
        self.claims = claims
        self.built: Counter[int] = Counter(dict.fromkeys(range(operators), 0))
        self.ready: list[float] = []
        for number in range(pods):
            start = chance.uniform(0.0, within)
            dies = chance.uniform(0.05, 0.5) if chance.random() < dying else None
            self.world.spawn(start, lambda number=number, dies=dies: Pod(self, number, dies).run())  # type: ignore[misc]

    def run(self) -> Outcome:
        """Let all pods start and build; return what they did."""
        with mock.patch("opbuild.store.concurrent_map.concurrent_map", self.world.together):
            self.world.run()
        return Outcome(self.built, self.ready, self.shared, sum(self.seconds) / WORKERS)


def summary(outcome: Outcome) -> dict[str, float]:
    """Return the figures of a fleet."""
    last = max(outcome.shared.requests)
    return {
        "built_each": outcome.each,
        "built_most": max(outcome.built.values()),
        "ready_median": statistics.median(outcome.ready),
        "ready_last": max(outcome.ready),
        "alone": outcome.alone,
        "requests": len(outcome.shared.requests),
        "requests_peak": outcome.peak(),
        "requests_mean": len(outcome.shared.requests) / last,
        "megabytes": outcome.shared.nbytes / 1e6,
    }
