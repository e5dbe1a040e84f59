"""The networks on which people compare runtimes, in opbuild and other runtimes: latency, starts, memory.

Each runtime runs in a process of its own, started with an empty cache and once more, and takes turns with the others.
The figure that counts is opbuild's time relative to that of the best other runtime in the same run, for each network
and as a geometric mean over all of them; requests that come with gaps are columns of their own.

    python benchmarks/field.py [NETWORK ...] [--threads 1 2] [--gaps 5 20 200] [--results FOLDER] [--own-bank FOLDER]

With ``--results`` each network is a file of its own there: what was measured with the same settings is not measured
again, so a long run can be made in pieces, network by network, and ended at any time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import field_networks
import limited_cpu
import measure
from rich.console import Console
from rich.table import Table

from opbuild.tuning.bench.measure import Figures, limits
from opbuild.tuning.bench.measure import measure as measured
from opbuild.tuning.bench.runtimes import COLUMNS, LIMITED, RUNTIMES
from opbuild.version import __version__

MEAN, WORST, MEAN_OTHERS, MEAN_LIMITED = 0.65, 0.95, 0.75, 0.8
"""Targets: of the mean and of each network with all cores, of the mean with one thread and with gaps, and of all means
at a lower level."""

TOLERANCE = 5e-2
TITLES = {name: each.title for name, each in (RUNTIMES | COLUMNS).items()}
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
    parser.add_argument("--results", type=Path, help="folder with a file for each network; what it has is not measured")
    parser.add_argument("--own-bank", type=Path, help="measure opbuild untuned and with this folder's bank, too")
    parser.add_argument("--limit", nargs="?", const="x86-64-v3", default="", choices=[*LIMITED], metavar="LEVEL",
                        help="run code for x86-64-v3 (or LEVEL), and keep others to it that can be kept")  # fmt: skip
    arguments = parser.parse_args()
    console, rows = Console(width=180), []
    with tempfile.TemporaryDirectory() as folder, console.status("") as status:
        for name in arguments.networks:
            written = None
            for threads in arguments.threads:
                found = remembered(arguments, name, threads)
                if found is None:
                    status.update(f"{name}, threads: {threads} ...")
                    written = written or field_networks.written(name, Path(folder))
                    found = measure_one(arguments, name, threads, *written)
                    remember(arguments, found)
                rows.append(found)
                console.print(line(found), highlight=False)
            if written is not None:
                written[0].unlink()
    for threads in arguments.threads:
        console.print(table([each for each in rows if each["threads"] == threads], threads, arguments.gaps))
    for text in means(rows, arguments.gaps, arguments.limit):
        console.print(text)
    if arguments.limit:
        console.print(kept_to(arguments.limit, settings(arguments)["runtimes"]))
    measure.write_results(arguments.json, "field", rows)
    return int(any(each["wrong"] for each in rows))


def settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that must be equal for figures to be of one run."""
    names = [each for each in RUNTIMES if RUNTIMES[each].is_installed]
    names += list(COLUMNS) if arguments.own_bank else []
    bank = str(arguments.own_bank.absolute()) if arguments.own_bank else ""
    return {
        "machine": measure.processor(), "opbuild": __version__, "runtimes": names, "gaps": arguments.gaps, "bank": bank,
        "rounds": arguments.rounds, "seconds": arguments.seconds,
        **({"level": arguments.limit, "kept": kept(arguments.limit, names)} if arguments.limit else {}),
    }  # fmt: skip


def measure_one(arguments: argparse.Namespace, name: str, threads: int, path: Path, data: Any) -> Row:
    """Return the row of a network with a number of threads."""
    chosen = settings(arguments)
    environments: dict[str, Mapping[str, str]] = {}
    if arguments.own_bank:
        environments = {each: {"TUNE_BANK_PATH": "", "OPBUILD_SHIPPED_BANK": "1"} for each in ("opbuild", *COLUMNS)}
        environments["opbuild untuned"]["OPBUILD_SHIPPED_BANK"] = "0"
        environments["opbuild tuned"]["TUNE_BANK_PATH"] = chosen["bank"]
    if arguments.limit:
        environments |= {each: limited_cpu.environment(each, arguments.limit) for each in limited_cpu.PACKAGES}
    figures = measured(
        path, data, chosen["runtimes"], threads, rounds=arguments.rounds, seconds=arguments.seconds,
        gaps=arguments.gaps, environments=environments, level=arguments.limit,
    )  # fmt: skip
    return dict(json.loads(json.dumps({**row(name, figures), "settings": chosen})))


def remembered(arguments: argparse.Namespace, name: str, threads: int) -> Row | None:
    """Return the row measured before with the same settings; None if there is none."""
    if arguments.results is None:
        return None
    try:
        found = dict(json.loads(place(arguments.results, name, threads).read_text()))
    except (OSError, ValueError):
        return None
    return found if found.get("settings") == settings(arguments) else None


def remember(arguments: argparse.Namespace, found: Row) -> None:
    """Write a row into the folder of results, whole or not at all."""
    if arguments.results is not None:
        arguments.results.mkdir(parents=True, exist_ok=True)
        path = place(arguments.results, found["network"], found["threads"])
        part = path.with_suffix(".part")
        part.write_text(json.dumps(found, indent=1) + "\n")
        part.replace(path)


def place(folder: Path, name: str, threads: int) -> Path:
    """Return the file of a network with a number of threads."""
    return folder / f"{name.replace(' ', '_')}-{threads}.json"


