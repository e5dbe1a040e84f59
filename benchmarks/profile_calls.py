"""Where the time of a network goes: each kernel call timed on its own, slowest first.

Times are medians over several runs of the whole network, so that each call meets the caches as it does in use; taking
them costs about a microsecond a call. GFLOP/s count the multiplications and additions of a direct convolution, whatever
the algorithm, so a Winograd kernel may exceed the machine's peak.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from math import prod
from typing import Any

import models
import numpy as np
from rich.console import Console
from rich.table import Table

import opbuild
from networks import random_input
from opbuild.runtime.record import KernelStep


def main() -> int:
    """Build one network, time its calls and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("network", choices=models.NAMES)
    parser.add_argument("--runs", type=int, default=20, help="runs of the whole network; the median counts")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--top", type=int, default=30, help="calls to print")
    parser.add_argument("--cache", help="store to build in; default: a fresh one")
    arguments = parser.parse_args()
    model = models.network(arguments.network)
    with tempfile.TemporaryDirectory() as folder:
        net = opbuild.compile(
            model.SerializeToString(), cache_path=arguments.cache or folder, num_threads=arguments.threads
        )
        times = _times(net, list(random_input(model).values()), arguments.runs)
    _print(net, times, arguments.top)
    return 0


def _times(net: Any, inputs: list[Any], runs: int) -> np.ndarray:
    """Return the median seconds of each call."""
    net(*inputs)
    executor = net._latest.executor
    block = executor.blocks.take()
    arena = block.enter(executor)
    outputs = [np.empty(shape, dtype) for shape, dtype in executor._made]
    arena.attach([np.ascontiguousarray(array) for array in inputs], outputs)
    times = np.zeros((runs, len(arena.steps)))
    clock = time.perf_counter
    for run in range(runs):
        for index, (function, operands) in enumerate(arena.steps):
            started = clock()
            function(*operands)
            times[run, index] = clock() - started
    arena.detach()
    executor.blocks.give(block)
    return np.median(times, axis=0)


def _print(net: Any, times: np.ndarray, top: int) -> None:
    steps = net._latest.executor.record.steps
    total = times.sum()
    table = Table(title=f"{net.name}: {total * 1e3:.2f} ms in {len(steps)} calls", title_justify="left")
    for column in ("us", "%", "GFLOP/s", "kernel", "output", "node"):
        table.add_column(column, justify="right" if column in ("us", "%", "GFLOP/s") else "left")
    for index in sorted(range(len(steps)), key=lambda index: -times[index])[:top]:
        step, seconds = steps[index], times[index]
        kernel = step.symbol.removesuffix("__kernel0") if isinstance(step, KernelStep) else "host"
        views = step.views if isinstance(step, KernelStep) else step.outputs
        shape = "x".join(str(extent) for extent, _ in views[-1].dims) if views and views[-1] else ""
        rate = f"{_operations(step) / seconds / 1e9:.0f}" if _operations(step) else ""
        row = (f"{seconds * 1e6:.0f}", f"{100 * seconds / total:.1f}", rate, kernel, shape, step.nodes[0])
        table.add_row(*row)
    console = Console(width=150)
    console.print(table)
    families: dict[str, list[float]] = {}
    for step, seconds in zip(steps, times, strict=True):
        name = step.symbol.rsplit("_", 3)[0] if isinstance(step, KernelStep) else f"host {step.node.op_type}"
        entry = families.setdefault(name, [0, 0.0, 0.0])
        entry[0] += 1
        entry[1] += seconds
        entry[2] += _operations(step)
    for name, (count, seconds, operations) in sorted(families.items(), key=lambda item: -item[1][1]):
        rate = f"{operations / seconds / 1e9:6.0f} GFLOP/s" if operations else ""
        console.print(f"{seconds * 1e6:9.0f} us {count:4.0f} x {name} {rate}")


def _operations(step: Any) -> float:
    """Return the multiplications and additions of a convolution, 0 for anything else."""
    if not isinstance(step, KernelStep) or not step.symbol.startswith("conv") or len(step.views) < 4:
        return 0.0
    weights = [extent for extent, _ in step.views[1].dims]
    out = prod(extent for extent, _ in step.views[-1].dims)
    if len(weights) == 6:
        return 2.0 * out * prod(weights[1:5])
    if len(weights) == 5:
        return 2.0 * out * prod(weights[1:4])
    winograd = weights[3] in (16, 36) and weights[1] % 16 == 0
    return 2.0 * out * (9 * weights[1] if winograd else prod(weights[1:3]))


if __name__ == "__main__":
    sys.exit(main())
