"""Threads: one network serves any number of them at once."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from opbuild.graph.types import TensorType
from opbuild.report import Report
from opbuild.runtime.binding import Binding, Shapes
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.network import Network
from support.handmade import build, chain, counting, expected_chain
from support.small_network import SmallNetwork
from support.together import run_together

SIZE = 20_000


def test_threads_that_call_one_network_get_their_own_results() -> None:
    """Eight threads with different data, 200 calls each: every result is right; a signature binds once."""

    def bind(shapes: Shapes) -> Binding:
        return Binding(build(chain(shapes[0][0])).executor, Report("chain"))

    counted, bound = counting(bind)
    net = Network("chain", [Endpoint("x", TensorType("float32", (-1,)))], ["out"], counted)
    barrier = threading.Barrier(8)
    wrong: list[int] = []

    def work(number: int) -> None:
        x = np.full(SIZE, number, np.float32)
        expected = expected_chain(x)
        barrier.wait()
        for _ in range(200):
            if not np.array_equal(net(x), expected):
                wrong.append(number)

    assert run_together(work, 8) == []
    assert wrong == []
    assert bound == [((SIZE,),)]


def test_no_more_arenas_are_made_than_calls_run_at_once() -> None:
    """Arenas are reused: calls one after another use one, and four threads at most four."""
    executor = build(chain(SIZE)).executor
    x = np.ones(SIZE, np.float32)
    for _ in range(10):
        executor.run([x])
    assert len(executor.blocks._free) == 1
    threads = [threading.Thread(target=lambda: [executor.run([x]) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(executor.blocks._free) <= 4


@pytest.mark.slow
def test_threads_may_be_the_first_to_use_anything(small_network: SmallNetwork, tmp_path: Path) -> None:
    """In a process that has loaded nothing yet: imports that wait for each other ended in an error of Python's."""
    with small_network.replayed():
        small_network.build(tmp_path)
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", FIRST_USERS, str(small_network.path), str(tmp_path)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stdout.split() == ["4"], done.stdout + done.stderr


FIRST_USERS = """
import sys, threading
import opbuild

sys.setswitchinterval(1e-5)
barrier, built = threading.Barrier(4), []

def use(number):
    barrier.wait()
    if number == 0:
        opbuild.Report
    if number == 1:
        opbuild.operators
    built.append(opbuild.compile(sys.argv[1], cache_path=sys.argv[2], input_shapes={"x": (64, 256)}))

threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(built))
"""
