"""Measuring a machine by what opbuild builds for it: the rate of its products at each level, and what waking costs."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from opbuild.graph.types import Graph, Node, TensorType
from opbuild.kernel.host import here, host_level
from opbuild.kernel.level import Level
from opbuild.pipeline.setup import Setup
from opbuild.store.machine_class import Measured, system_class
from opbuild.tuning.forms import Forms

SIZE = 256
"""Rows and columns of the matrices whose product is timed; its panels stay in a core's caches."""

RUNS, GAPS = 60, 40
GAP = 0.01
"""Seconds between calls after which threads sleep."""

LEAST_FLAGS = 8
"""Words of ``/proc/cpuinfo`` that a level of x86-64 needs to be worth measuring: those before it have no FMA."""


def measure_machine(setup: Setup) -> Measured:
    """Measure this machine; it takes seconds, and kernels are built through the store.

    Whatever level a setup is for, each that is worth building for is measured, and waking by code of the machine's own.

    Raises:
        BuildError: If they can not be built.
    """
    setup = replace(setup, level=host_level())
    config = replace(setup.config, num_threads=1)
    peak = {level.name: _rate(replace(setup, config=config, level=level)) for level in worth_building(setup.level)}
    return Measured(
        system_class(),
        {name: round(rate, 1) for name, rate in peak.items()},
        round(_waking(setup)),
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )


def worth_building(level: Level) -> list[Level]:
    """Return a level and those below it that are worth building for."""
    return [level, *(each for each in level.lower() if len(each.flags) >= LEAST_FLAGS)]


def _rate(setup: Setup) -> float:
    """Return the best rate of products, multiplications and additions in a nanosecond."""
    form = Forms(_product(SIZE), setup, [np.ones((SIZE, SIZE), np.float32)]).make({})
    best = min(sum(form.run(time.thread_time_ns)) for _ in range(RUNS))
    return 2 * SIZE**3 / max(best, 1)


def _waking(setup: Setup) -> float:
    """Return by how much a call that a second, sleeping thread shares takes longer than the same call alone."""
    if here().cores == 1:
        return 0.0
    rows = np.ones((SIZE, SIZE), np.float32)
    alone, shared = (
        Forms(_product(SIZE), replace(setup, config=replace(setup.config, num_threads=threads)), [rows]).make({})
        for threads in (1, 2)
    )
    times: dict[int, list[int]] = {1: [], 2: []}
    for _ in range(GAPS):
        for threads, form in ((1, alone), (2, shared)):
            time.sleep(GAP)
            times[threads].append(sum(form.run(time.perf_counter_ns)))
    return max(min(times[2]) - min(times[1]) / 2, 1.0)  # what others do on the machine only adds to times


def _product(size: int) -> Graph:
    square = TensorType("float32", (size, size))
    weights = np.ones((size, size), np.float32)
    node = Node("MatMul", ("x", "w"), ("y",), name="product")
    return Graph("product", (node,), ("x",), ("y",), dict.fromkeys(("x", "w", "y"), square), {"w": weights})
