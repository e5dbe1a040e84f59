"""Measuring a machine by opbuild's own kernels: the rate of its products at each level."""

from __future__ import annotations

import time

import numpy as np

from opbuild.graph.types import Graph, Node, TensorType
from opbuild.pipeline.setup import Setup
from opbuild.platform.records import replace
from opbuild.store.machine_class import MeasuredMachine, read_measured, system_class
from opbuild.target.host import host_level
from opbuild.target.level import Level
from opbuild.tuning.forms import Forms

SIZE = 256
"""Rows and columns of the matrices whose product is timed; its panels stay in a core's caches."""

RUNS = 60

LEAST_FLAGS = 8
"""Words of ``/proc/cpuinfo`` that a level of x86-64 needs to be worth measuring: those before it have no FMA."""


def measure_machine(setup: Setup) -> MeasuredMachine:
    """Measure this machine; it takes seconds, and kernels are built through the store.

    Whatever level a setup is for, each that is worth building for is measured. A class that was measured before stays
    the machine's unless a rate is clearly out of it.

    Raises:
        BuildError: If they cannot be built.
    """
    setup = replace(setup, level=host_level())
    config = replace(setup.config, num_threads=1)
    peak = {level.name: _rate(replace(setup, config=config, level=level)) for level in worth_building(setup.level)}
    rates = {name: round(rate, 1) for name, rate in peak.items()}
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return MeasuredMachine(system_class(), rates, date).after(read_measured(setup.config, setup.trust))


def worth_building(level: Level) -> list[Level]:
    """Return a level and those below it that are worth building for."""
    return [level, *(each for each in level.lower() if len(each.flags) >= LEAST_FLAGS)]


def _rate(setup: Setup) -> float:
    """Return the best rate of products, multiplications and additions in a nanosecond."""
    form = Forms(_product(SIZE), setup, [np.ones((SIZE, SIZE), np.float32)]).make({})
    best = min(sum(form.run(time.thread_time_ns)) for _ in range(RUNS))
    return 2 * SIZE**3 / max(best, 1)


def _product(size: int) -> Graph:
    square = TensorType("float32", (size, size))
    weights = np.ones((size, size), np.float32)
    node = Node("MatMul", ("x", "w"), ("y",), name="product")
    return Graph("product", (node,), ("x",), ("y",), dict.fromkeys(("x", "w", "y"), square), {"w": weights})
