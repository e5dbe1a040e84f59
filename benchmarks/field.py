"""The networks on which people compare runtimes, in opbuild, ONNX Runtime and OpenVINO: latency, starts, memory.

Each runtime runs in a process of its own, started with an empty cache and once more, and takes turns with the others.
The figure that counts is opbuild's time relative to that of the best other runtime in the same run, for each network
and as a geometric mean over all of them; requests that come with gaps are columns of their own.

    python benchmarks/field.py [NETWORK ...] [--threads 1 2] [--gaps 5 20 200]
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import field_networks
import measure
from rich.console import Console
from rich.table import Table

from opbuild.bench.measure import Figures
from opbuild.bench.measure import measure as measured
from opbuild.bench.runtimes import RUNTIMES

MEAN, WORST, MEAN_OTHERS = 0.65, 0.95, 0.75
"""Targets: of the mean and of each network with all cores, and of the mean with one thread and with gaps."""

TOLERANCE = 5e-2
Row = dict[str, Any]


def main() -> int:
    """Measure, print a table and the means, write the results; return 1 if an output was wrong."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("networks", nargs="*", default=[*field_networks.NETWORKS], metavar="NETWORK",
                        help=", ".join(field_networks.NETWORKS))  # fmt: skip
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, os.cpu_count() or 1}))
    parser.add_argument("--gaps", type=int, nargs="*", default=[5, 20, 200], help="milliseconds between calls")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each runtime; the median counts")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a turn, without the gaps")
    arguments = parser.parse_args()
    console, rows = Console(width=180), []
    with tempfile.TemporaryDirectory() as folder, console.status("") as status:
        for name in arguments.networks:
            status.update(f"{name} ...")
            path, data = field_networks.written(name, Path(folder))
            for threads in arguments.threads:
                status.update(f"{name}, threads: {threads} ...")
                figures = measured(
                    path, data, [each for each in RUNTIMES if RUNTIMES[each].is_installed], threads,
                    rounds=arguments.rounds, seconds=arguments.seconds, gaps=arguments.gaps,
                )  # fmt: skip
                rows.append(row(name, figures))
                console.print(line(rows[-1]), highlight=False)
            path.unlink()
    for threads in arguments.threads:
        console.print(table([each for each in rows if each["threads"] == threads], threads, arguments.gaps))
    for text in means(rows, arguments.gaps):
        console.print(text)
    measure.write_results(arguments.json, "field", rows)
    return int(any(each["wrong"] for each in rows))


def row(name: str, figures: Sequence[Figures]) -> Row:
    """Return what is kept of one network with a number of threads; times are in milliseconds, starts in seconds."""
    own, *others = figures
    found: Row = {"network": name, "threads": own.threads, "runtimes": {}, "ratios": {}}
    for each in figures:
        found["runtimes"][each.runtime] = {"failure": each.failure} if each.failure else {
            "version": each.version, "first": each.first, "again": each.again, "ms": 1e3 * each.median,
            "spread": each.spread, "memory": each.memory, "error": each.error,
            "gaps": {gap: 1e3 * each.median_after(gap) for gap in each.with_gaps},
        }  # fmt: skip
    able = [each for each in others if not each.failure]
    if not own.failure and able:
        found["ratios"][0] = own.median / min(each.median for each in able)
        for gap in own.with_gaps:
            found["ratios"][gap] = own.median_after(gap) / min(each.median_after(gap) for each in able)
    found["wrong"] = bool(own.failure) or not (own.error or 0.0) <= (1.0 if "int8" in name else TOLERANCE)
    return found


def line(one: Row) -> str:
    """Return what is printed of a row when it is there."""
    times = ", ".join(
        f"{RUNTIMES[name].title} {each.get('failure') or format(each['ms'], '.2f')}"
        for name, each in one["runtimes"].items()
    )
    ratios = ", ".join(f"{value:.2f}" + (f" after {gap} ms" if gap else "") for gap, value in one["ratios"].items())
    return f"{one['network']}, threads: {one['threads']}: {times}; {ratios}" + (" WRONG" if one["wrong"] else "")


def table(rows: Sequence[Row], threads: int, gaps: Sequence[int]) -> Table:
    """Return the table of a number of threads."""
    found = Table(title=f"threads: {threads}, on {measure.processor()}", title_justify="left")
    names = list(rows[0]["runtimes"]) if rows else []
    columns = ("network", *(f"{RUNTIMES[name].title} ms" for name in names), "of the best",
               *(f"after {gap} ms" for gap in gaps), "first s", "again s", "MB", "error")  # fmt: skip
    for column in columns:
        found.add_column(column, justify="left" if column == "network" else "right")
    for one in rows:
        runtimes = list(one["runtimes"].values())
        times = ["fails" if "ms" not in each else f"{each['ms']:.2f}" for each in runtimes]
        ratios = [f"{one['ratios'].get(gap, math.nan):.2f}" for gap in (0, *gaps)]
        others = [" / ".join(f"{each.get(key, math.nan):.2f}" for each in runtimes) for key in ("first", "again")]
        memory = " / ".join(f"{each.get('memory', 0) / 1e6:.0f}" for each in runtimes)
        error = runtimes[0].get("error")
        found.add_row(one["network"], *times, *ratios, *others, memory, "" if error is None else f"{error:.0e}")
    return found


def means(rows: Sequence[Row], gaps: Sequence[int]) -> Iterator[str]:
    """Yield the geometric means by threads and gap, beside their targets, and the worst network."""
    most = max(each["threads"] for each in rows)
    for threads in sorted({each["threads"] for each in rows}):
        for gap in (0, *gaps):
            ratios = {each["network"]: each["ratios"][gap] for each in rows
                      if each["threads"] == threads and each["ratios"]}  # fmt: skip
            if not ratios:
                continue
            mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
            worst = max(ratios, key=lambda name: ratios[name])
            target = MEAN if threads == most and not gap else MEAN_OTHERS
            slow = sum(value > WORST for value in ratios.values())
            yield (
                f"threads: {threads}, gap: {gap} ms: geometric mean {mean:.3f} {measure.verdict(mean, target)}, "
                f"worst {worst} {ratios[worst]:.2f}, above {WORST}: {slow} of {len(ratios)}"
            )


if __name__ == "__main__":
    sys.exit(main())
