"""What calling kernels costs: one loop in C beside a call by ctypes for each, in the networks of field.py, in turn.

With one thread the thread's processor time is measured, which other processes disturb little; with more the wall clock.

    python benchmarks/dispatch.py [NETWORK ...] [--threads 1] [--pairs 1000] [--seconds 20]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import field_networks
import measure
import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from opbuild.api import bind
from opbuild.backend.evaluate import evaluate
from opbuild.config import Config
from opbuild.dtypes import numpy_dtype
from opbuild.frontend.onnx_model import load_model
from opbuild.models.served import host_calls
from opbuild.pipeline.images import Wanted
from opbuild.pipeline.setup import set_up
from opbuild.pipeline.stores import Stores, make_builder
from opbuild.runtime.executor import Runner
from opbuild.runtime.loops import Step

NETWORKS = ("MiniLM 8", "MiniLM 32", "shufflenet", "squeezenet", "MobileNet-v2", "EfficientNet-b0", "LSTM 2x256",
            "GPT-2 next", "Llama next")  # fmt: skip


def main() -> int:
    """Measure, print a table, write the results."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("networks", nargs="*", default=NETWORKS, metavar="NETWORK")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=1000, help="of runs, of which each gives a ratio")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each network at most")
    arguments = parser.parse_args()
    rows = [one_network(name, arguments.threads, arguments.pairs, arguments.seconds) for name in arguments.networks]
    table = Table(title=f"threads: {arguments.threads}, on {measure.processor()}", title_justify="left")
    for column in (
        "network",
        "calls",
        "loops",
        "by ctypes us",
        "by loops us",
        "ratio",
        "quarters",
        "ns a call",
        "pairs",
    ):
        table.add_column(column, justify="left" if column == "network" else "right")
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console(width=140).print(table)
    measure.write_results(arguments.json, "dispatch", rows)
    return 0


def one_network(name: str, threads: int, most: int, seconds: float) -> dict[str, Any]:
    """Return what both ways of calling the kernels of a network take."""
    with tempfile.TemporaryDirectory() as folder:
        path, data = field_networks.written(name, Path(folder))
        executor = built(path, data, threads)
    block = executor.blocks.take()
    arena = block.enter(executor)
    outputs = [np.zeros(port.type.shape, numpy_dtype(port.type.dtype)) for port in executor.outputs]
    arena.attach([np.ascontiguousarray(data[port.name]) for port in executor.inputs], outputs)
    clock = time.thread_time_ns if threads == 1 else time.perf_counter_ns
    pairs: list[tuple[int, int]] = []
    ends = time.monotonic() + seconds
    while len(pairs) < most and (time.monotonic() < ends or len(pairs) < 15):
        times: dict[int, int] = {}
        for which in (0, 1) if len(pairs) % 2 else (1, 0):
            times[which] = timed((arena.steps, arena.loops.steps)[which], clock)
        pairs.append((times[0], times[1]))
    by_ctypes, by_loops = (statistics.median(each) / 1e3 for each in zip(*pairs, strict=True))
    low, ratio, high = statistics.quantiles([after / before for before, after in pairs], n=4)
    return {
        "network": name, "calls": len(arena.steps), "loops": len(arena.loops.steps),
        "by_ctypes_us": round(by_ctypes, 1), "by_loops_us": round(by_loops, 1), "ratio": round(ratio, 4),
        "quarters": f"{low:.3f} {high:.3f}", "ns": round(1e3 * (by_ctypes - by_loops) / len(arena.steps)),
        "pairs": len(pairs),
    }  # fmt: skip


def built(path: Path, data: field_networks.Data, threads: int) -> Runner:
    """Return what runs a network."""
    setup = set_up(Config.from_environment(num_threads=threads), None, None, stores_networks=False)
    stores = Stores(setup)
    graph = load_model(onnx.load(path)).bind({name: array.shape for name, array in data.items()}, evaluate, host_calls)
    return bind(Wanted(None, lambda _: graph), setup, stores, lambda: make_builder(setup, stores)).executor


def timed(steps: Sequence[Step], clock: Any) -> int:
    """Run a network and return what it took."""
    started = clock()
    for function, arguments in steps:
        if function(*arguments):
            raise SystemExit("a kernel failed")
    return int(clock() - started)


if __name__ == "__main__":
    sys.exit(main())
