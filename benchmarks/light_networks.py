"""Latency of nine networks with two installed revisions of opbuild and with ONNX Runtime, in turn, and their kernels.

Each revision is installed in an environment of its own, and each network runs in a process of its own for each of the
three, which take turns: a machine that slows down slows all. Ratios are medians over the rounds. The number of kernels
is what all the networks need together at all numbers of threads:

    python benchmarks/light_networks.py OLD/bin/python NEW/bin/python --threads 1 2 --target x86-64-v3
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import measure
import models
import numpy as np
from rich.console import Console
from rich.table import Table

TIMED_TURNS = Path(__file__).with_name("timed_turns.py")
TOLERANCE = 1e-3
Row = dict[str, Any]


class Process:
    """A network in a process that waits for its turns.

    Args:
        python: The interpreter.
        runtime: ``opbuild`` or ``onnxruntime``.
        options: More arguments of ``timed_turns.py``.
    """

    def __init__(self, python: str, runtime: str, *options: str) -> None:
        command = [python, str(TIMED_TURNS), runtime, *options]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.facts: dict[str, int] = json.loads(self._line())

    def turn(self) -> float:
        """Return the median seconds of a call in one turn."""
        assert self._process.stdin is not None
        time.sleep(measure.GAP)
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return float(self._line())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(map(str, self._process.args))} ended")  # type: ignore[arg-type]
        return line


def main() -> int:
    """Measure, print a table and the geometric means, write the results; return 1 if an output was wrong."""
    arguments = parse()
    console = Console()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, console.status("") as status:
        for name in arguments.networks:
            path = Path(name) if name.endswith(".onnx") else models.write(name, Path(folder))
            for threads in arguments.threads:
                status.update(f"{name}, {threads} threads ...")
                rows.append({"network": path.stem, "threads": threads} | one(path, threads, Path(folder), arguments))
    show(rows, arguments, console)
    measure.write_results(arguments.json, "light_networks", rows)
    return int(any(not row["error"] <= TOLERANCE for row in rows))


def parse() -> Any:
    """Return the arguments."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("old", help="interpreter of the older revision")
    parser.add_argument("new", help="interpreter of the newer revision")
    parser.add_argument("networks", nargs="*", default=models.NAMES, help="names or ONNX files; default: all nine")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--target", help="what both make code for, in a spelling that both know; default: this machine")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each; the median counts")
    parser.add_argument("--seconds", type=float, default=0.3, help="length of a turn")
    return parser.parse_intermixed_args()


def one(path: Path, threads: int, folder: Path, arguments: Any) -> Row:
    """Measure one network: milliseconds of each, ratios to the old revision, the new one's error, kernels built."""
    outputs = {name: folder / f"{name}.npy" for name in ("old", "new", "onnxruntime")}
    common = ["--threads", str(threads), "--seconds", str(arguments.seconds)]
    target = ["--target", arguments.target] if arguments.target else []
    processes: dict[str, Process] = {}
    for name, output in outputs.items():
        if name == "onnxruntime":
            processes[name] = Process(sys.executable, name, str(path), str(output), *common)
        else:
            cache = ["--cache", str(folder / f"{name} cache")]
            processes[name] = Process(
                getattr(arguments, name), "opbuild", str(path), str(output), *common, *cache, *target
            )
    turns: dict[str, list[float]] = {name: [] for name in processes}
    for _ in range(arguments.rounds):
        for name, process in processes.items():
            turns[name].append(process.turn())
    for process in processes.values():
        process.close()
    medians = {f"{name}_ms": statistics.median(values) * 1e3 for name, values in turns.items()}
    error = measure.relative_error(np.load(outputs["new"]), np.load(outputs["onnxruntime"]))
    built = {f"{name}_built": processes[name].facts["built"] for name in ("old", "new")}
    ratios = {"ratio": ratio(turns, "new", "old"), "ratio_onnxruntime": ratio(turns, "new", "onnxruntime")}
    return {**medians, **ratios, "error": error, **built}


def ratio(turns: dict[str, list[float]], name: str, other: str) -> float:
    """Return the median over the rounds of one's time relative to another's."""
    return statistics.median(a / b for a, b in zip(turns[name], turns[other], strict=True))


def show(rows: list[Row], arguments: Any, console: Console) -> None:
    """Print a table of all rows, and what they have in common."""
    title = f"Latency in ms on {measure.processor()}, code for {arguments.target or 'this machine'}"
    table = Table(title=title, title_justify="left", min_width=100)
    columns = ("network", "threads", "old", "new", "ONNX Runtime", "new / old", "new / ONNX Runtime", "error")
    for column in columns:
        table.add_column(column, justify="left" if column == "network" else "right")
    for row in rows:
        times = (f"{row[f'{name}_ms']:.2f}" for name in ("old", "new", "onnxruntime"))
        ratios = (f"{row['ratio']:.3f}", f"{row['ratio_onnxruntime']:.3f}")
        table.add_row(row["network"], str(row["threads"]), *times, *ratios, f"{row['error']:.0e}")
    console.print(table)
    for threads in arguments.threads:
        of_threads = [row for row in rows if row["threads"] == threads]
        means = (mean([row[name] for row in of_threads]) for name in ("ratio", "ratio_onnxruntime"))
        console.print("geometric mean, {} threads: {:.3f} of old, {:.3f} of ONNX Runtime".format(threads, *means))
    old, new = (sum(row[f"{name}_built"] for row in rows) for name in ("old", "new"))
    console.print(f"kernels that all need together: {old} before, {new} now")


def mean(values: list[float]) -> float:
    """Return the geometric mean."""
    return math.exp(statistics.fmean(map(math.log, values)))


if __name__ == "__main__":
    sys.exit(main())
