"""Pools of threads for tests: each one loaded anew, with networks that consist of parallel loops only."""

from __future__ import annotations

import ctypes
import itertools
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from opbuild import native
from opbuild.runtime.devices.cpu.link import link, support_parts
from support.until import PATIENCE

TASK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
SUPPORT = Path(native.__file__).parent / "support"
HERE = {"x86_64": "x86-64-linux", "aarch64": "arm-64-linux"}.get(platform.machine(), "")

Task = Callable[[int], int | None]
"""What a loop does for each index; 0 or nothing, unless it failed."""


class PooledNetwork:
    """The pool's part of a network's library, linked alone and loaded.

    Args:
        pool: Whose threads it uses.
        path: Where its library is written.
        threads: The most that run a loop, the caller's among them.
    """

    def __init__(self, pool: Pool, path: Path, threads: int) -> None:
        path.write_bytes(_tasks_library())
        self.threads = threads
        self.library = ctypes.CDLL(str(path))
        self.pool = pool
        pool.library.opbuild_pool_open(threads)
        self.library.opbuild_use_pool(pool.library.opbuild_pool_run, threads)

    def run(self, task: Task, first: int, size: int) -> int:
        """Run tasks ``first`` to ``first + size - 1``; return the loop's error code, or raise what a task raised."""
        raised: list[BaseException] = []

        def call(_context: int | None, index: int, _closure: int | None) -> int:
            try:
                return task(index) or 0
            except BaseException as error:  # ctypes would only print it
                raised.append(error)
                return -1

        error = int(self.library.halide_do_par_for(None, TASK(call), first, size, None))
        if raised:
            raise raised[0]
        return error

    def close(self) -> None:
        """Use the pool no more."""
        self.pool.networks.remove(self)
        self.pool.library.opbuild_pool_close(self.threads)


class Pool:
    """A pool of its own, beside the process's.

    Args:
        folder: Where libraries are written.
        library: The pool's; it is copied.
    """

    def __init__(self, folder: Path, library: Path) -> None:
        self.library = ctypes.CDLL(str(shutil.copy(library, folder / "pool.so")))
        self.networks: list[PooledNetwork] = []
        self._folder = folder
        self._number = itertools.count()
        self._before = tasks_of_process()

    def open(self, threads: int) -> PooledNetwork:
        """Return a network that uses so many threads."""
        network = PooledNetwork(self, self._folder / f"{next(self._number)}.so", threads)
        self.networks.append(network)
        return network

    def close(self) -> None:
        """Close all networks, and see that no thread stays."""
        for network in list(self.networks):
            network.close()
        assert self.count(0) == 0

    def threads(self) -> set[int]:
        """Return the threads that the process did not have before, by their numbers."""
        return tasks_of_process() - self._before

    def count(self, most: int) -> int:
        """Return how many those are; if more than ``most``, after a while: the system still shows who just ended."""
        deadline = time.monotonic() + PATIENCE
        while (count := len(self.threads())) > most and time.monotonic() < deadline:
            time.sleep(0.001)
        return count

    def wait_for_sleep(self) -> None:
        """Return when all of those sleep; where cores are busy they look for work for longer than 10 ms."""
        deadline = time.monotonic() + PATIENCE
        while any(_state(thread) != "S" for thread in self.threads()):
            assert time.monotonic() < deadline, "threads look for work for ever"
            time.sleep(0.01)


def _state(thread: int) -> str:
    """Return the letter for what a thread of this process does: R runs, S sleeps."""
    return Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(") ")[2][0]


@contextmanager
def new_pool(library: Path | None = None) -> Iterator[Pool]:
    """Yield a pool of its own, made from the package's library or from another."""
    if not HERE:
        pytest.skip("no pool for this machine: the compiler's own threads are used")
    with tempfile.TemporaryDirectory() as folder:
        yield Pool(Path(folder), library or SUPPORT / f"pool_{platform.machine()}.so")


def tasks_of_process() -> set[int]:
    """Return the numbers of this process's threads."""
    return {int(each.name) for each in Path("/proc/self/task").iterdir()}


@cache
def _tasks_library() -> bytes:
    return link([support_parts(HERE)["tasks"]])
