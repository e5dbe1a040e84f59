"""One pool of threads for all networks of a process: how many there are, whom they help, and what ends them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from opbuild import native
from support.forked import in_fork
from support.handmade import build, parallel_program
from support.pools import Pool, PooledNetwork, new_pool, tasks_of_process
from support.together import run_together
from support.until import PATIENCE


@pytest.fixture
def pool() -> Iterator[Pool]:
    """A pool whose threads end with the test."""
    with new_pool() as made:
        yield made
        made.close()


@pytest.fixture(params=["emptied", "kept"])
def forked_pool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pool]:
    """The same, also as it is where the system cannot empty its memory in a child of a fork."""
    with new_pool(without_madvise(tmp_path) if request.param == "kept" else None) as made:
        yield made
        made.close()


def without_madvise(folder: Path) -> Path:
    """Return the pool's library compiled so that each call of ``madvise`` fails."""
    return with_faked(folder, "madvise", "void *a, unsigned long b, int c", "return (void)a, (void)b, (void)c, -1;")


def with_cores(folder: Path, cores: int) -> Path:
    """Return the pool's library compiled for a process that may use so many cores."""
    body = f"return (void)pid, (void)size, mask[0] = {(1 << cores) - 1}UL, 8;"
    return with_faked(folder, "sched_getaffinity", "int pid, unsigned long size, unsigned long *mask", body)


def with_faked(folder: Path, function: str, parameters: str, body: str) -> Path:
    """Return the pool's library compiled with another body of a function of the system's."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    faked, library = folder / "faked.c", folder / "pool.so"
    faked.write_text(f"int faked({parameters}) {{ {body} }}\n")
    source = Path(native.__file__).parent / "opbuild_pool.c"
    flags = ["-O2", "-shared", "-fPIC", f"-D{function}=faked"]
    subprocess.run([compiler, *flags, str(source), str(faked), "-o", str(library)], check=True)
    return library


def check(error: int) -> None:
    """Refuse the error code of a loop."""
    assert error == 0


class Running:
    """Tasks that count how many of them run at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.now = self.most = 0
        self.done: Counter[int] = Counter()

    def __call__(self, index: int) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.done[index] += 1
        time.sleep(0.001)
        with self._lock:
            self.now -= 1


def all_take_part(network: PooledNetwork, threads: int) -> bool:
    """Return whether a loop of tasks that wait for each other ends: only if so many threads run it."""
    together = threading.Barrier(threads, timeout=PATIENCE)
    return network.run(lambda _: together.wait() and None, 0, threads) == 0


@contextmanager
def open_loop(network: PooledNetwork, helpers: int) -> Iterator[None]:
    """Keep a loop of a network open, with so many threads of the pool in it, who wait in their tasks."""
    inside, leave = threading.Semaphore(0), threading.Event()

    def task(_: int) -> None:
        inside.release()
        assert leave.wait(PATIENCE)

    caller = threading.Thread(target=network.run, args=(task, 0, helpers + 1))
    caller.start()
    for _ in range(helpers + 1):
        assert inside.acquire(timeout=PATIENCE)
    yield
    leave.set()
    caller.join()


@pytest.mark.parametrize("count", [9, 50])
def test_any_number_of_networks_of_two_threads_has_one_thread(pool: Pool, count: int) -> None:
    """Not one a network: the caller's own, and one of the pool's."""
    for network in [pool.open(2) for _ in range(count)]:
        assert all_take_part(network, 2)
        assert pool.count(1) == 1


@pytest.mark.parametrize(("cores", "most"), [(2, 1), (3, 2), (8, 4)])
def test_networks_that_run_at_once_have_threads_for_the_cores(tmp_path: Path, cores: int, most: int) -> None:
    """Networks of two threads, a caller each: as many further threads as callers where there are cores, never more."""
    with new_pool(with_cores(tmp_path, cores)) as pool:
        networks = [pool.open(2) for _ in range(4)]
        assert all_take_part(networks[0], 2)
        assert pool.count(1) == 1  # a caller that is alone needs one

        def all_at_once() -> list[object]:
            at_once = threading.Barrier(2 * most)

            def wait_for_all(_index: int) -> None:
                at_once.wait(5)

            return list(run_together(lambda number: check(networks[number].run(wait_for_all, 0, 2)), most))

        # Again where threads of the pool took both tasks of a caller that was not scheduled in time.
        assert any(all_at_once() == [] for _ in range(5))
        assert run_together(lambda number: check(networks[number].run(lambda _: None, 0, 9)), 4) == []
        assert pool.count(most) == most
        pool.close()


