"""Leaks: ten thousand calls leave nothing behind, and neither does a network that is dropped."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support.handmade import build, chain, parallel_program

CALLS = """
import gc, os, tracemalloc
from pathlib import Path
import numpy as np
from support.handmade import build, chain
from opbuild.graph.types import TensorType
from opbuild.report import Report
from opbuild.runtime.binding import Binding
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.network import Network

def grown(calls):
    def memory():
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return tracemalloc.get_traced_memory()[0], pages * os.sysconf("SC_PAGE_SIZE")
    before = memory()
    for _ in range(calls):
        net(x)
    return [now - then for now, then in zip(memory(), before)]

binding = Binding(build(chain(32_768)).executor, Report("c"))
endpoint = Endpoint("x", TensorType("float32", (32_768,)))
net = Network("c", [endpoint], ["out"], lambda _: binding, first=binding)
x = np.ones(32_768, np.float32)
tracemalloc.start()
grown(1_000)
print(*grown(10_000))
"""


@pytest.mark.slow
def test_ten_thousand_calls_leave_nothing_behind() -> None:
    """Python's memory grows by less than 64 KiB and the process, which does nothing else, by less than 4 MiB."""
    place = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", CALLS], check=True, capture_output=True, text=True, env=place)
    grown, resident_grown = map(int, done.stdout.split())
    assert grown < 64 * 1024
    assert resident_grown < 4 * 1024 * 1024


def test_a_network_keeps_no_reference_to_the_callers_arrays() -> None:
    """Inputs and outputs of the last call are freed with the caller's references."""
    import weakref

    executor = build(chain()).executor
    x = np.ones(32, np.float32)
    out = executor.run([x])[0]
    watched = weakref.ref(x), weakref.ref(out)
    del x, out
    assert [reference() for reference in watched] == [None, None]


@pytest.mark.slow
def test_a_dropped_network_gives_back_its_threads_files_and_library() -> None:
    """Garbage collection ends the thread pool, unloads the library and closes its file; fifty networks cost nothing."""
    x = np.ones(4096, np.float32)

    def once() -> None:
        executor = build(parallel_program(), threads=3).executor
        executor.run([x])

    once()
    gc.collect()

    def state() -> tuple[int, int, int]:
        tasks = len(list(Path("/proc/self/task").iterdir()))
        mapped = Path("/proc/self/maps").read_text(errors="surrogateescape").count("opbuild-network")
        return tasks, len(list(Path("/proc/self/fd").iterdir())), mapped

    before = state()
    for _ in range(50):
        once()
    gc.collect()
    assert all(now <= then for now, then in zip(state(), before, strict=True))  # what others left may have ended
