"""The time of a batch beside that of as many single calls, of networks whose batch is open; in turn, by one thread.

``python benchmarks/batches.py`` prints a table of Markdown: the time of a batch, divided by that of its rows alone.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.frontend.example_models import example_model

BATCHES = (2, 8, 32)
TURNS = 15
SETTLING = 2.0
"""Seconds of calls before turns begin: the kernels that suit a size best are built behind its first calls."""
WIDTH, LAYERS = 1024, 3


def layers() -> onnx.ModelProto:
    """Return three dense layers with ReLU."""
    draw = np.random.default_rng(0)
    weights = [draw.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 32 for _ in range(LAYERS)]
    nodes = []
    for number in range(LAYERS):
        nodes.append(helper.make_node("MatMul", [f"x{number}", f"w{number}"], [f"h{number}"]))
        nodes.append(helper.make_node("Relu", [f"h{number}"], [f"x{number + 1}"]))
    ends = [helper.make_tensor_value_info(f"x{each}", TensorProto.FLOAT, (1, WIDTH)) for each in (0, LAYERS)]
    constants = [numpy_helper.from_array(each, f"w{number}") for number, each in enumerate(weights)]
    return helper.make_model(helper.make_graph(nodes, "layers", ends[:1], ends[1:], constants))


def seconds(call: Callable[[], Any]) -> float:
    """Return the seconds of a call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def ratios(model: onnx.ModelProto, cache: Path) -> list[float]:
    """Return for each batch its time, divided by that of as many single calls: medians of turns."""
    [declared] = opbuild.compile(model, cache_path=cache).inputs
    opened = {declared.name: (None, *declared.shape[1:])}
    network = opbuild.compile(model, input_shapes=opened, cache_path=cache, num_threads=1)
    found = []
    for batch in BATCHES:
        x = np.random.default_rng(1).standard_normal((batch, *declared.shape[1:])).astype(np.float32)
        rows = [x[number : number + 1] for number in range(batch)]
        end = time.monotonic() + SETTLING
        while time.monotonic() < end:
            network(x), network(rows[0])
        turns = [
            seconds(lambda x=x: network(x)) / seconds(lambda rows=rows: [network(row) for row in rows])
            for _ in range(TURNS)
        ]
        found.append(statistics.median(turns))
    return found


def main() -> None:
    """Print the table."""
    print("| | " + " | ".join(f"batch {batch}" for batch in BATCHES) + " |\n|---|" + "--:|" * len(BATCHES))
    models = {f"{LAYERS} layers of {WIDTH}": layers(), "SqueezeNet": example_model("squeezenet")}
    for name, model in models.items():
        with tempfile.TemporaryDirectory() as cache:
            found = ratios(model, Path(cache))
        print(f"| {name} | " + " | ".join(f"{ratio:.2f}" for ratio in found) + " |", flush=True)


if __name__ == "__main__":
    main()
