"""Runs ONNX's cases in processes of their own and prints what became of them.

    python tests/conformance/run.py [--cache FOLDER] [--json FILE] [--update]
                                    [--first] [--share N | --others N] [part of a name ...]

Without parts of names it runs all. What does not pass on kernels alone is listed with its reason, then the counts.
With ``--update`` the golden file and the page of the documentation are written anew.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conformance.cases import Case, cases
from conformance.outcomes import COMPILED, STATES, WRONG, Outcome, outcome, remembered
from conformance.page import page
from support import kept_kernels

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "conformance.json"
PAGE = ROOT / "docs" / "reference" / "conformance.md"


def run(chosen: Sequence[Case], cache: Path, processes: int) -> dict[str, Outcome]:
    """Return the outcome of each case, by name, sorted."""
    context = multiprocessing.get_context("fork")  # cases cannot be pickled cheaply: onnx computes them
    with context.Pool(processes, partial(_take, chosen, cache), maxtasksperchild=200) as pool:
        return dict(sorted(pool.imap_unordered(_run, range(len(chosen)), chunksize=8)))


_taken: list[tuple[Sequence[Case], Path]] = []


def _take(chosen: Sequence[Case], cache: Path) -> None:
    _taken[:] = [(chosen, cache)]


def _run(index: int) -> tuple[str, Outcome]:
    chosen, cache = _taken[0]
    return chosen[index].name, outcome(chosen[index], cache)


def selected(parts: Sequence[str]) -> list[Case]:
    """Return the cases whose names contain one of these parts; all if there is none."""
    return [case for case in cases() if not parts or any(part in case.name for part in parts)]


def first_of_each() -> list[Case]:
    """Return the first case of each set of operators, but for those that expand an operator into others."""
    first: dict[tuple[str, ...], Case] = {}
    for case in cases(("node",)):
        if "expanded" not in case.name:
            first.setdefault(case.operators, case)
    return list(first.values())


def main(arguments: Sequence[str]) -> int:
    """Run cases; return 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("parts", nargs="*", help="parts of names")
    parser.add_argument("--first", action="store_true", help="run the first case of each set of operators")
    parser.add_argument("--share", type=int, help="run every so-manieth of them")
    parser.add_argument("--others", type=int, help="run those that --share leaves out")
    parser.add_argument("--cache", type=Path, help="folder of the store (default: one that is removed again)")
    parser.add_argument("--json", type=Path, help="file for what became of each case")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="cases that run at once")
    parser.add_argument("--update", action="store_true", help="write the golden file and the page; runs all cases")
    given = parser.parse_args(arguments)
    if not given.update:
        kept_kernels.take_in_builds()
    chosen = first_of_each() if given.first and not given.update else selected(() if given.update else given.parts)
    if given.share or given.others:
        part = given.share or given.others
        chosen = [case for at, case in enumerate(chosen) if (at % part == 0) == bool(given.share)]
    with tempfile.TemporaryDirectory(prefix="opbuild-conformance-") as folder:
        began = time.perf_counter()
        found = run(chosen, given.cache or Path(folder), given.processes)
        seconds = time.perf_counter() - began
    for name, each in found.items():
        if each.state != COMPILED:
            print(f"{each.state:8} {name} {', '.join(each.host)} {each.reason[:300]}")
    counts = Counter(each.state for each in found.values())
    print(", ".join(f"{state} {counts[state]}" for state in STATES), f"in {seconds:.1f} s")
    if given.json:
        given.json.write_text(json.dumps({name: each._asdict() for name, each in found.items()}), encoding="utf-8")
    if given.update:
        GOLDEN.write_text(json.dumps(remembered(found), indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(found), encoding="utf-8")
    return 1 if counts[WRONG] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
