"""Networks that share a process: its threads with many of them open, and the throughput of callers that run at once.

Each revision is installed in an environment of its own; their processes take turns:

    python benchmarks/callers.py OLD/bin/python NEW/bin/python
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import measure
import models
from rich.console import Console
from rich.table import Table

CALLED = ("squeezenet", "resnet50", "shufflenet", "densenet121")
CALLERS = 8
MANY = 50
THREADS = 2


def main() -> int:
    """Measure and print a table; with ``--worker`` be one of the processes."""
    if sys.argv[1:2] == ["--worker"]:
        print(json.dumps(measured(Path(sys.argv[2]), float(sys.argv[3]))))
        return 0
    parser = measure.parser(__doc__ or "")
    parser.add_argument("old", help="interpreter of the older revision")
    parser.add_argument("new", help="interpreter of the newer revision")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each")
    parser.add_argument("--seconds", type=float, default=5.0, help="time that callers run")
    arguments = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {"old": [], "new": []}
    with tempfile.TemporaryDirectory() as folder, Console().status("measuring ..."):
        for name in models.NAMES:
            models.write(name, Path(folder))
        for number in range(arguments.rounds + 1):
            for which, python in (("old", arguments.old), ("new", arguments.new)):
                command = [python, __file__, "--worker", f"{folder}", str(arguments.seconds if number else 0.1)]
                environment = {**os.environ, "MS_COMPILER_CACHE_PATH": f"{folder}/{which}"}
                done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
                if number:  # the first one builds
                    found[which].append(json.loads(done.stdout))
    print_table(found, arguments)
    return 0


def measured(folder: Path, seconds: float) -> dict[str, float]:
    """Open networks and call four of them from eight threads; return what was counted."""
    import numpy as np

    import opbuild

    def open_network(name: str) -> Any:
        return opbuild.compile(folder / f"{name}.onnx", num_threads=THREADS)

    def call(network: Any) -> Any:
        (port,) = network.inputs
        return network(np.zeros([max(extent, 1) for extent in port.shape], np.float32))

    before = threads_of_process()
    networks = {name: open_network(name) for name in models.NAMES}
    for network in networks.values():
        call(network)
    nine = threads_of_process() - before
    runs = [0] * CALLERS
    end = time.perf_counter() + seconds

    def run(number: int) -> None:
        while time.perf_counter() < end:
            call(networks[CALLED[number % len(CALLED)]])
            runs[number] += 1

    busy = time.process_time()
    callers = [threading.Thread(target=run, args=(number,)) for number in range(CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    busy = time.process_time() - busy
    more = [open_network("squeezenet") for _ in range(MANY - len(networks))]
    for network in more:
        call(network)
    many = threads_of_process() - before
    return {"nine": nine, "many": many, "runs": sum(runs) / seconds, "runs_per_processor_second": sum(runs) / busy}


def threads_of_process() -> int:
    """Return how many threads this process has."""
    return len(list(Path("/proc/self/task").iterdir()))


def print_table(found: dict[str, list[dict[str, float]]], arguments: Any) -> None:
    """Print medians and their ratios."""
    table = Table(title=f"Networks of {THREADS} threads in one process", title_justify="left")
    for column in ("", "old", "new", "ratio"):
        table.add_column(column, justify="left" if not column else "right")
    rows = []
    for key, label in (
        ("nine", f"threads, {len(models.NAMES)} networks"),
        ("many", f"threads, {MANY} networks"),
        ("runs", f"runs a second, {CALLERS} callers of {len(CALLED)} networks"),
        ("runs_per_processor_second", "runs a second of processor time"),
    ):
        old, new = (statistics.median(each[key] for each in found[which]) for which in ("old", "new"))
        table.add_row(label, f"{old:.1f}", f"{new:.1f}", f"{new / old:.2f}")
        rows.append({"what": label, "old": old, "new": new, "ratio": new / old})
    Console().print(table)
    measure.write_results(arguments.json, "callers", rows)


if __name__ == "__main__":
    sys.exit(main())
