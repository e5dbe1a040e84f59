"""A decoder with weights of few bits and a growing cache, against ONNX Runtime: a prompt, and tokens after it.

The decoder has 8 layers, 368 million random weights in blocks of 32. Each runtime is a fresh process with an empty
store, one after the other; opbuild also says which operators it had to compile.

    python benchmarks/generation.py [--bits 4 8] [--threads 2] [--prompt 128] [--tokens 64] [--target x86-64-v3]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import measure
import numpy as np
import onnx
from onnx import numpy_helper

from kernels.generation import decoder
from kernels.transformer import Sizes

WORDS, LAYERS, GROUPS, SIZE = 8000, 8, 4, 64
Run = Callable[[dict[str, np.ndarray]], list[np.ndarray]]


def main() -> int:
    """Measure in processes of their own, print rows, write the results."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--bits", type=int, nargs="*", default=[4, 8])
    parser.add_argument("--threads", type=int, nargs="*", default=[2, 1])
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--target", default="", help="what opbuild makes code for; default: this machine")
    parser.add_argument("--once", nargs=2, metavar=("RUNTIME", "MODEL"), help="measure here")
    given = parser.parse_args()
    if given.once:
        print(json.dumps(measured(*given.once, given.threads[0], given.prompt, given.tokens, given.target)))
        return 0
    results = []
    for bits in given.bits:
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / "decoder.onnx"
            structure = decoder(Sizes(1, "seq", "past"), bits, 32, False, 4, layers=LAYERS, words=WORDS)
            onnx.save(with_random_weights(structure, bits), model)
            for threads in given.threads:
                for runtime in ("onnxruntime", "opbuild"):
                    sizes = ["--threads", threads, "--prompt", given.prompt, "--tokens", given.tokens]
                    command = [__file__, *sizes, "--target", given.target, "--once", runtime, model]
                    store = {"MS_COMPILER_CACHE_PATH": f"{folder}/{threads}", "OPBUILD_FIRST": "answer"}
                    done = subprocess.run(
                        [sys.executable, *map(str, command)], env=os.environ | store, stdout=subprocess.PIPE, check=True
                    )
                    results.append({"bits": bits, "threads": threads, "runtime": runtime, **json.loads(done.stdout)})
                    print(*(f"{key} {value}" for key, value in results[-1].items()), flush=True)
    measure.write_results(given.json, "generation", results)
    return 0


def measured(runtime: str, model: str, threads: int, prompt: int, tokens: int, target: str) -> dict[str, Any]:
    """Return seconds of the first answer, and tokens a second of later prompts and of tokens after them."""
    started = time.perf_counter()
    run, built = RUNTIMES[runtime](model, threads, target)
    list(generation(run, prompt, 0))
    found = {"first_answer_s": round(time.perf_counter() - started, 3)}
    list(generation(run, prompt, 8))
    turns = [list(generation(run, prompt, tokens)) for _ in range(3)]
    prompts, following = [turn[0] for turn in turns], [seconds for turn in turns for seconds in turn[1:]]
    return found | {
        "prompt_tokens_a_second": round(prompt / statistics.median(prompts)),
        "next_tokens_a_second": round(1 / statistics.median(following), 1),
        "slowest_token_ms": round(max(following) * 1e3, 1),
        "compiled": built(),
    }


def generation(run: Run, prompt: int, tokens: int) -> Iterator[float]:
    """Yield the seconds of a prompt, and of each of some tokens after it, the likeliest ones."""
    words = np.random.default_rng(1).integers(0, WORDS, (1, prompt))
    cache = [np.zeros((1, GROUPS, 0, SIZE), np.float32)] * (2 * LAYERS)
    names = [f"past_{number}_{part}" for number in range(LAYERS) for part in ("key", "value")]
    for _ in range(tokens + 1):
        length = cache[0].shape[2] + words.shape[1]
        feeds = dict(zip(names, cache, strict=True))
        feeds |= {"input_ids": words, "seqlens_k": np.array([length - 1], np.int32)}
        started = time.perf_counter()
        scores, *cache = run(feeds)
        yield time.perf_counter() - started
        words = scores[:, -1:].argmax(-1)


def with_random_weights(model: onnx.ModelProto, bits: int) -> onnx.ModelProto:
    """Return a structure with random numbers in place of its constants of one number."""
    draw, graph = np.random.default_rng(0), model.graph
    known = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    made = {}
    for name, value in known.items():
        if value.dtype == np.uint8:
            made[name] = draw.integers(0, 256, value.shape, np.uint8)
        elif value.dtype == np.float32 and value.ndim == 2:
            made[name] = (draw.random(value.shape) * 0.01 / 2 ** (bits - 4)).astype(np.float32)
    nodes = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in known:
            shape = tuple(known[node.input[0]])
            value = np.ones(shape) if len(shape) == 1 else draw.standard_normal(shape) * 0.02
            made[node.output[0]] = value.astype(np.float32)
        else:
            nodes.append(node)
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in (known | made).items())
    return model


def _opbuild(model: str, threads: int, target: str) -> tuple[Run, Callable[[], int]]:
    import opbuild

    net = opbuild.compile(model, num_threads=threads, **({"target": target} if target else {}))
    return lambda feeds: list(net.run(feeds).values()), lambda: net.built


def _onnxruntime(model: str, threads: int, _target: str) -> tuple[Run, Callable[[], int]]:
    session = measure.ort_session(model, threads)
    return lambda feeds: session.run(None, feeds), lambda: 0


RUNTIMES = {"opbuild": _opbuild, "onnxruntime": _onnxruntime}


if __name__ == "__main__":
    sys.exit(main())
