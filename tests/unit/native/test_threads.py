"""The threads of one network (``opbuild_pool.c``): every task runs once, whoever calls, however many there are."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.pools import PooledNetwork, new_pool, tasks_of_process
from support.until import PATIENCE

Make = Callable[[int], PooledNetwork]


@pytest.fixture
def make() -> Iterator[Make]:
    """Make networks, each with a pool of its own, whose threads end with the test."""
    with contextlib.ExitStack() as stack:

        def made(threads: int) -> PooledNetwork:
            pool = stack.enter_context(new_pool())
            stack.callback(pool.close)
            return pool.open(threads)

        yield made


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_every_task_runs_once(make: Make, threads: int) -> None:
    """For any number of tasks, fewer than threads and many more, loop after loop."""
    network = make(threads)
    for size in (0, 1, 2, 3, 6, 7, 8, 50, 301):
        for first in (0, -5):
            counts: Counter[int] = Counter()
            assert network.run(lambda i, counts=counts: counts.update([i]), first, size) == 0
            assert counts == Counter(range(first, first + size))


def test_each_task_has_a_stack_that_begins_with_a_page(make: Make, tmp_path: Path) -> None:
    """Whoever runs it and however deep its caller is: kernels do not align the vectors in their frames."""
    source, library = tmp_path / "task.c", tmp_path / "task.so"
    source.write_text(
        "int task(void *context, int index, unsigned char *places) {\n"
        "    ((void **)places)[index] = __builtin_dwarf_cfa();\n"
        "    return 0;\n"
        "}\n"
    )
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        pytest.skip("no C compiler")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    task = ctypes.cast(ctypes.CDLL(str(library)).task, ctypes.c_void_p)
    for threads in (1, 2, 3):
        run = make(threads).library.halide_do_par_for

        def deeper(depth: int, run: Any = run) -> None:
            places = (ctypes.c_void_p * 40)()
            assert run(None, task, 0, 40, places) == 0
            assert {(place or 0) % 4096 for place in places} == {0}
            if depth:
                deeper(depth - 1)

        deeper(20)


def test_all_threads_take_part(make: Make) -> None:
    """Tasks that wait for each other end only if as many threads run them."""
    network = make(4)
    together = threading.Barrier(4, timeout=PATIENCE)
    assert network.run(lambda _: together.wait() and None, 0, 4) == 0


def test_a_slow_threads_share_is_taken_by_the_others(make: Make) -> None:
    """The thread of task 0 ends last: everybody else's tasks and the rest of its own are done meanwhile."""
    network = make(2)
    done: list[int] = []
    rest = threading.Event()

    def task(index: int) -> None:
        if index == 0:
            assert rest.wait(PATIENCE)
        done.append(index)
        if len(done) == 19:
            rest.set()

    assert network.run(task, 0, 20) == 0
    assert done[-1] == 0
    assert sorted(done) == list(range(20))


def test_the_first_error_ends_the_loop(make: Make) -> None:
    """The code comes back, tasks that have not begun are left out, and the next loop is a fresh one."""
    network = make(3)
    begun = []
    assert network.run(lambda i: begun.append(i) or -7, 0, 1000) == -7
    assert len(begun) <= 3
    assert network.run(lambda i: None, 0, 1000) == 0


def test_loops_inside_tasks_and_of_many_callers_run(make: Make) -> None:
    """Four callers at once, each with loops inside its tasks: each loop is whole."""
    network = make(3)
    wrong: list[int] = []

    def grid(size: int) -> Counter[tuple[int, int]]:
        counts: Counter[tuple[int, int]] = Counter()

        def inner(row: int) -> None:
            network.run(lambda column: counts.update([(row, column)]), 0, 3)

        network.run(inner, 0, size)
        return counts

    def caller() -> None:
        for size in range(1, 25):
            if grid(size) != Counter(itertools.product(range(size), range(3))):
                wrong.append(size)

    callers = [threading.Thread(target=caller) for _ in range(4)]
    for each in callers:
        each.start()
    for each in callers:
        each.join()
    assert not wrong


def test_threads_that_sleep_wake_and_threads_that_ended_start_again(make: Make) -> None:
    """After a pause longer than they look for work, and after the last network was closed, all take part again."""
    network = make(3)
    for _ in range(3):
        together = threading.Barrier(3, timeout=PATIENCE)
        network.pool.wait_for_sleep()
        assert network.run(lambda _, b=together: b.wait() and None, 0, 3) == 0
    network.close()
    network = network.pool.open(3)
    together = threading.Barrier(3, timeout=PATIENCE)
    assert network.run(lambda _: together.wait() and None, 0, 3) == 0


def test_the_threads_take_no_signals(make: Make) -> None:
    """A signal interrupts the caller's threads, Python's main thread first of all."""
    network = make(3)
    before = tasks_of_process()
    together = threading.Barrier(3, timeout=PATIENCE)
    network.run(lambda _: together.wait() and None, 0, 3)
    ours = tasks_of_process() - before
    masks = [Path(f"/proc/self/task/{task}/status").read_text().split("SigBlk:")[1].split()[0] for task in ours]
    assert len(masks) == 2
    # SIGKILL (9), SIGSTOP (19) and the C library's own 32 and 33 cannot be blocked.
    assert all(int(mask, 16) | 1 << 8 | 1 << 18 | 3 << 31 == (1 << 64) - 1 for mask in masks)
