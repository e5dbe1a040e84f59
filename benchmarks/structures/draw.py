"""Draws structures from every architecture of transformers, timm, torchvision and diffusers that can be made small.

Each is exported, with random weights, by both of torch's exporters, and quantized by ONNX Runtime's tools, in a process
of its own, within a time limit; what could not be is listed with the reason. What lies in the folder is not made again.

    make structures       python -m benchmarks.structures.draw FOLDER [--held-out] [--only transformers/bert] [--list]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest
from pathlib import Path

import torch

from benchmarks.structures import diffusion, images, language
from benchmarks.structures.candidate import Candidate
from benchmarks.structures.export import FORMS, export
from kernels.drawn import FAMILIES, held_out, name_hash

SECONDS = 60

Task = tuple[Candidate, str]


def tasks() -> list[Task]:
    """Return all candidates with their forms, one family after the other, in the order of hashes of their names."""
    by_family: dict[str, list[Task]] = defaultdict(list)
    for candidate in chain(language.candidates(), images.candidates(), diffusion.candidates()):
        by_family[candidate.family] += [(candidate, form) for form in FORMS]
    for each in by_family.values():
        each.sort(key=lambda task: name_hash(task_name(task)))
    return [task for row in zip_longest(*(by_family[each] for each in FAMILIES)) for task in row if task is not None]


def task_name(task: Task) -> str:
    """Return the structure's name."""
    return f"{task[0].name}/{task[1]}"


def draw(task: Task, folder: Path) -> str:
    """Export a structure unless that was tried before; return why it could not be, or nothing."""
    path = folder / f"{task_name(task)}.onnx"
    reason = path.with_suffix(".failed")
    if path.exists() or reason.exists():
        return reason.read_text() if reason.exists() else ""
    child = multiprocessing.get_context("fork").Process(target=_draw, args=(task, folder, reason))
    child.start()
    child.join(SECONDS)
    if child.is_alive():
        child.kill()
        child.join()
        _fail(reason, f"not done within {SECONDS} s")
    elif not path.exists() and not reason.exists():
        _fail(reason, f"its process ended with {child.exitcode}")
    return reason.read_text() if reason.exists() else ""


def _draw(task: Task, folder: Path, reason: Path) -> None:
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    torch.set_num_threads(1)
    try:
        export(*task, folder)
    except Exception as error:  # whatever it is, it is the reason
        _fail(reason, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    os._exit(0)


def _fail(path: Path, reason: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(reason)


def listed(chosen: Iterable[Task], folder: Path) -> Iterator[str]:
    """Yield a line for each structure: its name, its family, whether it is held out, and what became of it."""
    for task in chosen:
        name = task_name(task)
        failed = folder / f"{name}.failed"
        outcome = "exported" if (folder / f"{name}.onnx").exists() else "not tried"
        outcome = failed.read_text() if failed.exists() else outcome
        yield "\t".join((name, task[0].family, "held out" if held_out(name) else "", outcome))


def main() -> None:
    """Draw, and write the list beside what was drawn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--held-out", action="store_true", help="only these")
    parser.add_argument("--only", default="", help="names that begin so")
    parser.add_argument("--share", default="0/1", help="1/3: the second of three processes that draw")
    parser.add_argument("--list", action="store_true", help="export nothing more")
    given = parser.parse_args()
    everything = tasks()
    number, count = map(int, given.share.split("/"))
    chosen = [each for each in everything if task_name(each).startswith(given.only)]
    chosen = [each for each in chosen if held_out(task_name(each)) or not given.held_out][number::count]
    for task in () if given.list else chosen:
        started = time.perf_counter()
        reason = draw(task, given.folder)
        print(f"{time.perf_counter() - started:5.1f} s  {task_name(task)}  {reason}", flush=True)
    lines = list(listed(everything, given.folder))
    (given.folder / "list.tsv").write_text("\n".join(lines) + "\n")
    print(json.dumps(Counter(line.split("\t")[1] for line in lines if line.endswith("\texported"))), file=sys.stderr)


if __name__ == "__main__":
    main()