def row(name: str, figures: Sequence[Figures]) -> Row:
    """Return the row of one network with a number of threads; times are in milliseconds, starts in seconds."""
    own, *others = figures
    tolerance = 1.0 if "int8" in name else TOLERANCE
    found: Row = {"network": name, "threads": own.threads, "runtimes": {}, "ratios": {}}
    for each in figures:
        found["runtimes"][each.runtime] = {"failure": each.failure} if each.failure else {
            "version": each.version, "first": each.first, "again": each.again, "ms": 1e3 * each.median,
            "spread": each.spread, "memory": each.memory, "error": finite(each.error),
            "right": each.is_right(tolerance),
            "gaps": {str(gap): 1e3 * each.median_after(gap) for gap in each.with_gaps},
        }  # fmt: skip
    able = [each for each in others if each.runtime not in COLUMNS and each.is_right(tolerance)]
    if not own.failure and able:
        found["ratios"]["0"] = own.median / min(each.median for each in able)
        for gap in own.with_gaps:
            found["ratios"][str(gap)] = own.median_after(gap) / min(each.median_after(gap) for each in able)
    found["wrong"] = bool(own.failure) or not (own.error or 0.0) <= tolerance
    return found


def finite(error: float | None) -> float | None:
    """Return an error as JSON has numbers."""
    return error if error is not None and math.isfinite(error) else None


def shown(each: Row) -> str:
    """Return the time of a runtime for a table."""
    if "ms" not in each:
        return "not taken"
    return f"{each['ms']:.2f}" + " wrong" * (not each["right"])


def line(one: Row) -> str:
    """Return the line that is printed of a row when it is there."""
    times = ", ".join(
        f"{TITLES[name]} {(each.get('failure') and 'not taken') or format(each['ms'], '.2f')}"
        for name, each in one["runtimes"].items()
    )
    after = {"0": ""}
    ratios = ", ".join(f"{value:.2f}" + after.get(gap, f" after {gap} ms") for gap, value in one["ratios"].items())
    return f"{one['network']}, threads: {one['threads']}: {times}; {ratios}" + (" WRONG" if one["wrong"] else "")


def table(rows: Sequence[Row], threads: int, gaps: Sequence[int]) -> Table:
    """Return the table of a number of threads."""
    found = Table(title=f"threads: {threads}, on {measure.processor()}", title_justify="left")
    names = list(rows[0]["runtimes"]) if rows else []
    columns = ("network", *(f"{TITLES[name]} ms" for name in names), "of the best",
               *(f"after {gap} ms" for gap in gaps), "first s", "again s", "MB", "error")  # fmt: skip
    for column in columns:
        found.add_column(column, justify="left" if column == "network" else "right")
    for one in rows:
        runtimes = list(one["runtimes"].values())
        times = [
            "not taken" if "ms" not in each else f"{each['ms']:.2f}" + " wrong" * (not each["right"])
            for each in runtimes
        ]
        ratios = [f"{one['ratios'].get(str(gap), math.nan):.2f}" for gap in (0, *gaps)]
        others = [" / ".join(f"{each.get(key, math.nan):.2f}" for each in runtimes) for key in ("first", "again")]
        memory = " / ".join(f"{each.get('memory', 0) / 1e6:.0f}" for each in runtimes)
        error = runtimes[0].get("error")
        found.add_row(one["network"], *times, *ratios, *others, memory, "" if error is None else f"{error:.0e}")
    return found


def kept(level: str, names: Sequence[str]) -> list[str]:
    """Return which other runtimes keep to a level, by their own switches or since they are told of nothing beyond."""
    return [name for name in names if limits(name, level) or limited_cpu.environment(name, level)]


def kept_to(level: str, names: Sequence[str]) -> str:
    """Return which other runtimes keep to a level, and which nothing keeps from using all that the machine has."""
    others, held = [name for name in names if name not in ("opbuild", *COLUMNS)], kept(level, names)
    free = [TITLES[name] for name in others if name not in held]
    why = limited_cpu.lacking() and f" ({limited_cpu.lacking()})"
    return (
        f"opbuild's code is for {level}; kept to it: {', '.join(TITLES[name] for name in held) or 'none'}; "
        f"not: {', '.join(free) or 'none'}{why}"
    )


def means(rows: Sequence[Row], gaps: Sequence[int], level: str = "") -> Iterator[str]:
    """Yield the geometric means by threads and gap, beside their targets, and the worst network."""
    most = max(each["threads"] for each in rows)
    for threads in sorted({each["threads"] for each in rows}):
        for gap in (0, *gaps):
            ratios = {each["network"]: each["ratios"][str(gap)] for each in rows
                      if each["threads"] == threads and each["ratios"]}  # fmt: skip
            if not ratios:
                continue
            mean = math.exp(statistics.fmean(map(math.log, ratios.values())))
            worst = max(ratios, key=lambda name: ratios[name])
            target = MEAN_LIMITED if level else MEAN if threads == most and not gap else MEAN_OTHERS
            slow = sum(value > WORST for value in ratios.values())
            yield (
                f"threads: {threads}, gap: {gap} ms: geometric mean {mean:.3f} {measure.verdict(mean, target)}, "
                f"worst {worst} {ratios[worst]:.2f}, above {WORST}: {slow} of {len(ratios)}"
            )


if __name__ == "__main__":
    sys.exit(main())
