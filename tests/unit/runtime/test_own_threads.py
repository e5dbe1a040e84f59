"""Libraries with the compiler's own threads, as networks have where there is no pool for the machine."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import halide as hl
import numpy as np
import pytest

from opbuild.runtime.executor import Executor
from support import handmade
from support.forked import in_fork
from support.handmade import build, parallel_program
from support.pools import tasks_of_process

X = np.arange(4096, dtype=np.float32)
pytestmark = pytest.mark.usefixtures("few_objects")


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    """A network that is linked with the compiler's runtime library and nothing else."""
    runtime = tmp_path / "runtime.o"
    hl.compile_standalone_runtime(str(runtime), hl.Target("host"))
    monkeypatch.setattr(handmade, "SUPPORT", [runtime.read_bytes()])
    yield build(parallel_program(), threads=3).executor
    gc.collect()


def is_right(network: Executor) -> bool:
    """Whether the network computes what it should."""
    return np.array_equal(network.run([X])[0], X * 2 + 1)


@pytest.mark.slow
def test_they_are_its_own_and_end_with_it(executor: Executor) -> None:
    """They are not the pool's: each network has as many as it was told."""
    before = tasks_of_process()
    other = build(parallel_program(), threads=4).executor
    assert is_right(executor)
    assert is_right(other)
    assert len(tasks_of_process() - before) == 2 + 3
    del other
    gc.collect()
    assert len(tasks_of_process() - before) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_runs_its_tasks_alone(executor: Executor) -> None:
    """Whatever its parent was doing: neither a call nor the network's end waits for threads that are not there."""
    end = threading.Event()

    def child() -> bool:
        before = tasks_of_process()
        right = all(is_right(executor) for _ in range(20)) and tasks_of_process() == before
        executor.modules = {}
        executor.calls.callees.clear()
        executor.blocks.shrink(-1)
        gc.collect()
        return right

    def run_on() -> None:
        while not end.is_set():
            assert is_right(executor)

    callers = [threading.Thread(target=run_on) for _ in range(3)]
    for caller in callers:
        caller.start()
    try:
        assert all(in_fork(child) for _ in range(8))
    finally:
        end.set()
        for caller in callers:
            caller.join()
