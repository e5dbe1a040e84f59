"""A fleet: 240 networks in one fresh process, and a thousand pods that start cold together.

The first part warms a remote store (a folder, or ``--remote URL``) with ``opbuild warm`` and then starts all networks
in a new process with an empty disk, each answered once; beside it the same with ONNX Runtime's sessions, and with
OpenVINO whose cache folder a process before it has filled. The second is simulated: the builder's queue and claims and
the remote store's leases are the real ones, compiling, the service and time are made up.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import fleet_models
from rich.console import Console
from rich.table import Table

from support.pods import Fleet, summary  # beside the tests, which fleet_models has put on the path

HERE = Path(__file__).resolve().parent
PODS, OPERATORS = 1000, 60
"""Pods that start together, and operators that each needs."""


def main() -> None:
    """Measure both parts, or one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=240, help="networks")
    parser.add_argument("--peers", type=int, default=0, help="networks for the others, if not all")
    parser.add_argument("--cold", action="store_true", help="start with nothing stored, too")
    parser.add_argument("--pods", type=int, default=PODS, help="pods of the simulation; 0: none")
    parser.add_argument("--remote", help="URL of an empty remote store, instead of a folder")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    if arguments.count:
        with tempfile.TemporaryDirectory(prefix="opbuild-fleet-") as folder:
            results["start"] = starts(Path(folder), arguments)
        show_starts(results["start"])
    if arguments.pods:
        results["pods"] = simulated(arguments.pods)
        show_pods(results["pods"], arguments.pods)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


def starts(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the times of each way to start the networks."""
    count, peers = arguments.count, arguments.peers or arguments.count
    paths = fleet_models.write_fleet(folder / "models", count)
    remote = arguments.remote or (folder / "remote").as_uri()
    shared = {"OPBUILD_REMOTE": remote}
    started = time.perf_counter()
    warm = [
        str(Path(sys.executable).with_name("opbuild")),
        "warm",
        *map(str, paths),
        "--cache_path",
        str(folder / "ci"),
        "--strict",
    ]
    subprocess.run(warm, env=os.environ | shared, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found: dict[str, Any] = {"warming": {"seconds": time.perf_counter() - started, "networks": count}}
    if arguments.cold:
        found["opbuild, nothing stored"] = _start("opbuild", folder / "cold", paths, {})
    found["opbuild, empty disk, warm remote store"] = _start("opbuild", folder / "pod", paths, shared)
    found["opbuild, warm disk"] = _start("opbuild", folder / "pod", paths, {})
    found["ONNX Runtime"] = _start("onnxruntime", folder / "none", paths[:peers], {})
    found["OpenVINO, empty cache folder"] = _start("openvino", folder / "openvino", paths[:peers], {})
    found["OpenVINO, its cache folder"] = _start("openvino", folder / "openvino", paths[:peers], {})
    return found


def _start(engine: str, cache: Path, paths: list[Path], environment: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, str(HERE / "fleet_start.py"), engine, str(cache), *map(str, paths)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OPBUILD_")}
    done = subprocess.run(command, env=inherited | environment, check=True, stdout=subprocess.PIPE)
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def simulated(pods: int) -> dict[str, Any]:
    """Return the results of fleets that started cold within half a second."""
    ways: dict[str, dict[str, Any]] = {
        "conditional writes": {},
        "no conditional writes": {"exclusive": False},
        "a tenth of the pods dies": {"dying": 0.1},
        "20,000 requests a second at most": {"per_second": 20000.0},
        "no claims": {"claims": False},
    }
    return {name: summary(Fleet(pods, OPERATORS, **options).run()) for name, options in ways.items()}


def show_starts(found: dict[str, Any]) -> None:
    """Print a table."""
    table = Table(
        "", "networks", "seconds", "processor s", "MB", "built", "fetched", "from images", "requests", "MB read"
    )
    for name, row in found.items():
        read = f"{row['bytes'] / 1e6:.1f}" if "bytes" in row else ""
        more = [str(row.get(key, "")) for key in ("built", "fetched", "images", "requests")]
        numbers = [f"{row[key]:.1f}" if key in row else "" for key in ("seconds", "processor", "megabytes")]
        table.add_row(name, str(row["networks"]), *numbers, *more, read)
    Console(width=160).print(table)


def show_pods(found: dict[str, Any], pods: int) -> None:
    """Print a table."""
    table = Table(
        f"{pods} pods, {OPERATORS} operators", "each built", "most", "ready s, median", "last", "alone s", "requests",
        "a second", "MB",
    )  # fmt: skip
    for name, row in found.items():
        table.add_row(
            name, f"{row['built_each']:.2f}", f"{row['built_most']:.0f}", f"{row['ready_median']:.2f}",
            f"{row['ready_last']:.2f}", f"{row['alone']:.2f}", f"{row['requests']:,.0f}",
            f"{row['requests_mean']:,.0f}", f"{row['megabytes']:.0f}",
        )  # fmt: skip
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
