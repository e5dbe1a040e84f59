"""Work behind what a program does: one job after the other, finished by whoever needs it."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from opbuild.platform import background
from opbuild.platform.background import BackgroundWriter, WriteJob
from support.forked import in_fork
from support.until import PATIENCE, until


@pytest.fixture
def lone(monkeypatch: pytest.MonkeyPatch) -> Iterator[BackgroundWriter]:
    """What works without a thread of its own, as if that never had its turn."""
    made = BackgroundWriter()
    monkeypatch.setattr(BackgroundWriter, "_work_idle", lambda self: None)
    yield made
    made.finish()


def noting(done: list[str], name: str) -> Callable[[], None]:
    """Return a task that notes its name."""
    return lambda: done.append(name)


@pytest.mark.parametrize("seed", range(20))
def test_the_last_task_of_a_job_follows_all_others_and_the_next_job_follows_it(seed: int) -> None:
    """Whoever does what: random jobs, one thread of their own, two that finish."""
    rng, done, made = random.Random(seed), list[str](), BackgroundWriter()
    jobs = [rng.randrange(5) for _ in range(6)]
    for number, tasks in enumerate(jobs):
        names = [f"{number} {task}" for task in range(tasks)]
        made.add(WriteJob(str(number), [noting(done, name) for name in names], noting(done, f"{number} last")))
        if rng.random() < 0.3:
            made.finish()
    made.finish()
    assert [name for name in done if name.endswith("last")] == [f"{number} last" for number in range(len(jobs))]
    place = 0
    for number, tasks in enumerate(jobs):
        assert sorted(done[place : place + tasks]) == [f"{number} {task}" for task in range(tasks)]
        place += tasks + 1
    assert place == len(done)


def test_a_job_is_done_without_anybody_asking() -> None:
    """By a thread of its own, which the system runs only where nobody else wants to."""
    policy, ended = list[int](), threading.Event()
    BackgroundWriter().add(
        WriteJob("", [lambda: policy.append(os.sched_getscheduler(threading.get_native_id()))], ended.set)
    )
    assert ended.wait(60)
    assert policy == [os.SCHED_IDLE]
    assert os.sched_getscheduler(threading.get_native_id()) != os.SCHED_IDLE


def test_who_finishes_does_what_is_left_itself(lone: BackgroundWriter) -> None:
    """No thread of the lowest priority is waited for, and more than one task is done at a time."""
    both = threading.Barrier(2, timeout=60)
    lone.add(WriteJob("", [both.wait, both.wait], lambda: None))
    lone.finish()
    assert both.n_waiting == 0
    assert not both.broken


def test_the_thread_of_the_lowest_priority_takes_nothing_more_when_somebody_finishes() -> None:
    """It ends what it has begun; the rest, the last task too, is done by who waits."""
    made, begun, may, by = BackgroundWriter(), threading.Event(), threading.Event(), list[str]()

    def slow() -> None:
        begun.set()
        may.wait(60)

    def note() -> None:
        by.append(threading.current_thread().name)
        may.set()

    made.add(WriteJob("", [slow, note, note, note], note))
    assert begun.wait(60)
    made.finish()
    assert len(by) == 4
    assert "opbuild-behind" not in by


def test_many_threads_that_add_and_finish_leave_nothing_undone() -> None:
    """Each of them finds what it added done when it has asked for it; what nobody asks for is done too."""
    made, done = BackgroundWriter(), list[str]()

    def use(name: str) -> None:
        rng = random.Random(name)
        for number in range(40):
            made.add(WriteJob(f"{name} {number}", [noting(done, "task")], noting(done, f"{name} {number}")))
            if rng.random() < 0.5:
                made.finish()
                assert f"{name} {number}" in done

    with ThreadPoolExecutor(4) as pool:
        [*pool.map(use, "abcd")]
    assert until(lambda: len(done) == 2 * 4 * 40)


def test_who_asks_for_one_name_waits_only_for_that(lone: BackgroundWriter) -> None:
    """Others go on behind."""
    done = list[str]()
    lone.add(WriteJob("first", [], noting(done, "first")))
    lone.finish("second")
    assert done == []
    lone.finish("first")
    assert done == ["first"]


def test_a_task_that_asks_for_what_is_being_done_does_not_wait_for_itself() -> None:
    """As ageing lists a folder at the end of a job."""
    made, done = BackgroundWriter(), list[str]()
    made.add(WriteJob("", [made.finish], lambda: (made.finish(), done.append("last"))))
    made.finish()
    assert done == ["last"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_error_leaves_out_the_rest_of_its_job_alone(error: type[BaseException], lone: BackgroundWriter) -> None:
    """Ctrl-C while a program waits for it; what others want to be done is done, and what is added later too."""
    done = list[str]()

    def broken() -> None:
        raise error

    lone.add(WriteJob("", [broken], noting(done, "last")))
    lone.add(WriteJob("", [noting(done, "another's task")], noting(done, "another's last")))
    with pytest.raises(error):
        lone.finish()
    lone.add(WriteJob("", [], noting(done, "later")))
    lone.finish()
    assert done == ["another's task", "another's last", "later"]


def test_an_interruption_waits_for_what_has_begun_alone(lone: BackgroundWriter) -> None:
    """What others want to be done is done behind: by a thread of its own, or when somebody finishes."""
    done, both = list[str](), threading.Barrier(2, timeout=PATIENCE)

    def task() -> None:
        both.wait()
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        assert until(lambda: not lone._finishing)

    lone.add(WriteJob("", [task, task], noting(done, "last")))
    lone.add(WriteJob("", [], noting(done, "another's")))
    with pytest.raises(KeyboardInterrupt):
        lone.finish()
    assert done == []
    lone.finish()
    assert done == ["another's"]


def test_who_is_interrupted_between_tasks_leaves_nobody_waiting_for_what_it_had_taken(
    lone: BackgroundWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C may come anywhere."""
    done, take = list[str](), WriteJob.take

    def interrupted(job: WriteJob) -> None:
        take(job)
        raise KeyboardInterrupt

    lone.add(WriteJob("", [], noting(done, "last")))
    lone.add(WriteJob("", [], noting(done, "another's")))
    with monkeypatch.context() as patch:
        patch.setattr(WriteJob, "take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lone.finish()
    lone.finish()
    assert done == ["another's"]


def test_without_threads_a_job_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a limit allows none."""
    monkeypatch.setattr(background, "begin", lambda work, name: None)
    done, made = list[str](), BackgroundWriter()
    made.add(WriteJob("", [noting(done, "one")], noting(done, "last")))
    assert done == ["one", "last"]


def test_a_fork_waits_for_what_is_left_and_has_nothing_to_do(lone: BackgroundWriter) -> None:
    """The child neither does it again nor waits for threads that stayed in the parent; it can have jobs of its own."""
    done = list[int]()
    lone.add(WriteJob("", [], lambda: done.append(os.getpid())))

    def child() -> list[int]:
        lone.finish()
        lone.add(WriteJob("", [], lambda: done.append(0)))
        lone.finish()
        return done

    assert in_fork(child) == [os.getpid(), 0]
    assert done == [os.getpid()]


def test_a_task_that_fails_ends_its_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the queue, and what comes then, is done without anybody asking."""
    made, ended, failed = BackgroundWriter(), threading.Event(), list[threading.ExceptHookArgs]()
    queued, next_ended = threading.Event(), threading.Event()
    monkeypatch.setattr(threading, "excepthook", failed.append)

    def fail() -> None:
        assert queued.wait(PATIENCE)
        raise ValueError("a task")

    made.add(WriteJob("", [], fail))
    made.add(WriteJob("", [], next_ended.set))
    queued.set()
    assert next_ended.wait(PATIENCE)
    assert until(lambda: not made._jobs)
    made.add(WriteJob("", [], ended.set))
    assert ended.wait(PATIENCE)
    assert until(lambda: bool(failed))