def test_the_process_has_the_threads_of_the_network_with_the_most(pool: Pool) -> None:
    """They start when they are needed, and end with the last network that needs them, in any order."""
    small, large, larger = pool.open(2), pool.open(4), pool.open(6)
    for network, count in ((small, 1), (large, 3), (larger, 5), (small, 5)):
        assert all_take_part(network, network.threads)
        assert pool.count(count) == count
    for network, count in ((larger, 3), (small, 3), (large, 0)):
        network.close()
        assert pool.count(count) == count


def test_each_network_has_its_own_number_of_threads(pool: Pool) -> None:
    """Also when the pool has more, and while others' loops run: never more of its tasks run at once."""
    networks = [pool.open(threads) for threads in (2, 3, 5, 1)]
    tasks = [Running() for _ in networks]
    assert all_take_part(networks[2], 5)

    def call(number: int) -> None:
        for _ in range(20):
            assert networks[number].run(tasks[number], 0, 12) == 0

    assert run_together(call, len(networks)) == []
    for network, each in zip(networks, tasks, strict=True):
        assert each.most <= network.threads
        assert each.done == Counter(dict.fromkeys(range(12), 20))
    assert all_take_part(networks[0], 2)


def test_a_loop_of_few_threads_gets_no_more_than_those(pool: Pool) -> None:
    """Of four threads that look for work it takes one, and its tasks never wait for another."""
    few, many = pool.open(2), pool.open(5)
    assert all_take_part(many, 5)
    tasks = Running()
    assert few.run(tasks, 0, 40) == 0
    assert tasks.most <= 2


def test_loops_are_open_at_once_and_both_get_help(pool: Pool) -> None:
    """While one keeps as many threads as it may have, the rest help another caller's."""
    one, other = pool.open(2), pool.open(4)
    assert all_take_part(other, 4)
    with open_loop(one, 1):
        assert all_take_part(other, 3)
    assert all_take_part(other, 4)


def test_each_thread_has_the_same_share_in_each_loop(pool: Pool) -> None:
    """What it wrote in the loop before lies in its core's cache; also after it has slept."""
    network = pool.open(4)
    shares: dict[int, set[int]] = {}
    for sleeps in (False, False, True, False):
        together = threading.Barrier(4, timeout=PATIENCE)
        if sleeps:
            pool.wait_for_sleep()

        def task(index: int, together: threading.Barrier = together) -> None:
            shares.setdefault(threading.get_ident(), set()).add(index)
            together.wait()  # so that each thread runs one

        assert network.run(task, 0, 4) == 0
    assert sorted(shares.values(), key=min) == [{0}, {1}, {2}, {3}]


def test_a_loop_runs_while_all_threads_are_elsewhere(pool: Pool) -> None:
    """Its caller does all the work, and waits for nobody."""
    one, other = pool.open(3), pool.open(3)
    with open_loop(one, 2):
        tasks = Running()
        assert other.run(tasks, 0, 10) == 0
        assert (tasks.most, sum(tasks.done.values())) == (1, 10)


def test_a_thread_that_becomes_free_joins_the_loop_with_the_fewest_helpers(pool: Pool) -> None:
    """Two are open that have room: it leaves the one that has a helper, although that is the older one."""
    first, helped, alone = pool.open(2), pool.open(3), pool.open(3)
    assert all_take_part(helped, 3)
    inside, begun, leave = threading.Semaphore(0), threading.Event(), threading.Event()
    together = threading.Barrier(2, timeout=PATIENCE)

    def stay(_: int) -> None:
        inside.release()
        assert leave.wait(PATIENCE)

    def meet(_: int) -> None:
        begun.set()
        together.wait()  # ends only where a second thread comes

    loops = ((helped, stay, 3), (alone, meet, 2))
    callers = [threading.Thread(target=network.run, args=(task, 0, size)) for network, task, size in loops]
    with open_loop(first, 1):
        callers[0].start()
        assert inside.acquire(timeout=PATIENCE)
        assert inside.acquire(timeout=PATIENCE)
        callers[1].start()
        assert begun.wait(PATIENCE)
    callers[1].join()
    leave.set()
    callers[0].join()
    assert not together.broken


def test_a_loop_inside_a_task_is_run_by_its_caller(pool: Pool) -> None:
    """Also while other threads are free."""
    network = pool.open(4)
    assert all_take_part(network, 4)
    where: dict[int, set[int]] = {}

    def task(_: int) -> None:
        own = where.setdefault(threading.get_ident(), set())
        network.run(lambda _: time.sleep(0.002) or own.add(threading.get_ident()), 0, 8)

    assert network.run(task, 0, 2) == 0
    assert all(inner == {outer} for outer, inner in where.items())


