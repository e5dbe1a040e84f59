"""The first start of common networks: everything is in an empty folder but what the release brings.

Each time is that of a fresh process with an empty cache, from the call to a network that can be called: opbuild's
``compile`` with the pack, and with ``--compile`` without it, ONNX Runtime's ``InferenceSession`` and OpenVINO's
``compile_model``. Runs are interleaved, medians are printed; the pages of the model's file are in memory.

    python benchmarks/first_start.py [MODEL.onnx ...] [--repeat 5] [--compile]

Without models: the nine light networks of the onnx package, and those of ``kernels/`` with all their layers' widths.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from kernels.models import structures
from opbuild.store.pack import PACKS
from processes import WITHOUT, environment

OPBUILD = """
import sys, time
import opbuild
start = time.perf_counter()
net = opbuild.compile(sys.argv[1], num_threads=int(sys.argv[2]))
seconds = time.perf_counter() - start
import json
print(json.dumps([seconds, net.report.built, len(net.report.operators)]))
"""

ONNXRUNTIME = """
import sys, time
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[2])
start = time.perf_counter()
onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
print([time.perf_counter() - start, 0, 0])
"""

OPENVINO = """
import sys, time
import openvino
core = openvino.Core()
start = time.perf_counter()
core.compile_model(sys.argv[1], "CPU", {"INFERENCE_NUM_THREADS": int(sys.argv[2])})
print([time.perf_counter() - start, 0, 0])
"""


def networks(folder: Path) -> Iterator[tuple[str, Path]]:
    """Write the networks that the pack is made for, the first size of each, and yield names and paths."""
    for name, structure in structures().items():
        model = next(iter(structure()))
        if len(model.graph.node) > 20 and not name.endswith(("1", "2", "3", "next", "keys", "scaled", "padded")):
            path = folder / f"{name.replace(' ', '_')}.onnx"
            onnx.save(model, path)
            yield name, path


def started(program: str, model: Path, threads: int, **variables: str) -> tuple[float, int, int]:
    """Return seconds, operators built and operators of one start in a fresh process; NaN where it fails."""
    with tempfile.TemporaryDirectory() as cache:
        surroundings = environment(MS_COMPILER_CACHE_PATH=cache, **variables)
        command = [sys.executable, "-c", program, str(model), str(threads)]
        done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{model.name}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return float("nan"), -1, -1
    seconds, built, operators = json.loads(done.stdout.splitlines()[-1])
    return float(seconds), int(built), int(operators)


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
    arguments.add_argument("--compile", action="store_true", help="also without the pack")
    given = arguments.parse_args()
    for line in sizes():
        print(line)
    programs = {
        "pack": (OPBUILD, {"OPBUILD_PACK": "1"}),
        "pack, no halide": (WITHOUT.format(names=("halide",)) + OPBUILD, {"OPBUILD_PACK": "1"}),
        **({"compiled": (OPBUILD, {"OPBUILD_PACK": "0"})} if given.compile else {}),
        "onnxruntime": (ONNXRUNTIME, {}),
        "openvino": (OPENVINO, {}),
    }
    print("| network | operators | " + " | ".join(f"{name}, ms (built)" for name in programs) + " |")
    print("|---" * (len(programs) + 2) + "|")
    with tempfile.TemporaryDirectory() as temporary:
        chosen = [(path.stem, path) for path in given.models] or list(networks(Path(temporary)))
        for name, path in chosen:
            runs: dict[str, list[tuple[float, int, int]]] = {each: [] for each in programs}
            for _ in range(given.repeat):
                for each, (program, variables) in programs.items():
                    runs[each].append(started(program, path, given.threads, **variables))
            cells = [
                f"{statistics.median(run[0] for run in each) * 1e3:.0f}"
                + (f" ({each[0][1]})" if program not in ("onnxruntime", "openvino") else "")
                for program, each in runs.items()
            ]
            print(f"| {name} | {runs['pack'][0][2]} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
