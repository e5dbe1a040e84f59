"""Two revisions of opbuild side by side: starts, large networks, calls and callers, each in processes of its own.

Each revision is installed in an environment of its own; their processes take turns, and who begins changes from round
to round, so that a machine that slows down slows both. Medians over the rounds, their ratio, and the spread: the middle
half of the ratios of a round.

    python benchmarks/revisions.py OLD/bin/python NEW/bin/python
    python benchmarks/revisions.py OLD/bin/python NEW/bin/python --only second callers --rounds 21
    python benchmarks/revisions.py OLD/bin/python NEW/bin/python --short
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import fresh_process
import large_networks
import measure
import models
import numpy as np
import onnx
from light_networks import Process
from rich.console import Console
from rich.table import Table

LAYERS = {"nodes": 1000, "calls": 1667}
"""Layers of six nodes and three calls: 6,000 nodes that are built, and 5,001 calls that are started."""
SHORT = 10
"""By this ``--short`` divides layers, and the rounds."""
CALLERS, THREADS = 4, 2
KINDS = ("first", "second", "changed", "nodes", "calls", "call", "callers")

Figures = dict[str, float]
Measured = dict[str, dict[str, list[float]]]


class Revision(NamedTuple):
    """One of the two: its name, its interpreter, and the folder of its caches."""

    name: str
    python: str
    folder: Path

    def cache(self, name: str) -> Path:
        """Return the folder of a cache."""
        return self.folder / name.replace(" ", "_")


class Files:
    """The models, written when they are first needed.

    Args:
        folder: Where to.
        short: Whether small ones take the places of large ones.
    """

    def __init__(self, folder: Path, *, short: bool) -> None:
        self._folder, self._short = folder, short

    def __call__(self, name: str) -> Path:
        """Return the file of a model."""
        path = self._folder / f"{name}.onnx"
        if not path.exists():
            self._write(name, path)
        return path

    def _write(self, name: str, path: Path) -> None:
        if name in LAYERS:
            large_networks.write(LAYERS[name] // (SHORT if self._short else 1), path)
        elif name == "small":
            large_networks.write(1, path)
        elif name == "changed":
            onnx.save(models.one_layer_changed(onnx.load(self("resnet50"))), path)
        elif name == "bert":
            onnx.save(_bert(self._short), path)
        else:
            short = self._short and name == "resnet50"
            onnx.save(models.network("squeezenet" if short else name), path)


def _bert(short: bool) -> onnx.ModelProto:
    if short:
        return models.transformer()
    from field_networks import NETWORKS

    return NETWORKS["BERT-base 128"]()


# -- starts ------------------------------------------------------------------------------------------------------------


def started(revision: Revision, model: Path, cache: Path) -> Figures:
    """Start a network in a new process: milliseconds of the clock, of the processor, and with the import."""
    command = [revision.python, str(fresh_process.START_ONCE), str(model), str(cache)]
    found = json.loads(_output(command))
    fields = {"": "seconds", "processor": "processor", "with import": "whole"}
    return {name: 1e3 * found[field] for name, field in fields.items()}


def _output(command: list[str], **variables: str) -> str:
    ignored = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in ignored} | variables
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return done.stdout.splitlines()[-1]


def first_starts(revision: Revision, files: Files, number: int) -> Iterator[tuple[str, Figures]]:
    """Build in an empty folder."""
    for name in ("resnet50", "bert"):
        cache = revision.cache(f"first {name} {number}")
        yield f"first start, {name}", started(revision, files(name), cache)
        shutil.rmtree(cache)


def second_starts(revision: Revision, files: Files, number: int) -> Iterator[tuple[str, Figures]]:
    """Start what was built before."""
    for name in ("squeezenet", "resnet50"):
        cache = revision.cache(f"second {name}")
        if not cache.exists():
            for _ in range(2):
                started(revision, files(name), cache)
        yield f"second start, {name}", started(revision, files(name), cache)


def changed_starts(revision: Revision, files: Files, number: int) -> Iterator[tuple[str, Figures]]:
    """Start a network of which one layer is another one than in what was built before."""
    before, cache = revision.cache("changed"), revision.cache(f"changed {number}")
    if not before.exists():
        started(revision, files("resnet50"), before)
    shutil.copytree(before, cache, copy_function=os.link)  # copies of so much would be written meanwhile
    yield "one layer changed", started(revision, files("changed"), cache)
    shutil.rmtree(cache)


# -- large networks ----------------------------------------------------------------------------------------------------


def many_nodes(revision: Revision, files: Files, number: int) -> Iterator[tuple[str, Figures]]:
    """Build a network of thousands of nodes in an empty folder, in a process that has built a small one."""
    cache = revision.cache(f"nodes {number}")
    yield "6,000 nodes", _timed(revision, files, "nodes", cache)
    shutil.rmtree(cache)


def many_calls(revision: Revision, files: Files, number: int) -> Iterator[tuple[str, Figures]]:
    """Start a stored network of thousands of calls, in a process that has started a small one."""
    cache = revision.cache("calls")
    if not cache.exists():
        _timed(revision, files, "calls", cache)
    yield "5,001 calls", _timed(revision, files, "calls", cache)


def _timed(revision: Revision, files: Files, name: str, cache: Path) -> Figures:
    command = [revision.python, "-c", large_networks.TIMED, str(files("small")), str(files(name))]
    found = json.loads(_output(command, MS_COMPILER_CACHE_PATH=str(cache)))
    return {"": found["wall"], "processor": found["processor"]}


# -- calls -------------------------------------------------------------------------------------------------------------


def turns(
    name: str, files: Files, revisions: list[Revision], rounds: int, *, callers: int, seconds: float
) -> Iterator[dict[str, float]]:
    """Yield for each round what a call of a network takes in both revisions, whose processes stay, and take turns."""
    processes = {}
    for revision in revisions:
        output, cache = revision.cache(f"{name}.npy"), revision.cache("called")
        options = ["--threads", str(THREADS), "--seconds", str(seconds), "--callers", str(callers)]
        processes[revision.name] = Process(
            revision.python, "opbuild", str(files(name)), str(output), *options, "--cache", str(cache)
        )
    for number in range(rounds):
        found = {which: 1e3 * processes[which].turn() for which in _in_turn(list(processes), number)}
        yield found
    for process in processes.values():
        process.close()
    old, new = (np.load(revision.cache(f"{name}.npy")) for revision in revisions)
    if measure.relative_error(new, old) > 1e-3:
        raise SystemExit(f"{name}: the revisions return something else")


def _in_turn(values: list[Any], number: int) -> list[Any]:
    return values if number % 2 == 0 else values[::-1]


# -- the command -------------------------------------------------------------------------------------------------------

STARTS: dict[str, Callable[[Revision, Files, int], Iterator[tuple[str, Figures]]]] = {
    "first": first_starts,
    "second": second_starts,
    "changed": changed_starts,
    "nodes": many_nodes,
    "calls": many_calls,
}


def measure_all(revisions: list[Revision], files: Files, arguments: Any, say: Callable[[str], None]) -> Measured:
    """Return the results of each round, by what is measured and by revision."""
    found: Measured = defaultdict(lambda: defaultdict(list))
    for kind in arguments.only:
        for number in range(arguments.rounds + 1 if kind in STARTS else 0):
            for revision in _in_turn(revisions, number):
                say(f"{kind}, round {number} of {arguments.rounds}, {revision.name} ...")
                for what, figures in STARTS[kind](revision, files, number):
                    for name, value in figures.items() if number else ():  # the first fills what is kept in memory
                        found[", ".join(filter(None, (what, name)))][revision.name].append(value)
    for kind, names, callers in (
        ("call", models.NAMES if not arguments.short else models.NAMES[3:4], 1),
        ("callers", ("squeezenet", "resnet50"), CALLERS),
    ):
        for name in names if kind in arguments.only else ():
            say(f"{kind}, {name} ...")
            label = f"one call, {name}" if callers == 1 else f"a call of {callers} callers, {name}"
            for each in turns(name, files, revisions, arguments.rounds, callers=callers, seconds=arguments.seconds):
                for which, value in each.items():
                    found[label][which].append(value)
    return found


def summary(what: str, old: list[float], new: list[float]) -> dict[str, Any]:
    """Return one row: medians, the ratio of them, and the middle half of the ratios of a round."""
    ratios = sorted(two / one for one, two in zip(old, new, strict=True))
    quarter = len(ratios) // 4
    medians = statistics.median(old), statistics.median(new)
    row = {"what": what, "old": medians[0], "new": medians[1], "ratio": medians[1] / medians[0]}
    return row | {"low": ratios[quarter], "high": ratios[-1 - quarter], "rounds": len(ratios)}


def parse() -> Any:
    """Return the arguments."""
    parser = measure.parser(__doc__ or "")
    parser.description, parser.formatter_class = __doc__, argparse.RawDescriptionHelpFormatter
    parser.add_argument("old", help="interpreter of the older revision")
    parser.add_argument("new", help="interpreter of the newer revision")
    parser.add_argument("--only", nargs="*", choices=KINDS, default=KINDS, help="what to measure; default: all")
    parser.add_argument("--rounds", type=int, default=11, help="processes, or turns, of each; the median counts")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a turn of calls")
    parser.add_argument(
        "--short", action="store_true", help="small networks and two rounds, to see that all of it runs"
    )
    given = parser.parse_intermixed_args()
    given.rounds = 2 if given.short else given.rounds
    return given


def main() -> int:
    """Measure and print a table of medians and their ratios."""
    arguments = parse()
    console = Console(width=110)
    with tempfile.TemporaryDirectory() as folder, console.status("") as status:
        files = Files(Path(folder), short=arguments.short)
        revisions = [Revision(name, getattr(arguments, name), Path(folder) / name) for name in ("old", "new")]
        for revision in revisions:
            revision.folder.mkdir()
        found = measure_all(revisions, files, arguments, status.update)
    rows = [summary(what, each["old"], each["new"]) for what, each in found.items()]
    table = Table(title=f"Two revisions, ms, {measure.processor()}", title_justify="left")
    for column in ("", "old", "new", "ratio", "ratios of rounds"):
        table.add_column(column, justify="left" if not column else "right")
    for row in rows:
        figures = f"{row['old']:.2f}", f"{row['new']:.2f}", f"{row['ratio']:.3f}"
        table.add_row(row["what"], *figures, f"{row['low']:.2f} to {row['high']:.2f}")
    console.print(table)
    calls = [row["ratio"] for row in rows if row["what"].startswith("one call")]
    if calls:
        console.print(f"one call, geometric mean of the ratios: {math.exp(statistics.fmean(map(math.log, calls))):.3f}")
    measure.write_results(arguments.json, "revisions", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
