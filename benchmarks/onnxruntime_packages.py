"""Networks of packages written for ONNX Runtime: session start, first call and latency beside ONNX Runtime.

    python benchmarks/onnxruntime_packages.py [--rounds N] [--threads N]

Each network's session is made and called in a fresh process per runtime for the start (opbuild's twice: what is stored
counts). Then both run in one process by turns: medians of processor time, as one thread takes it, which others on the
machine disturb little.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

NETWORKS: dict[str, tuple[str, str, str, tuple[int, ...]]] = {
    "rapidocr text found": ("rapidocr", "models/PP-OCRv6_det_small.onnx", "float32", (1, 3, 320, 480)),
    "rapidocr text turned": ("rapidocr", "models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", "float32", (6, 3, 80, 160)),
    "rapidocr text read": ("rapidocr", "models/PP-OCRv6_rec_small.onnx", "float32", (1, 3, 48, 320)),
    "magika": ("magika", "models/standard_v3_3/model.onnx", "int32", (1, 2048)),
}
"""Package, model in it, element type and shape of its input."""


def model_and_input(name: str) -> tuple[str, np.ndarray[Any, Any]]:
    """Return a network's file and its input."""
    package, model, dtype, shape = NETWORKS[name]
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"the package {package} is not installed")
    generator = np.random.default_rng(0)
    data = generator.random(shape) if dtype == "float32" else generator.integers(0, 256, shape)
    return str(Path(spec.origin).parent / model), data.astype(dtype)


def session(runtime: str, path: str, threads: int) -> Any:
    """Return a session of ONNX Runtime's interface."""
    module = __import__(runtime, fromlist=["InferenceSession"])
    options = module.SessionOptions()
    options.intra_op_num_threads = threads
    return module.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def started(runtime: str, name: str, threads: int) -> dict[str, float]:
    """Return seconds until a session is there, and of its first and second call, in this process."""
    path, data = model_and_input(name)
    begun = time.perf_counter()
    made = session(runtime, path, threads)
    times = {"session": time.perf_counter() - begun}
    for call in ("first", "second"):
        begun = time.perf_counter()
        made.run(None, {made.get_inputs()[0].name: data})
        times[call] = time.perf_counter() - begun
    return times


def in_fresh_process(runtime: str, name: str, threads: int) -> dict[str, float]:
    """Return the result of ``started``, in a process of its own."""
    command = [sys.executable, __file__, "--start", runtime, name, "--threads", str(threads)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(json.loads(printed.splitlines()[-1]))


def settle(made: Any, data: np.ndarray[Any, Any]) -> None:
    """Call a session until nothing is made ready behind its calls any more, half a minute at most."""
    latest = time.monotonic() + 30
    while time.monotonic() < latest and any(each.name.startswith("opbuild") for each in threading.enumerate()):
        made.run(None, {made.get_inputs()[0].name: data})
        time.sleep(0.1)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1, help="of more the idle ones count too")
    parser.add_argument("--start", nargs=2, metavar=("RUNTIME", "NETWORK"))
    options = parser.parse_args()
    if options.start:
        print(json.dumps(started(*options.start, options.threads)))
        return
    print("| network | session, ms | first call | second session, ms | processor time of a call, ms | ratio |")
    print("|---|---|---|---|---|---|")
    for name in NETWORKS:
        starts = {
            runtime: [in_fresh_process(runtime, name, options.threads) for _ in range(3)]
            for runtime in ("opbuild.onnxruntime", "onnxruntime")
        }
        path, data = model_and_input(name)
        made = {runtime: session(runtime, path, options.threads) for runtime in starts}
        again = {}
        times: dict[str, list[float]] = {runtime: [] for runtime in starts}
        for runtime, one in made.items():
            one.run(None, {one.get_inputs()[0].name: data})
            begun = time.perf_counter()
            session(runtime, path, options.threads)
            again[runtime] = time.perf_counter() - begun
        settle(made["opbuild.onnxruntime"], data)
        for _ in range(options.rounds):
            for runtime, one in made.items():
                begun = time.process_time()
                one.run(None, {one.get_inputs()[0].name: data})
                times[runtime].append(time.process_time() - begun)
        latency = {runtime: statistics.median(taken) for runtime, taken in times.items()}
        both = [
            " / ".join(f"{1e3 * value:.3g}" for value in values)
            for values in (
                [statistics.median(each["session"] for each in found) for found in starts.values()],
                [statistics.median(each["first"] for each in found[1:]) for found in starts.values()],
                list(again.values()),
                list(latency.values()),
            )
        ]
        ratio = latency["opbuild.onnxruntime"] / latency["onnxruntime"]
        print(f"| {name} | {' | '.join(both)} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
