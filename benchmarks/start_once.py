"""One start of one network in this process, timed; prints JSON. Other benchmarks run it, each time in a new process.

numpy, which every caller of a network needs for its inputs, is loaded before the clock starts, as is ``onnxruntime``;
what ``import opbuild`` puts off until ``compile()`` is counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np


def main() -> None:
    """Start the network with opbuild or, to compare, with ONNX Runtime."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("cache", help="opbuild's cache folder, or 'onnxruntime'")
    arguments = parser.parse_args()
    if arguments.cache == "onnxruntime":
        import measure

        started = time.perf_counter()
        measure.ort_session(arguments.model)
        record = {"seconds": time.perf_counter() - started}
    else:
        import opbuild

        started = time.perf_counter()
        network = opbuild.compile(arguments.model, cache_path=arguments.cache)
        seconds = time.perf_counter() - started
        report = network.report
        record = {"seconds": seconds, "built": report.built, "reused": report.reused, "halide": "halide" in sys.modules}
    print(json.dumps({**record, "numpy": np.__version__}))


if __name__ == "__main__":
    main()
