"""A decoder with weights of few bits and a growing cache, beside other programs: a prompt, and tokens after it.

    python benchmarks/generation.py [--bits 4 8] [--threads 2 1] [--prompt 128] [--tokens 64] [--target x86-64-v3]
        [--peers PYTHON] [--llama LLAMA_BENCH] [--rounds 3] [--models FOLDER]

The decoder has 8 layers, 368 million random weights in blocks of 32, as ONNX Runtime's model builder writes it. Each
runtime is a fresh process with an empty store; they take turns, and medians of the rounds count. First answers are
seconds from the start of the process. ``--peers`` is a Python where those of ``onnxruntime-genai``, ``openvino`` and
``openvino-genai`` are installed that are to be measured; OpenVINO reads the same file and keeps the cache as its state.
``--llama`` is llama.cpp's own benchmark, whose decoder has the same sizes in its own format (``Q4_0``, ``Q8_0``), which
OpenVINO GenAI reads, too; it is written by ``gguf`` in the Python of ``--peers``.
``--target`` is measured beside this machine's level.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import measure
from generation_models import onnx_folder

ONCE, MODELS = (Path(__file__).with_name(f"generation_{name}.py") for name in ("once", "models"))
PACKAGES = {"genai": "onnxruntime_genai", "openvino": "openvino", "openvino_genai": "openvino_genai"}

Figures = dict[str, Any]


def main() -> int:
    """Measure in processes of their own, print rows, write the results."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--bits", type=int, nargs="*", default=[4, 8])
    parser.add_argument("--threads", type=int, nargs="*", default=[2, 1])
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3, help="processes of each runtime; medians count")
    parser.add_argument("--target", help="make opbuild's code for this level, too")
    parser.add_argument("--peers", type=Path, help="a Python that has other runtimes")
    parser.add_argument("--llama", type=Path, help="llama.cpp's llama-bench; needs gguf in the Python of --peers")
    parser.add_argument("--models", type=Path, help="where the decoders are, or are written to")
    given = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for bits in given.bits:
            writes = given.peers and (given.llama or has(given.peers, PACKAGES["openvino_genai"]))
            model = written(bits, given.models or Path(folder), given.peers if writes else None)
            for threads in given.threads:
                sizes = threads, given.prompt, given.tokens
                rounds = [measured(given, model, bits, sizes) for _ in range(given.rounds)]
                for name in rounds[0]:
                    found = {key: statistics.median(each[name][key] for each in rounds) for key in rounds[0][name]}
                    results.append({"bits": bits, "threads": threads, "runtime": name, **found})
                    print(*(f"{key} {value:.5g}" if isinstance(value, float) else f"{key} {value}"
                            for key, value in results[-1].items()), flush=True)  # fmt: skip
    measure.write_results(given.json, "generation", results)
    return 0


def written(bits: int, folder: Path, writer: Path | None) -> Path:
    """Return the decoder's ONNX file, which is written unless it is there, with GGUF beside it if there is a writer."""
    place = folder / str(bits)
    place.mkdir(parents=True, exist_ok=True)
    path = place / "model.onnx"
    if not path.exists():
        onnx_folder(bits, place)
    if writer is not None and not (place / "model.gguf").exists():
        subprocess.run([writer, MODELS, f"Q{bits}_0", place / "model.gguf"], check=True)
    return path


def measured(given: Any, model: Path, bits: int, sizes: tuple[int, int, int]) -> dict[str, Figures]:
    """Return the figures of each runtime, one process after the other."""
    found = {"opbuild": once(sys.executable, "opbuild", model, sizes)}
    if given.target:
        found[f"opbuild {given.target}"] = once(sys.executable, "opbuild", model, sizes, given.target)
    found["onnxruntime"] = once(sys.executable, "onnxruntime", model, sizes)
    for name, package in PACKAGES.items():
        if given.peers and has(given.peers, package):
            found[name] = once(given.peers, name, model, sizes)
    if given.llama:
        found["llama.cpp"] = llama(given.llama, model.with_suffix(".gguf"), sizes)
    return found


def has(python: Path, package: str) -> bool:
    """Return whether a Python has a package."""
    command = [python, "-c", f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({package!r}))"]
    return subprocess.run(command, check=False).returncode == 0


def once(python: str | Path, name: str, model: Path, sizes: tuple[int, int, int], target: str = "") -> Figures:
    """Return the figures of a runtime in a process with an empty store; of opbuild also those of the next start."""
    with tempfile.TemporaryDirectory() as store:
        found = process(python, [name, model, *sizes, *filter(None, [target])], store)
        if name == "opbuild":
            again = process(python, [name, model, *sizes, *filter(None, [target])], store)
            found |= {f"{key}_again": again[key] for key in ("first_answer_s", "megabytes")}
    return found


def process(python: str | Path, words: Sequence[object], store: str) -> Figures:
    """Return the figures of a runtime in a process."""
    variables = {"MS_COMPILER_CACHE_PATH": store, "OPBUILD_FIRST": "answer"}
    started = time.time()
    done = subprocess.run(
        list(map(str, [python, ONCE, *words])),
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return {
        "first_answer_s": found["answered"] - started,
        "prompt_tokens_a_second": found["prompt_tokens"] / found["prompt_s"],
        "next_tokens_a_second": 1 / found["next_s"],
        "slowest_token_ms": found["slowest_s"] * 1e3,
        "megabytes": found["memory"] / 1e6,
        **({"compiled": found["compiled"]} if "compiled" in found else {}),
    }


def llama(bench: Path, model: Path, sizes: tuple[int, int, int]) -> Figures:
    """Return llama.cpp's figures: tokens are generated behind as many as the prompt has."""
    threads, prompt, tokens = sizes
    command = [bench, "-m", model, "-t", threads, "-o", "json"]
    started = time.perf_counter()
    peak([*command, "-p", prompt, "-n", 0, "-r", 1, "--no-warmup"])
    first = time.perf_counter() - started
    whole, _ = peak([*command, "-p", prompt, "-n", 0, "-r", 3])
    following, memory = peak([*command, "-p", 0, "-n", tokens, "-d", prompt, "-r", 3])
    return {
        "first_answer_s": first,
        "prompt_tokens_a_second": statistics.median(whole["samples_ts"]),
        "next_tokens_a_second": statistics.median(following["samples_ts"]),
        "megabytes": memory / 1e6,
    }


def peak(command: list[Any]) -> tuple[Figures, int]:
    """Return the figures that a program prints, and the most memory that it had while it was looked at."""
    memory = 0
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None:
            with contextlib.suppress(OSError, StopIteration):
                lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                memory = max(memory, next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")))
            time.sleep(0.005)
        output = process.stdout.read() if process.stdout else b""
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return json.loads(output)[0], memory


if __name__ == "__main__":
    sys.exit(main())
