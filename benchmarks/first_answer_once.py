"""The first answer of a network in this process, and the calls after it: one line of JSON for ``first_answer.py``.

It needs numpy and what it measures, so that any installed revision can run it.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Call = Callable[[], list[np.ndarray]]
POLL, PATIENCE = 0.005, 60.0
"""Seconds between two looks at what is built behind the calls, and after which that is given up."""


def main() -> None:
    """Answer, go on calling, and say how long each took."""
    runtime, model, inputs, outputs, threads, seconds = sys.argv[1:]
    feeds = dict(np.load(inputs))
    begun = time.perf_counter()
    __import__(runtime)
    started = time.perf_counter()
    call, network = OPENED[runtime](model, feeds, int(threads))
    answer = call()
    first = time.perf_counter() - started
    np.savez(outputs, *answer)
    found: dict[str, Any] = {"seconds": first, "importing": started - begun, "latency": latency(call, float(seconds))}
    if network is not None:
        found |= behind(network, call, float(seconds))
    print(json.dumps(found))


def latency(call: Call, seconds: float) -> float:
    """Return the median seconds of a call."""
    times: list[float] = []
    while sum(times) < seconds:
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def behind(network: Any, call: Call, seconds: float) -> dict[str, Any]:
    """Return the operators built, and if better kernels are built behind the calls, the cost of that."""
    report = network.report
    found = {
        "operators": [each.name for each in report.operators],
        "host": dict(report.host),
        "built": [each.name for each in report.operators if each.status == "built"],
    }
    if getattr(report, "pending", None) is None:  # all is built before the first answer
        return found
    started, processor = time.perf_counter(), time.process_time()
    while network.report.pending and time.perf_counter() - started < PATIENCE:
        time.sleep(POLL)
    found |= {"behind": time.perf_counter() - started, "processor": time.process_time() - processor}
    compiled = (each.milliseconds for each in network.report.operators if each.status == "built")
    return found | {"best": latency(call, seconds), "built_behind": network.built, "compiling": sum(compiled) / 1e3}


def _opbuild(model: str, feeds: dict[str, np.ndarray], threads: int) -> tuple[Call, Any]:
    import opbuild

    network = opbuild.compile(model, num_threads=threads)
    return lambda: list(network.run(feeds).values()), network


def _onnxruntime(model: str, feeds: dict[str, np.ndarray], threads: int) -> tuple[Call, None]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds), None


OPENED = {"opbuild": _opbuild, "onnxruntime": _onnxruntime}

if __name__ == "__main__":
    main()
