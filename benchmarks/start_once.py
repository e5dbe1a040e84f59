"""One start of one network in this process, timed; prints JSON. Other benchmarks run it, each time in a new process.

numpy, which every caller of a network needs for its inputs, is loaded before the clock starts, as is ``onnxruntime``;
what ``import opbuild`` puts off until ``compile()`` is counted. ``processor`` is of this process and its children,
``whole`` counts ``import opbuild`` too.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from typing import Any

import numpy as np


def main() -> None:
    """Start the network with opbuild or, to compare, with ONNX Runtime."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("cache", help="opbuild's cache folder, or 'onnxruntime'")
    parser.add_argument("--calls", type=int, default=0, help="how often to call the network then, and time it")
    arguments = parser.parse_args()
    if arguments.cache == "onnxruntime":
        import measure

        started = time.perf_counter()
        measure.ort_session(arguments.model)
        record = {"seconds": time.perf_counter() - started}
    else:
        imported, busy = time.perf_counter(), processor_seconds()
        import opbuild

        started = time.perf_counter()
        network = opbuild.compile(arguments.model, cache_path=arguments.cache)
        seconds = time.perf_counter() - started
        report = network.report
        record = {
            "seconds": seconds,
            "whole": time.perf_counter() - imported,
            "processor": processor_seconds() - busy,
            "built": report.built,
            "reused": report.reused,
            "halide": "halide" in sys.modules,
            **({"call": seconds_of_a_call(network, arguments.calls)} if arguments.calls else {}),
        }
    print(json.dumps({**record, "numpy": np.__version__}))


def processor_seconds() -> float:
    """Return the processor time of this process and of its children that ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def seconds_of_a_call(network: Any, calls: int) -> float:
    """Return the median time of a call."""
    inputs = [np.zeros(each.shape, each.type.dtype) for each in network.inputs]
    times = []
    for _ in range(calls):
        started = time.perf_counter()
        network(*inputs)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


if __name__ == "__main__":
    main()
