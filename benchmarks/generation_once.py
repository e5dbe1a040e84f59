"""One runtime that generates texts in a fresh process, for ``generation.py``; needs numpy and the runtime alone.

    python benchmarks/generation_once.py RUNTIME MODEL THREADS PROMPT TOKENS [TARGET]

It prints JSON: the time of day at which the first prompt was answered, the seconds of later prompts and of a token
behind them, the most memory, and of opbuild the operators that were compiled.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from generation_models import CACHE, GROUPS, SIZE, WORDS

TURNS = 3
PATIENCE = 60
"""Seconds after which operators that are still compiled behind the calls are not waited for."""

Array = np.ndarray[Any, Any]
Text = Callable[[Array, int], "list[float]"]
"""Generates some tokens behind a prompt; returns the seconds of the prompt and of each of them."""


def fed(run: Callable[[Mapping[str, Array]], Mapping[str, Array]]) -> Text:
    """Return a generator of texts by calls that are given the cache, and return it longer."""

    def text(prompt: Array, tokens: int) -> list[float]:
        cache = dict.fromkeys(CACHE, np.zeros((1, GROUPS, 0, SIZE), np.float32))
        words, seconds = prompt[None], list[float]()
        for length in range(len(prompt), len(prompt) + tokens + 1):
            feeds = {"input_ids": words, "attention_mask": np.ones((1, length), np.int64), **cache}
            began = time.perf_counter()
            found = run(feeds)
            seconds.append(time.perf_counter() - began)
            words = found["logits"][:, -1:].argmax(-1)
            cache = {name: found[present] for name, present in CACHE.items()}
        return seconds

    return text


def with_opbuild(model: str, threads: int, target: str) -> tuple[Text, Any]:
    """Return opbuild, and its network."""
    import opbuild

    net = opbuild.compile(model, num_threads=threads, **({"target": target} if target else {}))
    return fed(net.run), net


def with_onnxruntime(model: str, threads: int, _target: str) -> tuple[Text, None]:
    """Return ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = threads, 1, 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    return fed(lambda feeds: dict(zip(names, session.run(None, feeds), strict=True))), None


def with_genai(model: str, threads: int, _target: str) -> tuple[Text, None]:
    """Return ONNX Runtime's own generator, whose cache stays in one buffer."""
    import onnxruntime_genai as genai

    config = genai.Config(str(Path(model).parent))
    options = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
    config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
    loaded = genai.Model(config)

    def text(prompt: Array, tokens: int) -> list[float]:
        parameters = genai.GeneratorParams(loaded)
        length = len(prompt) + tokens + 2
        parameters.set_search_options(max_length=length, min_length=length, do_sample=False)
        generator, seconds = genai.Generator(loaded, parameters), list[float]()
        began = time.perf_counter()
        generator.append_tokens(prompt.astype(np.int32))
        for _ in range(tokens + 1):
            generator.generate_next_token()
            seconds.append(time.perf_counter() - began)
            began = time.perf_counter()
        return seconds

    return text, None


def with_openvino(model: str, threads: int, _target: str) -> tuple[Text, None]:
    """Return OpenVINO, with the cache as its state, as OpenVINO GenAI has it."""
    import openvino
    from openvino._offline_transformations import apply_make_stateful_transformation

    core = openvino.Core()
    network = core.read_model(model)
    apply_make_stateful_transformation(network, CACHE)
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    request = core.compile_model(network, "CPU", settings).create_infer_request()

    def text(prompt: Array, tokens: int) -> list[float]:
        request.reset_state()
        words, seconds = prompt[None], list[float]()
        for length in range(len(prompt), len(prompt) + tokens + 1):
            feeds = {"input_ids": words, "attention_mask": np.ones((1, length), np.int64)}
            began = time.perf_counter()
            found = request.infer(feeds, share_inputs=True)
            seconds.append(time.perf_counter() - began)
            words = found["logits"][:, -1:].argmax(-1)
        return seconds

    return text, None


def with_openvino_genai(model: str, threads: int, _target: str) -> tuple[Text, None]:
    """Return OpenVINO's own generator, which reads the GGUF file and is kept from remembering prompts."""
    import openvino
    import openvino_genai as genai

    path, scheduler = Path(model).with_suffix(".gguf"), genai.SchedulerConfig()
    scheduler.enable_prefix_caching = False
    # Tokens go in and come out: of a folder without a tokenizer's files it makes one that encodes nothing.
    tokenizer = genai.Tokenizer(str(path.parent))
    settings = {"INFERENCE_NUM_THREADS": threads, "scheduler_config": scheduler}
    pipeline = genai.LLMPipeline(str(path), tokenizer, "CPU", **settings)

    def text(prompt: Array, tokens: int) -> list[float]:
        config = genai.GenerationConfig(max_new_tokens=tokens + 1, ignore_eos=True, eos_token_id=0)
        found = pipeline.generate(openvino.Tensor(prompt[None]), config)
        raw = found.perf_metrics.raw_metrics
        return [microseconds / 1e6 for microseconds in (*raw.m_times_to_first_token, *raw.m_durations)]

    return text, None


RUNTIMES = {
    "opbuild": with_opbuild, "onnxruntime": with_onnxruntime, "genai": with_genai, "openvino": with_openvino,
    "openvino_genai": with_openvino_genai,
}  # fmt: skip


def main() -> None:
    """Generate texts and print what that took."""
    name, model, threads, length, tokens, *target = sys.argv[1:]
    text, net = RUNTIMES[name](model, int(threads), "".join(target))
    prompt = np.random.default_rng(1).integers(1, WORDS, int(length))
    text(prompt, 0)
    answered = time.time()
    while net is not None and net.report.pending and time.time() < answered + PATIENCE:
        text(prompt, 0)
        time.sleep(0.1)
    text(prompt, 8)
    prompts, following = [], []
    for _ in range(TURNS):
        first, *others = text(prompt, int(tokens))
        prompts.append(first)
        following += others
    status = Path("/proc/self/status").read_text().splitlines()
    memory = next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    found = {
        "answered": answered,
        "prompt_tokens": len(prompt),
        "prompt_s": statistics.median(prompts),
        "next_s": statistics.median(following),
        "slowest_s": max(following),
        "memory": memory,
    }
    print(json.dumps(found | ({} if net is None else {"compiled": net.built})))


if __name__ == "__main__":
    main()
