"""A transformer called with one length after the other: what its first call with each takes, and what is built.

Three processes, one after the other, with one store: the first finds nothing in it, the second what the first left, and
the third asks for lengths that none had. Beside each first call stands ONNX Runtime's with that length, in the same
process, and the second call with it, which only runs. ``built`` counts the operators that were compiled for that call.

    python benchmarks/any_size.py bert.onnx --lengths 20

All inputs of the model are whole numbers of shape (batch, length).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LENGTHS = (16, 17, 40, 64, 100, 23, 35, 90, 33, 77, 50, 128, 19, 41, 66, 88, 111, 29, 57, 99)


def seconds(function: Callable[[], Any]) -> float:
    """Return how long one call takes."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def measure(model: str, store: str, lengths: list[int], batch: int, pause: float) -> list[dict[str, Any]]:
    """Return for each length what its calls took."""
    import onnxruntime

    import opbuild

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    network = opbuild.compile(model, cache_path=store, num_threads=2)
    names = [value.name for value in session.get_inputs()]
    rows = []
    for length in lengths:
        feeds = {name: np.ones((batch, length), np.int64) for name in names}
        first = seconds(lambda feeds=feeds: network.run(feeds))
        report = network.report
        row = {"length": length, "first": first, "built": report.built, "bind": report.milliseconds / 1e3}
        row["stored"] = report.image
        row["peer"] = seconds(lambda feeds=feeds: session.run(None, feeds))
        row["second"] = seconds(lambda feeds=feeds: network.run(feeds))
        rows.append(row)
        time.sleep(pause)
    return rows


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print one process's table."""
    print(f"{title}\n  length  first ms  bind ms  built  second ms  ONNX Runtime's first ms")
    for row in rows:
        first, bind, second, peer = (1e3 * row[name] for name in ("first", "bind", "second", "peer"))
        print(f"  {row['length']:6}  {first:8.1f}  {bind:7.1f}  {row['built']:5}  {second:9.1f}  {peer:10.1f}")
    built, rest = sum(row["built"] for row in rows), rows[1:]
    print(f"  built {built}; the longest first call {max(row['first'] for row in rows):.2f} s, ", end="")
    print(f"after the first length {max((row['first'] for row in rest), default=0):.3f} s; ", end="")
    print(f"the middle of the bindings {1e3 * float(np.median([row['bind'] for row in rest])):.1f} ms")


def main() -> None:
    """Measure a cold store, then a warm one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--lengths", type=int, default=20, help="how many of them")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--store", default="", help="a folder; default: a new one")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between lengths")
    parser.add_argument("--add", type=int, default=0, help="what is added to each length")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    lengths = [length + given.add for length in LENGTHS[: given.lengths]]
    if given.one:
        print(json.dumps(measure(given.model, given.store, lengths, given.batch, given.pause)))
        return
    with tempfile.TemporaryDirectory() as folder:
        store = given.store or folder
        arguments = ["--one", "--store", store, "--lengths", str(given.lengths), "--batch", str(given.batch)]
        command = [sys.executable, str(Path(__file__)), given.model, *arguments, "--pause", str(given.pause)]
        for title, added in (("a cold store", 0), ("a warm store", 0), ("a warm store, and lengths that are new", 5)):
            ended = subprocess.run([*command, "--add", str(given.add + added)], check=True, stdout=subprocess.PIPE)
            show(title, json.loads(ended.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
