"""Latency of nine networks, batch 1, float32, side by side with ONNX Runtime on the same threads.

Random weights, no final Softmax; every output is compared with ONNX Runtime's in the same run. The figure that counts
is the ratio: the two are measured in turn, so a machine that is busy or hot slows both.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import measure
import models
import numpy as np
from rich.console import Console
from rich.table import Table

import opbuild

TARGETS = {"resnet50": 0.95, "densenet121": 0.8, "vgg19": 0.6}
TOLERANCE = 1e-3


def main() -> int:
    """Measure, print a table, write the results; return 1 if an output was wrong."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument(
        "networks", nargs="*", default=models.NAMES, metavar="NETWORK", help="which to measure; default: all nine"
    )
    parser.add_argument("--rounds", type=int, default=7, help="turns of each runtime; the median counts")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a turn")
    arguments = parser.parse_args()
    console = Console()
    table = Table(title=f"Latency, {measure.THREADS} threads", title_justify="left")
    for column in ("network", "opbuild ms", "ONNX Runtime ms", "ratio", "target", "error"):
        table.add_column(column, justify="left" if column == "network" else "right")
    rows = []
    with tempfile.TemporaryDirectory() as cache, console.status("") as status:
        for name in arguments.networks:
            status.update(f"{name} ...")
            row = one_network(name, Path(cache), arguments.rounds, arguments.seconds)
            rows.append(row)
            wrong = not row["error"] <= TOLERANCE
            table.add_row(
                name,
                f"{row['opbuild_ms']:.2f}",
                f"{row['onnxruntime_ms']:.2f}",
                f"{row['ratio']:.3f}",
                measure.verdict(row["ratio"], TARGETS.get(name)),
                f"[red]{row['error']:.1e}[/]" if wrong else f"{row['error']:.1e}",
            )
    console.print(table)
    measure.write_results(arguments.json, "latency", rows)
    return int(any(not row["error"] <= TOLERANCE for row in rows))


def one_network(name: str, cache: Path, rounds: int, seconds: float) -> dict[str, float | str]:
    """Measure one network in both runtimes and compare their outputs."""
    model = models.network(name).SerializeToString()
    network = opbuild.compile(model, cache_path=cache, num_threads=measure.THREADS)
    session = measure.ort_session(model)
    shape = network.inputs[0].shape
    data = {network.inputs[0].name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    error = measure.relative_error(np.asarray(network(data)), session.run(None, data)[0])
    medians = measure.alternate(
        {"onnxruntime": lambda: session.run(None, data), "opbuild": lambda: network(data)}, rounds, seconds
    )
    return {
        "network": name,
        "opbuild_ms": medians["opbuild"] * 1e3,
        "onnxruntime_ms": medians["onnxruntime"] * 1e3,
        "ratio": medians["opbuild"] / medians["onnxruntime"],
        "error": error,
    }


if __name__ == "__main__":
    sys.exit(main())
