"""Two revisions of opbuild side by side: ResNet-50 built cold, started again, and called, each in new processes.

Each revision is installed in an environment of its own; their processes take turns, so that a machine that slows down
slows both:

    python benchmarks/revisions.py OLD/bin/python NEW/bin/python
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import measure
import models
from rich.console import Console
from rich.table import Table

START_ONCE = Path(__file__).with_name("start_once.py")
ROWS = {
    "cold build, s": ("cold", "seconds"),
    "cold build, processor s": ("cold", "processor"),
    "warm start, ms": ("warm", "seconds"),
    "warm start, processor ms": ("warm", "processor"),
    "import and warm start, ms": ("warm", "whole"),
    "one call, ms": ("called", "call"),
}


def main() -> int:
    """Measure and print a table of medians and their ratios."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("old", help="interpreter of the older revision")
    parser.add_argument("new", help="interpreter of the newer revision")
    parser.add_argument("--cold", type=int, default=3, help="cold builds of each")
    parser.add_argument("--warm", type=int, default=15, help="warm starts of each")
    parser.add_argument("--called", type=int, default=5, help="processes of each that call the network")
    arguments = parser.parse_args()
    console = Console()
    pythons = {"old": arguments.old, "new": arguments.new}
    with tempfile.TemporaryDirectory() as folder, console.status("measuring ..."):
        found = measure_all(Path(folder), pythons, arguments)
    table = Table(title="ResNet-50, two revisions", title_justify="left")
    for column in ("", "old", "new", "ratio"):
        table.add_column(column, justify="left" if not column else "right")
    rows = []
    for label, (kind, field) in ROWS.items():
        scale = 1e3 if label.endswith("ms") else 1.0
        old, new = (scale * statistics.median(each[field] for each in found[kind][name]) for name in pythons)
        table.add_row(label, f"{old:.2f}", f"{new:.2f}", f"{new / old:.2f}")
        rows.append({"what": label, "old": old, "new": new, "ratio": new / old})
    console.print(table)
    measure.write_results(arguments.json, "revisions", rows)
    return 0


def measure_all(folder: Path, pythons: dict[str, str], arguments: Any) -> dict[str, dict[str, list[dict[str, float]]]]:
    """Return what each process measured, by kind of start and by revision."""
    model = models.write("resnet50", folder)
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for kind in ("cold", "warm", "called"):
        found[kind] = {name: [] for name in pythons}
        for number in range(getattr(arguments, kind)):
            for name, python in pythons.items():
                cache = folder / (f"{name}{number}" if kind == "cold" else f"{name}0")
                calls = 200 if kind == "called" else 0
                found[kind][name].append(start(python, model, cache, calls))
    return found


def start(python: str, model: Path, cache: Path, calls: int) -> dict[str, float]:
    """Start the network in a new process of one revision."""
    command = [python, str(START_ONCE), str(model), str(cache), "--calls", str(calls)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    sys.exit(main())
