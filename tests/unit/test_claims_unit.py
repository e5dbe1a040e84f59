"""Taking turns, second by second: what is compiled, waited for, said and taken, on a clock of the test's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opbuild.builder.job import Job
from opbuild.builder.queue import Queue
from opbuild.cli.progress import LineProgress
from opbuild.events import BuildStarted, CompileFinished, Taken, Waiting
from opbuild.kernel.interfaces import UNCLAIMED, Claim, Found, Holder
from opbuild.kernel.key import Key
from opbuild.kernel.reason import Reason
from opbuild.store.memory import MemoryStore
from samples import conv, entry_of

OTHER = Holder(4711, "node7", 2)


class Claims:
    """Claims that a test gives and takes."""

    def __init__(self) -> None:
        self.held: dict[str, Holder] = {}
        self.asked = 0

    def take(self, key: Key) -> Claim | Holder:
        """Return the holder that the test says, else a claim."""
        self.asked += 1
        return self.held.get(key.sha256, UNCLAIMED)

    def close(self) -> None:
        """Keep nothing."""


class World:
    """A queue of operators, the claims on them, the store, and the time."""

    def __init__(self, count: int, limit: int = 2, patience: float = 300.0) -> None:
        self.now = 1000.0
        self.claims = Claims()
        self.store = MemoryStore()
        self.entries = [entry_of(conv(tile)) for tile in range(count)]
        self.jobs = [
            Job(conv(tile), key, f"conv_{tile}_0", ("node",), self.store, Reason("absent", "not in the store"))
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

    class Lending(MemoryStore):
        def lookup(self, key: Key) -> Found:  # type: ignore[override]  it always has it
            return Found(entry_of(conv(0))[1], "rank 2")

    here = world(1)
    here.jobs[0].store = Lending()
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
