"""The threads of a network (``threads.c``): every task runs once, whoever calls, however many threads there are."""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opbuild.runtime.link import find_linker, link, support_parts

TASK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
HERE = {"x86_64": "x86-64-linux", "aarch64": "arm-64-linux"}.get(platform.machine(), "")


class Pool:
    """The object, linked alone and loaded."""

    def __init__(self, path: Path, threads: int) -> None:
        path.write_bytes(link([support_parts(HERE)["threads"]], find_linker()))
        self.library = ctypes.CDLL(str(path))
        self.library.halide_set_num_threads(threads)

    def run(self, task: Callable[[int], int | None], first: int, size: int) -> int:
        """Divide tasks ``first`` to ``first + size - 1`` among the threads; return the loop's error code."""
        return int(self.library.halide_do_par_for(None, TASK(lambda _, i, __: task(i) or 0), first, size, None))


@pytest.fixture
def make(tmp_path: Path) -> Any:
    """Make pools of their own, whose threads end with the test."""
    if not HERE:
        pytest.skip("no object for this machine: Halide's own threads are used")
    pools = []

    def made(threads: int) -> Pool:
        pools.append(Pool(tmp_path / f"{len(pools)}.so", threads))
        return pools[-1]

    yield made
    for pool in pools:
        pool.library.halide_shutdown_thread_pool()


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_every_task_runs_once(make: Any, threads: int) -> None:
    """For any number of tasks, fewer than threads and many more, loop after loop."""
    pool = make(threads)
    for size in (0, 1, 2, 3, 6, 7, 8, 50, 301):
        for first in (0, -5):
            counts: Counter[int] = Counter()
            assert pool.run(lambda i, counts=counts: counts.update([i]), first, size) == 0
            assert counts == Counter(range(first, first + size))


def test_each_task_has_a_stack_that_begins_with_a_page(make: Any, tmp_path: Path) -> None:
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


def test_all_threads_take_part(make: Any) -> None:
    """Tasks that wait for each other end only if as many threads run them."""
    pool = make(4)
    together = threading.Barrier(4, timeout=60)
    assert pool.run(lambda _: together.wait() and None, 0, 4) == 0


def test_a_slow_threads_share_is_taken_by_the_others(make: Any) -> None:
    """The thread of task 0 ends last: everybody else's tasks and the rest of its own are done meanwhile."""
    pool = make(2)
    done: list[int] = []
    rest = threading.Event()

    def task(index: int) -> None:
        if index == 0:
            assert rest.wait(60)
        done.append(index)
        if len(done) == 19:
            rest.set()

    assert pool.run(task, 0, 20) == 0
    assert done[-1] == 0
    assert sorted(done) == list(range(20))


def test_the_first_error_ends_the_loop(make: Any) -> None:
    """The code comes back, tasks that have not begun are left out, and the next loop is a fresh one."""
    pool = make(3)
    begun = []
    assert pool.run(lambda i: begun.append(i) or -7, 0, 1000) == -7
    assert len(begun) <= 3
    assert pool.run(lambda i: None, 0, 1000) == 0


def test_loops_inside_tasks_and_of_many_callers_run(make: Any) -> None:
    """Four callers at once, each with loops inside its tasks: each loop is whole."""
    pool = make(3)
    wrong: list[int] = []

    def grid(size: int) -> Counter[tuple[int, int]]:
        counts: Counter[tuple[int, int]] = Counter()

        def inner(row: int) -> None:
            pool.run(lambda column: counts.update([(row, column)]), 0, 3)

        pool.run(inner, 0, size)
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


def test_threads_that_sleep_wake_and_threads_that_ended_start_again(make: Any) -> None:
    """After a pause longer than they look for work, and after a shutdown, all threads take part again."""
    pool = make(3)
    for pause in (0.0, 0.1, 0.3):
        together = threading.Barrier(3, timeout=60)
        threading.Event().wait(pause)
        assert pool.run(lambda _, b=together: b.wait() and None, 0, 3) == 0
    pool.library.halide_shutdown_thread_pool()
    pool.library.halide_shutdown_thread_pool()
    together = threading.Barrier(3, timeout=60)
    assert pool.run(lambda _: together.wait() and None, 0, 3) == 0


def test_a_forked_child_does_all_the_work_itself(make: Any) -> None:
    """It has none of the threads, waits for none, and may shut the pool down."""
    pool = make(3)
    pool.run(lambda i: None, 0, 30)
    child = os.fork()
    if child == 0:
        done: list[int] = []
        pool.run(done.append, 0, 30)
        pool.library.halide_shutdown_thread_pool()
        os._exit(0 if sorted(done) == list(range(30)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_threads_take_no_signals(make: Any) -> None:
    """A signal interrupts the caller's threads, Python's main thread first of all."""
    pool = make(3)
    before = {int(each.name) for each in Path("/proc/self/task").iterdir()}
    together = threading.Barrier(3, timeout=60)
    pool.run(lambda _: together.wait() and None, 0, 3)
    ours = {int(each.name) for each in Path("/proc/self/task").iterdir()} - before
    masks = [Path(f"/proc/self/task/{task}/status").read_text().split("SigBlk:")[1].split()[0] for task in ours]
    assert len(masks) == 2
    # SIGKILL (9), SIGSTOP (19) and the C library's own 32 and 33 can not be blocked.
    assert all(int(mask, 16) | 1 << 8 | 1 << 18 | 3 << 31 == (1 << 64) - 1 for mask in masks)