def test_more_callers_than_loops_may_be_open_are_served(pool: Pool) -> None:
    """Who finds no room runs alone."""
    network = pool.open(3)
    tasks = [Running() for _ in range(70)]
    assert run_together(lambda number: network.run(tasks[number], 0, 5) and None, len(tasks)) == []
    assert all(each.done == Counter(range(5)) for each in tasks)


def test_an_idle_pool_takes_no_processor_time(pool: Pool) -> None:
    """Soon after the last call all threads sleep, and nothing wakes them."""
    assert all_take_part(pool.open(5), 5)
    pool.wait_for_sleep()
    before = time.process_time()
    switches = sum(map(switches_of, pool.threads()))
    time.sleep(0.5)
    assert time.process_time() - before < 0.02
    assert sum(map(switches_of, pool.threads())) == switches


def switches_of(thread: int) -> int:
    """Return how often a thread of this process has slept."""
    status = Path(f"/proc/self/task/{thread}/status").read_text()
    return int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])


def test_networks_that_come_and_go_leave_no_threads(pool: Pool) -> None:
    """While another network stays; also where they are never called."""
    stays = pool.open(2)
    assert all_take_part(stays, 2)
    for turn in range(30):
        network = pool.open(2 + turn % 4)
        if turn % 3:
            assert all_take_part(network, network.threads)
        network.close()
        assert pool.count(1) == 1


def test_networks_open_and_close_while_others_run(pool: Pool) -> None:
    """Threads that end leave loops whole, and no call fails."""
    stays = pool.open(3)
    counts = [Counter[int]() for _ in range(6)]

    def use(number: int) -> None:
        for turn in range(40):
            if number % 2:
                network = pool.open(2 + (number + turn) % 4)
                assert network.run(lambda i: counts[number].update([i]), 0, 7) == 0
                network.close()
            else:
                assert stays.run(lambda i: counts[number].update([i]), 0, 7) == 0

    assert run_together(use, len(counts)) == []
    assert all(each == Counter(dict.fromkeys(range(7), 40)) for each in counts)
    assert pool.count(2) <= 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own(forked_pool: Pool) -> None:
    """Whatever the parent does at that moment, and also in a child of the child; none starts before it is needed."""
    network, busy = forked_pool.open(3), forked_pool.open(3)
    assert all_take_part(network, 3)
    works_in_fork: list[bool] = []

    def works() -> bool:
        begins_alone = len(tasks_of_process()) == 1
        return begins_alone and all_take_part(network, 3) and len(tasks_of_process()) == 3

    def closes_all() -> bool:
        for each in (network, busy):
            each.close()
        return len(tasks_of_process()) == 1

    def has_child() -> bool:
        return in_fork(works) and works() and closes_all()

    assert in_fork(works)
    assert in_fork(closes_all)
    with open_loop(busy, 2):
        assert in_fork(works)
        assert in_fork(has_child)
        assert run_together(lambda _: works_in_fork.append(in_fork(works)), 1) == []
    assert works_in_fork == [True]
    assert all_take_part(network, 3)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_in_a_task_ends_in_the_child_with_an_error(forked_pool: Pool) -> None:
    """The tasks that other threads have taken are not done there, and nobody waits for them; the next loop is whole."""
    network = forked_pool.open(2)
    parent, caller = os.getpid(), threading.get_ident()
    other, leave = threading.Event(), threading.Event()
    children: list[int] = []

    def task(_: int) -> None:
        if threading.get_ident() != caller:
            other.set()
            leave.wait(PATIENCE)
        elif os.getpid() == parent and not children:
            assert other.wait(PATIENCE)
            children.append(os.fork())
            if children[0] == 0:
                signal.alarm(20)
            else:
                leave.set()

    error = network.run(task, 0, 2)
    if os.getpid() != parent:
        os._exit(0 if error and all_take_part(network, 2) else 1)
    assert error == 0
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 0


@pytest.mark.slow
def test_fifty_networks_of_the_process_share_one_thread() -> None:
    """As Python's networks are: libraries of kernels, called through an executor."""
    before = tasks_of_process()
    x = np.arange(4096, dtype=np.float32)
    networks = [build(parallel_program(), threads=2).executor for _ in range(50)]
    for network in networks:
        np.testing.assert_array_equal(network.run([x])[0], x * 2 + 1)
    assert len(tasks_of_process() - before) <= 1


def test_many_callers_of_several_networks_get_their_own_results() -> None:
    """Eight at once on four networks of the process, which have two to five threads."""
    networks = [build(parallel_program(), threads=2 + number).executor for number in range(4)]
    wrong: list[int] = []

    def call(number: int) -> None:
        x = np.full(4096, number, np.float32)
        for _ in range(100):
            if not np.array_equal(networks[number % 4].run([x])[0], x * 2 + 1):
                wrong.append(number)

    assert run_together(call, 8) == []
    assert wrong == []
