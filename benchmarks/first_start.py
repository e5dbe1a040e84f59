"""The first start of common networks: everything is in an empty folder but what the release brings.

Each time is that of a fresh process with an empty cache, from the call to a network that can be called: opbuild's
``compile`` with the pack, and with ``--compile`` without it, ONNX Runtime's ``InferenceSession`` and OpenVINO's
``compile_model``. ``compile`` loads what it needs, ``import opbuild`` almost nothing, while the others are loaded by
their import statements: the second ratio counts these for all. The third is that of whole processes. All have
imported numpy before: the others' packages do that, and whoever calls a network has it. Runs are interleaved, each
repetition from another one on, medians are printed; the pages of the model's file are in memory. Caches are removed
after the last run of a network: some file systems pass over what was removed lately, file by file. Before each run
memory is written and freed: a virtual machine may have given its free memory back to its host, and who writes to it
first waits for it; a start that stores much would meet that each time.
What is measured is the opbuild that this Python has: install it (``pip install .``), since a checkout reads and
digests its own sources at each start.

    python benchmarks/first_start.py [MODEL.onnx ...] [--repeat 5] [--compile]

Without models: the nine light networks of the onnx package, and ten of ``kernels/``, the first size of each. None of
them may build an operator: below the table are those that were built all the same, and it is an error then.
"""

from __future__ import annotations

import argparse
import json
import math
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from kernels.models import structures
from opbuild.frontend.example_models import EXAMPLES
from opbuild.store.pack import PACKS
from support.processes import WITHOUT

OPBUILD = """
import sys, time
import numpy
begun = time.perf_counter()
import opbuild
start = time.perf_counter()
net = opbuild.compile(sys.argv[1], num_threads=int(sys.argv[2]))
seconds = time.perf_counter() - start
import json
operators = net.report.operators
built = [each.name for each in operators if each.status == "built"]
print(json.dumps([seconds, start - begun, built, len(operators)]))
"""

ONNXRUNTIME = """
import sys, time
begun = time.perf_counter()
import onnxruntime
imported = time.perf_counter() - begun
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[2])
start = time.perf_counter()
onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
print([time.perf_counter() - start, imported, [], 0])
"""

OPENVINO = """
import sys, time
begun = time.perf_counter()
import openvino
imported = time.perf_counter() - begun
core = openvino.Core()
start = time.perf_counter()
core.compile_model(sys.argv[1], "CPU", {"INFERENCE_NUM_THREADS": int(sys.argv[2])})
print([time.perf_counter() - start, imported, [], 0])
"""

PEERS = {"onnxruntime": (ONNXRUNTIME, {}), "openvino": (OPENVINO, {})}

NETWORKS = (
    *(f"light {name}" for name in EXAMPLES), "ResNet-50", "MobileNet-v2", "EfficientNet", "ConvNeXt", "U-Net", "ViT 0",
    "BERT 0", "MiniLM 0", "GPT-2 0", "Llama 0",
)  # fmt: skip


TOUCHED = 1 << 30
"""Bytes; more than the start of any of these networks writes."""


class Started(NamedTuple):
    """One start.

    Attributes:
        seconds: Until the network could be called; NaN: it failed.
        importing: Seconds of importing the package before.
        built: The operators that it built.
        operators: How many it has.
        process: Seconds of the whole process.
        problem: What went wrong.
    """

    seconds: float
    importing: float
    built: Sequence[str]
    operators: int
    process: float
    problem: str = ""

    @property
    def loaded(self) -> float:
        """Seconds from the import statement on."""
        return self.importing + self.seconds

    @property
    def count(self) -> str:
        """How many operators were built, in words."""
        return "fails" if self.problem else str(len(self.built))


def networks(folder: Path) -> Iterator[tuple[str, Path]]:
    """Write the networks, and yield names and paths."""
    known = structures()
    for name in NETWORKS:
        path = folder / f"{name.replace(' ', '_')}.onnx"
        onnx.save(next(iter(known[name]())), path)
        yield name, path
        path.unlink()


def touch_memory() -> None:
    """Write to memory and free it, so that whoever asks for some next need not wait for a virtual machine's host."""
    with mmap.mmap(-1, TOUCHED) as memory:
        for place in range(0, TOUCHED, mmap.PAGESIZE):
            memory[place] = 1


