"""Taking turns, second by second: what is compiled, waited for, said and taken, on a clock of the test's."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from opbuild.builder import queue
from opbuild.builder.job import OperatorJob
from opbuild.builder.queue import Queue
from opbuild.cli.progress import LineProgress
from opbuild.events import BuildStarted, CompileFinished, Taken, Waiting
from opbuild.kernel.interfaces import UNCLAIMED, Claim, Found, Holder
from opbuild.kernel.key import Key
from opbuild.kernel.reason import Reason
from opbuild.store.blobs import Memory
from opbuild.store.operators import Operators
from opbuild.store.remote.leases import FleetClaims
from support.samples import conv, entry_of

OTHER = Holder(4711, "node7", 2)


class Claims:
    """Claims that a test gives and takes."""

    def __init__(self) -> None:
        self.held: dict[str, Holder] = {}
        self.asked = 0

    def take(self, key: Key, patience: float = math.inf) -> Claim | Holder:
        """Return the holder that the test says and that is still believed, else a claim."""
        self.asked += 1
        holder = self.held.get(key.sha256, UNCLAIMED)
        return UNCLAIMED if holder is FAR and patience < math.inf else holder

    def close(self) -> None:
        """Keep nothing."""


class World:
    """A queue of operators, the claims on them, the store, and the time."""

    def __init__(self, count: int, limit: int = 2, patience: float = 300.0) -> None:
        self.now = 1000.0
        self.claims = Claims()
        self.store = Operators(Memory())
        self.entries = [entry_of(conv(tile)) for tile in range(count)]
        self.jobs = [
            OperatorJob(conv(tile), key, f"conv_{tile}_0", ("node",), self.store, Reason("absent", "not in the store"))
            for tile, (key, _) in enumerate(self.entries)
        ]
        self.queue = Queue(self.jobs, self.claims, limit, patience, lambda: self.now)

    def hold(self, *tiles: int) -> None:
        """Let another process have the claims on some operators."""
        self.claims.held = {self.entries[tile][0].sha256: OTHER for tile in tiles}

    def next(self) -> int | None:
        """Return the number of the next job."""
        job = self.queue.next()
        return None if job is None else self.jobs.index(job)


@pytest.fixture
def world() -> Callable[..., World]:
    """Makes worlds."""
    return World


def test_what_others_hold_is_passed_over(world: Callable[..., World]) -> None:
    """Processes that begin together each begin somewhere else of the list (F24)."""
    here = world(5, limit=3)
    here.hold(0, 1, 3)
    assert [here.next() for _ in range(3)] == [2, 4, None]
    assert here.queue.busy


def test_no_more_is_claimed_than_is_compiled(world: Callable[..., World]) -> None:
    """The rest is left to others until a worker is free; then there is no pause."""
    here = world(4)
    assert [here.next(), here.next(), here.next()] == [0, 1, None]
    assert here.claims.asked == 2
    assert here.queue.pause() is None
    here.queue.answered(here.jobs[0])
    assert here.next() == 2


def test_what_others_published_is_taken(world: Callable[..., World]) -> None:
    """An operator that was missing when the build began, and came meanwhile, is not compiled again (F24)."""
    here = world(2)
    here.store.publish(here.entries[0][1])
    assert here.next() == 1
    ((job, found),) = here.queue.taken()
    assert job is here.jobs[0]
    assert (job.outcome, job.entry, found.source) == ("shared", found.entry, "")
    assert str(job.reason) == "built by another process meanwhile"
    assert here.queue.taken() == []


def test_a_claim_that_is_free_without_an_entry_is_taken_over(world: Callable[..., World]) -> None:
    """The holder failed or died: the next who asks compiles (F18)."""
    here = world(1)
    here.hold(0)
    assert here.next() is None
    here.hold()
    assert here.next() is None  # not asked yet
    here.now += 0.2
    assert here.next() == 0


def test_claims_are_asked_for_less_and_less_often(world: Callable[..., World]) -> None:
    """Waiting costs a few system calls ten times a second."""
    here = world(1)
    here.hold(0)
    for _ in range(1000):
        here.next()
        pause = here.queue.pause()
        assert pause is not None
        here.now += pause
        assert pause <= 0.1001
    asked, here.claims.asked = here.claims.asked, 0
    assert asked <= 1000
    start = here.now
    while here.now < start + 10.0:
        here.next()
        here.now += here.queue.pause() or 0.001
    assert here.claims.asked <= 110


def test_a_stuck_lock_whose_work_is_done_is_noticed(world: Callable[..., World]) -> None:
    """The entry is looked up now and then although its claim is held: its holder's host may be gone (F16)."""
    here = world(1)
    here.hold(0)
    assert here.next() is None
    here.store.publish(here.entries[0][1])
    here.now += 0.5
    assert here.next() is None
    assert here.queue.taken() == []
    here.now += 0.6
    assert here.next() is None
    ((job, _),) = here.queue.taken()
    assert str(job.reason) == "built by process 4711 on node7 (rank 2) meanwhile"


