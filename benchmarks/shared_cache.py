"""The next token of a decoder whose caches have room and are continued in place, against ONNX Runtime, by length.

The decoder is the one of ``generation.py``, with 4 bits. Each length is that of a cache which is filled as far; ONNX
Runtime's past and present are bound to one buffer, opbuild is given its inputs' arrays for outputs. Rows are printed
beside those of caches that grow, which each call copies, and of ONNX's own operators: TensorScatter writes into the
cache, and Attention is told how many keys there are.

    python benchmarks/shared_cache.py [--threads 2 1] [--room 2304] [--lengths 10 500 2000] [--window 256]
                                      [--forms "in place" "of ONNX" growing] [--target x86-64-v3]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import measure
import numpy as np
import onnx
from generation_models import GROUPS, LAYERS, SIZE, WORDS, with_random_weights

from kernels.generation import decoder, with_onnx_attention, without_unread
from kernels.transformer import Sizes

TOKENS = 24
"""Tokens of a length, of which the median counts."""

NAMES = [f"past_{number}_{part}" for number in range(LAYERS) for part in ("key", "value")]
Step = Callable[[int], None]
"""Computes the token behind so many keys."""


def main() -> int:
    """Measure in processes of their own, print rows, write the results."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--threads", type=int, nargs="*", default=[2, 1])
    parser.add_argument("--room", type=int, default=2304)
    parser.add_argument("--lengths", type=int, nargs="*", default=[10, 500, 2000])
    parser.add_argument("--forms", nargs="*", default=["in place", "of ONNX", "growing"])
    parser.add_argument("--window", type=int, default=0, help="keys that a token sees (default: all)")
    parser.add_argument("--target", default="", help="what opbuild makes code for; default: this machine")
    parser.add_argument("--once", nargs=3, metavar=("RUNTIME", "FORM", "MODEL"), help="measure here")
    given = parser.parse_args()
    if given.once:
        runtime, form, model = given.once
        step = STEPS[runtime](model, form, given.threads[0], given.room, given.target)
        print(json.dumps({str(length): milliseconds(step, length) for length in given.lengths}))
        return 0
    results = []
    with tempfile.TemporaryDirectory() as folder:
        models = {form: Path(folder) / f"{form}.onnx" for form in given.forms}
        for form, path in models.items():
            sizes, attending = Sizes(1, "seq", "past" if form == "growing" else "room"), {}
            if given.window:
                attending["local_window_size"] = given.window
            has_room = form != "growing"
            structure = decoder(sizes, 4, 32, False, 4, layers=LAYERS, words=WORDS, has_room=has_room, **attending)
            model = with_random_weights(structure, 4)
            onnx.save(with_onnx_attention(model) if form == "of ONNX" else with_total(model), path)
        for threads in given.threads:
            for form, path in models.items():
                for runtime in STEPS:
                    lengths = ["--lengths", *given.lengths, "--room", given.room, "--threads", threads]
                    command = [__file__, *lengths, "--target", given.target, "--once", runtime, form, path]
                    store = {"MS_COMPILER_CACHE_PATH": folder, "OPBUILD_FIRST": "build"}
                    done = subprocess.run(
                        [sys.executable, *map(str, command)], env=os.environ | store, stdout=subprocess.PIPE, check=True
                    )
                    row = {
                        "threads": threads,
                        "form": form,
                        "runtime": runtime,
                        "milliseconds": json.loads(done.stdout),
                    }
                    results.append(row)
                    print(*(f"{key} {value}" for key, value in row.items()), flush=True)
    measure.write_results(given.json, "shared_cache", results)
    return 0


def with_total(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a decoder with the number of all tokens as an input, as exporters write it."""
    graph = model.graph
    for node in graph.node:
        if node.op_type == "GroupQueryAttention":
            node.input[6] = "total"
    graph.input.append(onnx.helper.make_tensor_value_info("total", onnx.TensorProto.INT32, []))
    return without_unread(model)


def milliseconds(step: Step, length: int) -> float:
    """Return the milliseconds of one token behind so many keys."""
    times = []
    for _ in range(TOKENS):
        started = time.perf_counter()
        step(length)
        times.append((time.perf_counter() - started) * 1e3)
    return round(statistics.median(times[TOKENS // 4 :]), 2)


def _feeds(length: int, form: str) -> dict[str, Any]:
    feeds = {"input_ids": np.array([[length % WORDS]]), "seqlens_k": np.array([length], np.int32)}
    return feeds | ({} if form == "of ONNX" else {"total": np.array(length + 1, np.int32)})


def _caches(length: int) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [draw.standard_normal((1, GROUPS, length, SIZE), dtype=np.float32) for _ in NAMES]


def _opbuild(model: str, form: str, threads: int, room: int, target: str) -> Step:
    import opbuild

    net = opbuild.compile(model, num_threads=threads, **({"target": target} if target else {}))
    names = [port.name for port in net.outputs][1:]
    kept: dict[int, list[np.ndarray]] = {}

    def step(length: int) -> None:
        extent = room if form != "growing" else length
        if extent not in kept:
            kept[extent] = _caches(extent)
        out = dict(zip(names, kept[extent], strict=True)) if form != "growing" else {}
        net.run(_feeds(length, form) | dict(zip(NAMES, kept[extent], strict=True)), out=out)

    return step


def _onnxruntime(model: str, form: str, threads: int, room: int, _target: str) -> Step:
    import onnxruntime

    session = measure.ort_session(model, threads)
    names = [port.name for port in session.get_outputs()]
    kept: dict[int, list[Any]] = {}

    def step(length: int) -> None:
        extent = room if form != "growing" else length
        if extent not in kept:
            kept[extent] = [*map(onnxruntime.OrtValue.ortvalue_from_numpy, _caches(extent))]
        binding = session.io_binding()
        for name, array in _feeds(length, form).items():
            binding.bind_cpu_input(name, array)
        for name, value in zip(NAMES, kept[extent], strict=True):
            binding.bind_ortvalue_input(name, value)
        binding.bind_output(names[0], "cpu")
        for name, value in zip(names[1:], kept[extent], strict=True):
            if form != "growing":
                binding.bind_ortvalue_output(name, value)
            else:
                binding.bind_output(name, "cpu")
        session.run_with_iobinding(binding)

    return step


STEPS = {"onnxruntime": _onnxruntime, "opbuild": _opbuild}


if __name__ == "__main__":
    sys.exit(main())
