"""Time from ``compile()`` to a callable ResNet-50, in a new process each: cold, warm, after others, one layer changed.

The network has its real 100 MB of weights. The last column is the time that ONNX Runtime takes to make a session of the
same file, measured in the same run.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import fresh_process
import measure
import models
import onnx
from rich.console import Console
from rich.table import Table

TARGETS = {"cold": 2.5, "after the other eight": 1.2, "one Conv changed": 0.7, "built before": 0.06}


def main() -> int:
    """Measure, print a table, write the results."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions of each; the median counts")
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as name, console.status("") as status:
        rows = measure_all(Path(name), arguments.rounds, status.update)
    table = Table(title="ResNet-50 from compile() to callable, a new process each", title_justify="left")
    for column in ("build", "built", "reused", "seconds", "target", "whole process", "ONNX Runtime's session", "ratio"):
        table.add_column(column, justify="left" if column == "build" else "right")
    for row in rows:
        table.add_row(
            row["build"],
            str(row["built"]),
            str(row["reused"]),
            f"{row['seconds']:.3f}",
            measure.verdict(row["seconds"], TARGETS[row["build"]]),
            f"{row['process']:.2f}",
            f"{row['onnxruntime_seconds']:.3f}",
            f"{row['ratio']:.2f}",
        )
    console.print(table)
    measure.write_results(arguments.json, "build_time", rows)
    return 0


def measure_all(folder: Path, rounds: int, say: Any) -> list[dict[str, Any]]:
    """Measure the four builds ``rounds`` times, each time from empty stores."""
    say("writing models ...")
    resnet = models.write("resnet50", folder)
    changed = folder / "changed.onnx"
    onnx.save(models.one_layer_changed(onnx.load(resnet)), changed)
    others = [models.write(name, folder) for name in models.NAMES if name != "resnet50"]
    shared = folder / "shared"
    for path in others:
        say(f"filling a store: {path.stem} ...")
        fresh_process.start(path, shared)
        path.unlink()
    starts: dict[str, list[dict[str, Any]]] = {name: [] for name in TARGETS}
    sessions = []
    for index in range(rounds):
        say(f"round {index + 1} of {rounds} ...")
        sessions.append(fresh_process.start(resnet, None)["seconds"])
        cache = folder / f"cold{index}"
        starts["cold"].append(fresh_process.start(resnet, cache))
        starts["built before"].append(fresh_process.start(resnet, cache))
        starts["one Conv changed"].append(fresh_process.start(changed, cache))
        copy = folder / f"copy{index}"
        shutil.copytree(shared, copy, copy_function=os.link)  # copies of a gigabyte would be written meanwhile
        starts["after the other eight"].append(fresh_process.start(resnet, copy))
        shutil.rmtree(cache)
        shutil.rmtree(copy)
    session = statistics.median(sessions)
    return [summary(name, records, session) for name, records in starts.items()]


def summary(name: str, records: list[dict[str, Any]], session: float) -> dict[str, Any]:
    """Return one row: medians of the times, and the counts, which are the same in each round."""
    seconds = statistics.median(record["seconds"] for record in records)
    return {
        "build": name,
        "built": records[0]["built"],
        "reused": records[0]["reused"],
        "seconds": seconds,
        "process": statistics.median(record["process"] for record in records),
        "onnxruntime_seconds": session,
        "ratio": seconds / session,
    }


if __name__ == "__main__":
    sys.exit(main())