def started(program: str, model: Path, threads: int, caches: str, **variables: str) -> Started:
    """Start a network in a fresh process, with a cache of its own in a folder."""
    surroundings = os.environ | {"MS_COMPILER_CACHE_PATH": tempfile.mkdtemp(dir=caches), **variables}
    command = [sys.executable, "-c", program, str(model), str(threads)]
    touch_memory()
    begun = time.perf_counter()
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    process = time.perf_counter() - begun
    if done.returncode:
        problem = done.stderr.strip()[-2000:] or f"it ended with {done.returncode}"
        return Started(math.nan, math.nan, (), 0, process, problem)
    return Started(*json.loads(done.stdout.splitlines()[-1]), process)


def median(runs: Sequence[Started], what: str) -> float:
    """Return the median of one of the times."""
    return statistics.median(getattr(run, what) for run in runs)


def sizes() -> Iterator[str]:
    """Yield the size of the pack by level, and what it adds to a wheel."""
    for level in sorted(path for path in PACKS.iterdir() if path.is_dir()):
        paths = sorted(level.glob("*.pack"))
        with tempfile.TemporaryFile() as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as wheel:
            for path in paths:
                wheel.write(path, path.name)
            packed = sum(each.compress_size for each in wheel.infolist())
        nbytes = sum(path.stat().st_size for path in paths)
        yield f"{level.name}: {len(paths)} files, {nbytes / 1e6:.2f} MB, {packed / 1e6:.2f} MB of a wheel"


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("models", nargs="*", type=Path)
    arguments.add_argument("--repeat", type=int, default=5)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--alone", action="store_true", help="without ONNX Runtime and OpenVINO")
    arguments.add_argument("--compile", action="store_true", help="also without the pack")
    given = arguments.parse_args()
    for line in sizes():
        print(line)
    programs = {
        "pack": (OPBUILD, {"OPBUILD_PACK": "1"}),
        "pack, no halide": (WITHOUT.format(names=("halide",)) + OPBUILD, {"OPBUILD_PACK": "1"}),
        **({"compiled": (OPBUILD, {"OPBUILD_PACK": "0"})} if given.compile else {}),
        **({} if given.alone else PEERS),
    }
    peers = [name for name in programs if name in PEERS]
    columns = (
        *(f"{name}, ms / process (built)" if name not in PEERS else f"{name}, ms / process" for name in programs),
        *(f"pack of {name}: start / with import / process" for name in peers),
    )
    print("| network | operators | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 2) + "|")
    importing: dict[str, list[float]] = {each: [] for each in programs}
    wrong = []
    with tempfile.TemporaryDirectory() as temporary:
        for name, path in ((path.stem, path) for path in given.models) if given.models else networks(Path(temporary)):
            runs: dict[str, list[Started]] = {each: [] for each in programs}
            with tempfile.TemporaryDirectory() as caches:
                for number in range(given.repeat):
                    order = [*programs][number % len(programs) :] + [*programs][: number % len(programs)]
                    for each in order:  # who follows a process that freed much memory begins more slowly
                        program, variables = programs[each]
                        runs[each].append(started(program, path, given.threads, caches, **variables))
            cells = [
                f"{median(each, 'seconds') * 1e3:.0f} / {median(each, 'process') * 1e3:.0f}"
                + (f" ({each[0].count})" if program not in PEERS else "")
                for program, each in runs.items()
            ]
            for each in peers:
                ratios = (
                    median(runs["pack"], what) / median(runs[each], what) for what in ("seconds", "loaded", "process")
                )
                cells.append(" / ".join(f"{ratio:.2f}" for ratio in ratios))
            for each, started_ in runs.items():
                importing[each].append(median(started_, "importing"))
            print(f"| {name} | {runs['pack'][0].operators} | " + " | ".join(cells) + " |", flush=True)
            for program in ("pack", "pack, no halide"):
                first = runs[program][0]
                wrong += [f"{name}, {program}: {first.problem or ', '.join(first.built)}"] * (first.count != "0")
    for name in peers:
        if math.isnan(statistics.median(importing[name])):
            print(f"{name} could not be started: is it installed?")
    for name, times in importing.items():
        print(f"importing, {name}: {statistics.median(times) * 1e3:.0f} ms")
    if wrong:
        sys.exit("\n".join(["the pack lacks operators", *wrong]))


if __name__ == "__main__":
    main()
