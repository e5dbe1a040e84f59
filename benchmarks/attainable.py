"""How near networks are to what the machine can do: the least time that their arithmetic and their weights take.

A call's least time is the greater of two. Its products at the rate of a product whose matrices lie in the caches (four
times that for 8 bits where the machine has VNNI, twice where it adds up pairs of 16 bits; Winograd's with the
multiplications that it makes); and its weights, read once from memory, unless the last cache keeps them all.
All else is taken to cost nothing.

A network's calls follow each other, so no kernels with these algorithms could make it faster than the sum, ``in turn``.
A machine that read the weights of later calls meanwhile would take the greater of both sums, ``overlapped``: less where
products of one row wait for their weights behind convolutions that do not. Beside both stands what a whole run takes.

    python benchmarks/attainable.py [NETWORK ...] [--threads 2] [--results FOLDER]

With ``--results``, a folder of ``field.py``, its best other runtime is a column, and so is the least time in turn
relative to it: the ratio that is not to be had by faster kernels.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import field
import field_networks
import measure
import numpy as np
from rich.console import Console
from rich.table import Table

import opbuild
from opbuild.config import Config
from opbuild.dtypes import itemsize
from opbuild.pipeline.setup import set_up
from opbuild.runtime.calls import NetworkCall
from opbuild.target.machine import Machine
from opbuild.tuning.bench.runtimes import LIMITED
from opbuild.tuning.tuner import measure_machine

READ = 256 << 20
"""Bytes that are read to measure the memory's rate; more than caches keep."""

BITS_8 = ("conv_integer", "conv_integer_depthwise", "matmul_integer", "winograd_integer")


SHARES = {"share": "of the attainable", "ratio": "of the best", "least_ratio": "least of the best"}
"""The figures of which a mean is printed."""


def main() -> int:
    """Measure and print."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("networks", nargs="*", default=[*field_networks.NETWORKS], metavar="NETWORK")
    parser.add_argument("--threads", type=int, default=measure.THREADS)
    parser.add_argument("--runs", type=int, default=20, help="timed runs of each network; the median counts")
    parser.add_argument("--results", type=Path, help="what field.py measured")
    parser.add_argument("--limit", nargs="?", const="x86-64-v3", choices=[*LIMITED], metavar="LEVEL",
                        help="run code for x86-64-v3 (or LEVEL)")  # fmt: skip
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [one_network(name, Path(folder), arguments) for name in arguments.networks]
    print_rows(rows, arguments.threads)
    measure.write_results(arguments.json, "attainable", rows)
    return 0


def one_network(name: str, folder: Path, arguments: Namespace) -> dict[str, Any]:
    """Measure the machine and a network right after it, since machines change their speed within minutes."""
    path, data = field_networks.written(name, folder)
    setup = set_up(Config.from_environment(), arguments.limit, None)
    gflops = measure_machine(setup).peak[setup.level.name] * arguments.threads
    gigabytes = memory_rate(arguments.threads)
    network = opbuild.compile(path, num_threads=arguments.threads, target=arguments.limit)
    profile = network.profile(data, runs=arguments.runs)
    calls = [row.call for row in profile.rows]
    path.unlink()
    computing = [products(call, Machine.of(setup.level).dot) / gflops / 1e6 for call in calls]
    reading = [nbytes / gigabytes / 1e6 for nbytes in weights(network, calls)]
    in_turn, overlapped = sum(map(max, computing, reading)), max(sum(computing), sum(reading))
    peer = best(arguments.results, name, arguments.threads)
    return {
        "network": name, "threads": arguments.threads, "ms": profile.milliseconds, "gflops": gflops,
        "gigabytes": gigabytes, "products_ms": sum(computing), "weights_ms": sum(reading),
        "overlapped": overlapped / profile.milliseconds, "share": in_turn / profile.milliseconds,
        "ratio": peer and profile.milliseconds / peer, "least_ratio": peer and in_turn / peer,
    }  # fmt: skip


def products(call: NetworkCall, dot: int) -> float:
    """Return the operations of a call: of 8 bits an instruction adds up ``dot`` where it has one of others."""
    return call.operations * made(call) / (dot if call.family in BITS_8 else 1)


def made(call: NetworkCall) -> float:
    """Return how many of the direct algorithm's operations a call makes: F(m x m, 3 x 3) takes (m + 2)^2 for 9 m^2."""
    if not call.family.startswith("winograd"):
        return 1.0
    tile = int(call.variant["tile"]) if call.family == "winograd" else 2
    return (tile + 2) ** 2 / (9 * tile**2)


def weights(network: opbuild.Network, calls: Sequence[NetworkCall]) -> list[int]:
    """Return the bytes of constants that the products of each call read from memory: 0 where a cache keeps all."""
    sizes = [each.size * itemsize(each.dtype) for each in network.runners[0].record.buffers]
    constant = [each.kind == "constant" for each in network.runners[0].record.buffers]
    used = [{place for place in call.buffers if constant[place] and call.operations} for call in calls]
    cached = sum(sizes[place] for place in set().union(*used)) <= last_cache()
    return [0 if cached else sum(sizes[place] for place in places) for places in used]


def last_cache() -> int:
    """Return the bytes of the last cache, as the system describes it."""
    *_, last = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"))
    return int(last.read_text().strip().removesuffix("K")) << 10


def memory_rate(threads: int) -> float:
    """Return bytes a nanosecond that threads read from memory together, each its own part; the best of several."""
    parts = np.array_split(np.ones(READ // 4, np.float32), threads)
    with ThreadPoolExecutor(threads) as pool:
        times = []
        for _ in range(7):
            started = time.perf_counter()
            list(pool.map(np.max, parts))
            times.append(time.perf_counter() - started)
    return READ / min(times) / 1e9


def best(results: Path | None, name: str, threads: int) -> float | None:
    """Return the milliseconds of the best other runtime, None if they are not known."""
    if results is None:
        return None
    found = json.loads(field.place(results, name, threads).read_text())
    return float(found["runtimes"]["opbuild"]["ms"] / found["ratios"]["0"])


def print_rows(rows: list[dict[str, Any]], threads: int) -> None:
    """Print the table and the geometric means."""
    table = Table(title=f"threads: {threads}, on {measure.processor()}", title_justify="left")
    columns = ("network", "ms", "products ms", "weights ms", "overlapped", "in turn", "of the best", "least")
    for column in columns:
        table.add_column(column, justify="left" if column == "network" else "right")
    for each in rows:
        numbers = [each[key] for key in ("ms", "products_ms", "weights_ms", "overlapped", *SHARES)]
        table.add_row(each["network"], *("" if number is None else f"{number:.2f}" for number in numbers))
    Console(width=120).print(table)
    for key, title in SHARES.items():
        found = [each[key] for each in rows if each[key] is not None]
        if found:
            print(f"geometric mean {title}: {math.exp(statistics.fmean(map(math.log, found))):.3f}")


if __name__ == "__main__":
    sys.exit(main())