def test_nobody_waits_longer_than_one_compile_may_take(world: Callable[..., World]) -> None:
    """After 300 s of another's claim the operator is compiled here (F15, F18)."""
    here = world(1)
    here.hold(0)
    while here.next() is None:
        here.now += 0.1
        assert here.now < 1301.0
    assert here.now >= 1300.0


def test_a_long_wait_is_said_and_said_again(world: Callable[..., World]) -> None:
    """After two seconds, then every ten, with who has the claim (F18, F70)."""
    here = world(1)
    here.hold(0)
    said = []
    for _ in range(300):
        here.next()
        said += [
            (round(here.now - 1000.0, 1), str(holder), round(waited, 1)) for _, holder, waited in here.queue.overdue()
        ]
        here.now += 0.1
    assert [(when, waited) for when, _, waited in said] == [(2.0, 2.0), (12.0, 12.0), (22.0, 22.0)]
    assert {holder for _, holder, _ in said} == {"process 4711 on node7 (rank 2)"}


def test_a_server_that_died_keeps_its_claims_for_the_next(world: Callable[..., World]) -> None:
    """What was under way has its turn again, first, without asking (F04)."""
    here = world(3)
    assert [here.next(), here.next()] == [0, 1]
    here.queue.lost()
    here.hold(0, 1)
    assert [here.next(), here.next()] == [0, 1]
    assert here.claims.asked == 2


def test_what_a_peer_lends_says_whose_it_is(world: Callable[..., World]) -> None:
    """The reason names the rank."""

    class Lending(Operators):
        def lookup(self, key: Key) -> Found:  # type: ignore[override]  it always has it
            return Found(entry_of(conv(0))[1], "rank 2")

    here = world(1)
    here.jobs[0].store = Lending(Memory())
    assert here.next() is None
    assert str(here.jobs[0].reason) == "taken from rank 2"


def test_progress_says_whom_a_build_waits_for() -> None:
    """A line says who compiles what, until it is there (F70)."""
    lines: list[str] = []
    progress = LineProgress(lines.append, interval=1000, clock=lambda: 0.0)
    progress(BuildStarted("net", 3, 3))
    progress(CompileFinished("conv_1_0", 5.0, 1, 3))
    for name in ("conv_relu_2_0", "add_3_0"):
        progress(Waiting(name, str(OTHER), 2.0))
    progress.tick()
    progress(Taken("conv_relu_2_0", "taken from rank 2", 2, 3))
    progress.tick()
    progress.close()
    assert lines[-2].startswith("net: 1 of 3 operators compiled, ")
    assert lines[-2].endswith("waiting for conv_relu and 1 more, which process 4711 on node7 (rank 2) compiles")
    assert lines[-1].startswith("net: 2 of 3 operators compiled, ")
    assert lines[-1].endswith("waiting for add, which process 4711 on node7 (rank 2) compiles")


FAR = Holder(4711, "pod-9", 0, is_far=True)


def test_a_far_claim_is_asked_for_once_and_then_its_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question is a request: while it waits, this process looks for the entry, less and less often."""
    monkeypatch.setattr(queue, "A_LITTLE", 60.0)
    world = World(1)
    world.claims.held = {world.entries[0][0].sha256: FAR}
    looks = []
    lookup = world.store.lookup
    monkeypatch.setattr(world.store, "lookup", lambda key: (looks.append(world.now), lookup(key))[1])
    while world.now < 1001.0 and not world.queue.taken():
        assert world.next() is None
        world.now += 0.01
    assert world.claims.asked == 1
    assert 2 <= len(looks) <= 4
    world.store.publish(world.entries[0][1])
    while not (taken := world.queue.taken()):
        assert world.next() is None
        world.now += 0.05
    assert world.now <= 1002.5
    assert (taken[0][0], world.claims.asked) == (world.jobs[0], 1)


def test_nobody_waits_for_a_far_one_longer_than_building_would_take() -> None:
    """A second at most and what one operator takes on its workers; then all of them are kept busy, unclaimed."""
    world = World(20, limit=3)
    world.claims.held = {key.sha256: FAR for key, _ in world.entries}
    started = world.now
    while (number := world.next()) is None:
        world.now += world.queue.pause() or 0.01
    assert 0.5 + 0.15 / 2 <= world.now - started <= 1.0 + 0.15 / 2 + 0.1
    assert number is not None
    world.now += 0.1
    second = world.next()
    assert second is not None
    assert world.next() is None
    world.now += 1.0
    other = min({0, 1, 2} - {number, second})
    world.store.publish(world.entries[other][1])
    while not world.queue.taken():  # beside what is built
        assert world.next() is None
        world.now += 0.1
    world.queue.answered(world.jobs[number])
    assert world.next() is not None


def test_what_another_took_over_is_waited_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice: then it is built without a claim. What comes meanwhile is taken."""
    world = World(2, limit=3)
    world.claims.held = {key.sha256: FAR for key, _ in world.entries}
    taken_over: list[float] = []

    def take(key: Key, patience: float = math.inf) -> Claim | Holder:
        if patience < math.inf and key is world.entries[0][0]:
            taken_over.append(world.now)
        return FAR

    monkeypatch.setattr(world.claims, "take", take)
    started = world.now
    while (number := world.next()) is None:
        world.now += world.queue.pause() or 0.01
        if len(taken_over) == 1 and len(world.store.names()) == 0:
            world.store.publish(world.entries[1][1])
    assert number == 0
    assert len(taken_over) == 2
    assert taken_over[1] - taken_over[0] >= queue.SUCCESSION
    assert 1.5 <= world.now - started <= 2.5
    assert [job for job, _ in world.queue.taken()] == [world.jobs[1]]


