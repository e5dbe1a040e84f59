"""Networks of thousands of nodes: what each step of building takes, and starting a long record.

A network of layers (product, bias, Relu, transpose, Softmax, Identity: six nodes, three calls) is built from the pack
in an empty folder; another is built, and started in fresh processes that have started a small one before, so that no
import is counted. Milliseconds of wall time and of the processor, the least of several runs.

    python benchmarks/large_networks.py [--nodes 6000] [--calls 5000] [--repeat 5]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.processes import environment

LAYER = {"MatMul": ("w",), "Add": ("b",), "Relu": (), "Transpose": (), "Softmax": (), "Identity": ()}
"""The operators of a layer in order, and their constants."""

CALLS = 3
"""What a layer is when it is built: a product with bias and Relu, a transpose, a Softmax."""

SIZE = 16
PASSES_LIMIT, START_LIMIT = 3000.0, 60.0
"""Milliseconds that the passes of 6,000 nodes, and the start of a record of 5,000 calls, are to take at most; the start
is judged by the time of the processor, which other work on the machine disturbs least."""

TIMED = """
import json, sys, time
import opbuild
opbuild.compile(sys.argv[1])
began, processor = time.perf_counter(), time.process_time()
report = opbuild.compile(sys.argv[2]).report
times = {"processor": 1e3 * (time.process_time() - processor), "wall": 1e3 * (time.perf_counter() - began)}
print(json.dumps({**report.steps, **times}))
"""


def write(layers: int, path: Path) -> Path:
    """Write a network and return its path."""
    rng = np.random.default_rng(0)
    nodes, constants, value = [], [], "x"
    for layer in range(layers):
        for name, shape in (("w", (SIZE, SIZE)), ("b", (SIZE,))):
            array = rng.standard_normal(shape).astype(np.float32) / 4
            constants.append(numpy_helper.from_array(array, f"{name}_{layer}"))
        for op_type, names in LAYER.items():
            inputs = [value, *(f"{name}_{layer}" for name in names)]
            value = f"{op_type}_{layer}"
            nodes.append(helper.make_node(op_type, inputs, [value], name=value))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE, SIZE]) for name in ("x", value)]
    graph = helper.make_graph(nodes, path.stem, ends[:1], ends[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def timed(small: Path, network: Path, cache: str) -> dict[str, float]:
    """Return the times of a fresh process for a network, by step, after it has made a small one ready."""
    command = [sys.executable, "-c", TIMED, str(small), str(network)]
    surroundings = environment(MS_COMPILER_CACHE_PATH=cache)
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def least(runs: list[dict[str, float]]) -> dict[str, float]:
    """Return the least of several runs for each step."""
    return {step: min(run[step] for run in runs) for step in runs[0]}


def shown(times: dict[str, float]) -> str:
    """Return times in words."""
    return ", ".join(f"{step} {time:.0f}" for step, time in times.items())


def verdict(time: float, limit: float) -> str:
    """Return a time beside what it is to be."""
    return f"{time:.0f} ms, at most {limit:.0f}: {'met' if time <= limit else 'NOT MET'}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="networks of thousands of nodes")
    parser.add_argument("--nodes", type=int, default=6000)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--repeat", type=int, default=5)
    given: Any = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small = write(1, folder / "small.onnx")
        large, long = (
            write(layers, folder / f"{layers}_layers.onnx")
            for layers in (-(-given.nodes // len(LAYER)), -(-given.calls // CALLS))
        )
        builds = []
        for _ in range(given.repeat):
            with tempfile.TemporaryDirectory() as empty:
                builds.append(timed(small, large, empty))
        built = least(builds)
        timed(small, long, name)
        started = least([timed(small, long, name) for _ in range(given.repeat)])
    print(f"{given.nodes} nodes, built from the pack: {shown(built)}")
    print(f"all passes: {verdict(built['optimize'], PASSES_LIMIT)}")
    print(f"{given.calls} calls, started: {shown(started)}")
    print(f"start, processor: {verdict(started['processor'], START_LIMIT)}")


if __name__ == "__main__":
    main()
