"""What the benchmarks share: alternating measurement, tables beside targets, results as JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from rich.console import Console
from rich.table import Table

from opbuild.platform.processor import processor_name
from opbuild.version import __version__

os.environ.setdefault("OPBUILD_FIRST", "build")  # what is measured is a network's own kernels

THREADS = 2
GAP = 0.05
"""Seconds between two measurements: the threads of the one before may still be spinning."""


def alternate(functions: Mapping[str, Callable[[], object]], rounds: int, seconds: float) -> dict[str, float]:
    """Time functions in turn, so that a machine that slows down slows all of them.

    Args:
        functions: What to call, by name.
        rounds: How many times each has its turn.
        seconds: How long a turn lasts; at least one call.

    Returns:
        For each function the median over the rounds of its median seconds a call.
    """
    medians: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(rounds):
        for name, function in functions.items():
            time.sleep(GAP)
            function()
            medians[name].append(statistics.median(_turn(function, seconds)))
    return {name: statistics.median(values) for name, values in medians.items()}


def _turn(function: Callable[[], object], seconds: float) -> list[float]:
    times: list[float] = []
    while sum(times) < seconds:
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return times


def ort_session(model: bytes | str, threads: int = THREADS) -> onnxruntime.InferenceSession:
    """Return an ONNX Runtime session with its default optimizations on ``threads`` threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def relative_error(output: np.ndarray, reference: np.ndarray) -> float:
    """Return the greatest difference, relative to the greatest value of the reference."""
    return float(np.max(np.abs(output.astype(np.float64) - reference)) / np.max(np.abs(reference)))


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments of every benchmark."""
    arguments = argparse.ArgumentParser(description=description.splitlines()[0])
    arguments.add_argument("--json", type=Path, help="write the results to this file")
    return arguments


def parser_of_turns(description: str, rounds: int, seconds: float) -> argparse.ArgumentParser:
    """Return a parser with the arguments of a benchmark that calls runtimes in turn, and the defaults of a turn."""
    arguments = parser(description)
    arguments.add_argument("--rows", type=int, nargs="*", default=[1, 1000])
    arguments.add_argument("--rounds", type=int, default=rounds, help="turns of each runtime; the median counts")
    arguments.add_argument("--seconds", type=float, default=seconds, help="length of a turn")
    return arguments


def tabulate(
    title: str,
    columns: Sequence[str],
    cases: Iterable[tuple[str, Callable[[], Iterable[tuple[Sequence[object], dict[str, Any]]]]]],
) -> list[dict[str, Any]]:
    """Measure cases, print a table, and return the results.

    Args:
        title: The table's title.
        columns: What its columns are called; the first is text.
        cases: What each case is called while it is measured, and what yields the cells and the result of each of its
            rows.
    """
    console, table, results = Console(width=130), Table(title=title, title_justify="left"), []
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left")
    with console.status("") as status:
        for name, measured in cases:
            status.update(name)
            for cells, result in measured():
                results.append(result)
                table.add_row(*map(str, cells))
    console.print(table)
    return results


def exceeds(results: Iterable[Mapping[str, Any]], tolerance: float) -> bool:
    """Return whether an output was wrong; one that is no number is."""
    return any(not result["error"] <= tolerance for result in results)


def verdict(value: float, target: float | None) -> str:
    """Return a figure's target and whether it is met, for a table."""
    if target is None:
        return ""
    return f"[{'green' if value <= target else 'red'}]<= {target:g}[/]"


def write_results(path: Path | None, name: str, rows: list[dict[str, Any]]) -> None:
    """Write results with what is needed to judge them later: versions, machine, date.

    Args:
        path: The file; None: write nothing.
        name: The benchmark's name.
        rows: One record for each row of its table.
    """
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "benchmark": name,
        "opbuild": __version__,
        "onnxruntime": onnxruntime.__version__,
        "python": platform.python_version(),
        "machine": processor(),
        "threads": THREADS,
        "date": time.strftime("%Y-%m-%d"),
        "rows": rows,
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
    Console(stderr=True).print(f"results written to {path}", highlight=False)


def processor() -> str:
    """Return the processor's name and how many cores there are."""
    return f"{processor_name()}, {os.cpu_count()} cores"
