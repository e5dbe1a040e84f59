"""Processes that start one network together from a store with its kernels and without weights, beside one alone.

Each has imported numpy and opbuild, and waits for the word to begin. Printed are medians over the rounds, in which one
process, two and four take turns: seconds to the first answer of each process (the slowest), seconds of the processor
and bytes packed and written of all together once everything is stored.

    python benchmarks/starts_together.py [--network ResNet-50 BERT-base] [--repeat 5] [--processes 1 2 4]
                                         [--cache FOLDER]
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import onnx
from first_start import touch_memory
from models import bert, network

NETWORKS = {
    "ResNet-50": lambda: network("resnet50"),
    "BERT-base": lambda: bert(layers=12, hidden=768, heads=12, seq=128, decomposed=False),
}

ONE = """
import json, resource, sys, time
import numpy, opbuild
from opbuild.platform.files.writing import written
from opbuild.runtime import weights
packed = []
count = weights.Packer.count
weights.Packer.count = lambda self, nbytes, seconds: packed.append(nbytes) or count(self, nbytes, seconds)
print(flush=True)
sys.stdin.readline()
busy, begun = time.process_time(), time.perf_counter()
net = opbuild.compile(sys.argv[1], cache_path=sys.argv[2], num_threads=2)
compiled = time.perf_counter() - begun
feeds = {each.name: numpy.ones([1 if each < 0 else each for each in each.shape], each.dtype) for each in net.inputs}
feeds = {name: each if each.dtype.kind == "f" else each * 0 for name, each in feeds.items()}
net.run(feeds)
answered = time.perf_counter() - begun
net.wait_until_stored()
print(json.dumps([compiled, answered, time.process_time() - busy, sum(packed), written()]))
"""


class Together(NamedTuple):
    """Starts of some processes together.

    Attributes:
        compiled: Seconds until the slowest ``compile`` returned.
        answered: Seconds until the slowest had its first answer.
        processor: Seconds of the processor of all, with what is stored behind the return.
        packed: Bytes that all have packed.
        written: Bytes that all have written to the store.
    """

    compiled: float
    answered: float
    processor: float
    packed: float
    written: float


def started(model: Path, kernels: Path, count: int) -> Together:
    """Start a network in some processes at once, each from the same copy of a store."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        shutil.copytree(kernels, cache)
        touch_memory()
        command = [sys.executable, "-c", ONE, str(model), str(cache)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes = [subprocess.Popen(command, **pipes) for _ in range(count)]
        for each in processes:
            each.stdout.readline()
        for each in processes:
            each.stdin.write("\n")
            each.stdin.flush()
        said = [json.loads(each.communicate()[0]) for each in processes]
    compiled, answered, *sums = zip(*said, strict=True)
    return Together(max(compiled), max(answered), *map(sum, sums))


def with_kernels(model: Path, cache: Path) -> Path:
    """Return a store that has a network's kernels, and neither weights nor the network."""
    import opbuild

    opbuild.compile(model, cache_path=cache, wait=True).wait_until_stored()
    for folder in cache.rglob("network_meta"):
        shutil.rmtree(folder / "weights", ignore_errors=True)
        for path in folder.glob(f"{model.stem.lower().replace('-', '_')}*"):
            path.unlink()
    return cache


def measured(model: Path, kernels: Path, counts: Sequence[int], repeat: int) -> dict[int, list[Together]]:
    """Return the starts of so many processes each, which take turns."""
    runs: dict[int, list[Together]] = {count: [] for count in counts}
    for number in range(repeat):
        for count in [*counts[number % len(counts) :], *counts[: number % len(counts)]]:
            runs[count].append(started(model, kernels, count))
    return runs


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", nargs="+", default=[*NETWORKS], choices=NETWORKS)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--cache", type=Path, help="keeps models and kernels for another run")
    given = parser.parse_args()
    print("| network, processes | compiled, ms | first answer, ms | processor, ms | packed, MB | written, MB |")
    print("|---" * 6 + "|")
    with tempfile.TemporaryDirectory() as temporary:
        for name in given.network:
            folder = (given.cache or Path(temporary)) / name
            model = folder / "network.onnx"
            if not model.exists():
                folder.mkdir(parents=True)
                onnx.save(NETWORKS[name](), model)
            kernels = with_kernels(model, folder / "cache")
            for count, runs in measured(model, kernels, given.processes, given.repeat).items():
                compiled, answered, processor, packed, written = (
                    statistics.median(getattr(each, what) for each in runs) for what in Together._fields
                )
                print(
                    f"| {name}, {count} | {compiled * 1e3:.0f} | {answered * 1e3:.0f} | {processor * 1e3:.0f} "
                    f"| {packed / 1e6:.0f} | {written / 1e6:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
