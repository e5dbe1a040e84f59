"""One network in this process, called for a while for each line that arrives: other benchmarks let such take turns.

It needs numpy and what it measures, so that any installed revision can run it. It writes a line of JSON once the
network can be called, and then the median seconds of a call for each line that it reads; with several callers, the
seconds that pass for each call.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RUNTIMES = ("opbuild", "onnxruntime")


def main() -> None:
    """Load the network, say so, and answer each line with a measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runtime", choices=RUNTIMES)
    parser.add_argument("model", help="an ONNX file")
    parser.add_argument("output", type=Path, help="where to write what the network returned, a .npy file")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.3, help="length of a turn")
    parser.add_argument("--callers", type=int, default=1, help="threads that call at once")
    parser.add_argument("--cache", help="opbuild's cache folder")
    parser.add_argument("--target", help="what opbuild makes code for; default: this machine")
    arguments = parser.parse_args()
    load = onnxruntime_network if arguments.runtime == "onnxruntime" else opbuild_network
    call, facts = load(arguments)
    np.save(arguments.output, call())
    print(json.dumps(facts), flush=True)
    for _ in sys.stdin:
        many = arguments.callers > 1
        print(shared(call, arguments.callers, arguments.seconds) if many else turn(call, arguments.seconds), flush=True)


def opbuild_network(arguments: Any) -> tuple[Callable[[], np.ndarray], dict[str, int]]:
    """Return the call of a network that opbuild built, and what the build had to do."""
    import opbuild

    options = {"target": arguments.target} if arguments.target else {}
    network = opbuild.compile(arguments.model, cache_path=arguments.cache, num_threads=arguments.threads, **options)
    inputs = [values(each.shape, str(each.dtype)) for each in network.inputs]
    return lambda: np.asarray(network(*inputs)), {"built": network.report.built, "reused": network.report.reused}


def onnxruntime_network(arguments: Any) -> tuple[Callable[[], np.ndarray], dict[str, int]]:
    """Return the call of ONNX Runtime's session, and nothing more."""
    import measure

    session = measure.ort_session(arguments.model, arguments.threads)
    inputs = {each.name: values(each.shape, each.type) for each in session.get_inputs()}
    return lambda: np.asarray(session.run(None, inputs)[0]), {}


def values(shape: tuple[int, ...], kind: str) -> np.ndarray:
    """Return an input, the same in each process: normally distributed, or words where ``kind`` has int64."""
    random = np.random.default_rng(0)
    if "int64" in kind:
        return random.integers(5, 1000, tuple(shape))
    return random.standard_normal(tuple(shape)).astype(np.float32)


def shared(call: Callable[[], object], callers: int, seconds: float) -> float:
    """Return the seconds that pass for each call while several threads call."""
    counts, end = [0] * callers, time.perf_counter() + seconds

    def run(number: int) -> None:
        while time.perf_counter() < end:
            call()
            counts[number] += 1

    started = time.perf_counter()
    threads = [threading.Thread(target=run, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - started) / sum(counts)


def turn(call: Callable[[], object], seconds: float) -> float:
    """Return the median seconds of a call, after two that bring caches and threads back."""
    call()
    call()
    times: list[float] = []
    while sum(times) < seconds or len(times) < 4:
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


if __name__ == "__main__":
    main()