def test_of_what_far_ones_hold_little_is_asked_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three questions in vain, then a pause: a fleet that asks for everything is its store's load."""
    monkeypatch.setattr(queue, "A_LITTLE", 60.0)
    world = World(40, limit=3)
    world.claims.held = {key.sha256: FAR for key, _ in world.entries}
    assert world.next() is None
    asked = world.claims.asked
    assert asked <= 3
    world.claims.held = {}
    for _ in range(2):
        assert world.next() is None
    assert world.claims.asked == asked
    world.now += world.queue.pause() or 0.0
    assert world.next() is not None


@pytest.mark.parametrize("seed", range(20))
def test_whatever_far_ones_do_everything_is_built_or_taken_in_time(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holders that publish, die or come late, in any order: nobody is later than alone by more than a little."""
    chance = random.Random(seed)
    monkeypatch.setattr(random, "uniform", chance.uniform)
    world = World(12, limit=3)
    held = {number: chance.choice((0.1, 0.5, 2.0, 1e9)) for number in range(12) if chance.random() < 0.7}
    world.claims.held = {world.entries[number][0].sha256: FAR for number in held}
    busy: list[tuple[float, int]] = []
    while any(job.open for job in world.jobs):
        for number, seconds in tuple(held.items()):
            if world.now >= 1000.0 + seconds:
                world.store.publish(world.entries[number][1])
                del world.claims.held[world.entries[number][0].sha256], held[number]
        while busy and busy[0][0] <= world.now:
            _, number = busy.pop(0)
            world.jobs[number].entry = world.entries[number][1]
            world.queue.answered(world.jobs[number])
        while (number := world.next()) is not None:
            busy = sorted([*busy, (world.now + 0.15, number)])
        world.queue.taken()
        world.now += 0.01
    assert world.now - 1000.0 <= 12 * 0.15 / 2 + 1.0 + 0.5


def test_an_operator_that_is_debugged_is_built_whoever_has_it() -> None:
    """It is neither claimed nor taken from anywhere."""
    world = World(2)
    world.jobs[1].debug = ()  # type: ignore[assignment]
    world.claims.held = {key.sha256: FAR for key, _ in world.entries}
    for _, entry in world.entries:
        world.store.publish(entry)
    assert world.next() == 1


def test_what_operators_took_here_says_how_long_to_wait() -> None:
    """Slow ones are waited for longer: what two take one after the other."""
    world = World(2, limit=2)
    world.claims.held = {world.entries[1][0].sha256: FAR}
    assert world.next() == 0
    entry = entry_of(conv(0), milliseconds=5000.0)[1]
    world.jobs[0].entry = entry
    world.queue.answered(world.jobs[0])
    started = world.now
    while world.next() is None:
        world.now += world.queue.pause() or 0.01
    assert 10.5 <= world.now - started <= 11.1


class Recorded:
    """A claim that notes when it is given up."""

    def __init__(self, name: str, released: list[str]) -> None:
        self.name, self.released = name, released

    def release(self) -> None:
        """Note it."""
        self.released.append(self.name)


def test_a_fleets_claim_is_given_up_after_what_it_was_for_was_sent() -> None:
    """The host's is given up at once; whoever takes the fleet's next finds the entry."""
    released: list[str] = []
    waiting: list[Callable[[], None]] = []

    class Side(Claims):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def take(self, key: Key, patience: float = math.inf) -> Claim | Holder:
            answer = super().take(key, patience)
            return answer if isinstance(answer, Holder) else Recorded(self.name, released)

    near, far = Side("near"), Side("far")
    fleet = FleetClaims(near, far, waiting.append)
    key, _ = entry_of(conv(1))
    claim = fleet.take(key)
    assert not isinstance(claim, Holder)
    claim.release()
    claim.release()
    assert released == ["near"]
    for each in waiting:
        each()
    assert released == ["near", "far"]
    far.held = {key.sha256: OTHER}
    assert fleet.take(key) == Holder(4711, "node7", 2, is_far=True)
    assert released == ["near", "far", "near"]
    near.held = {key.sha256: OTHER}
    asked = far.asked
    assert fleet.take(key) == OTHER
    assert far.asked == asked
