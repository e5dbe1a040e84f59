"""One start of a whole fleet's networks in this process, each answered once; prints JSON. ``fleet.py`` runs it."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

THREADS = 2


def main() -> None:
    """Start each network, call it once, and keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=("opbuild", "onnxruntime", "openvino"))
    parser.add_argument("cache", help="opbuild's or OpenVINO's cache folder")
    parser.add_argument("models", nargs="+")
    arguments = parser.parse_args()
    start = {"opbuild": _opbuild, "onnxruntime": _onnxruntime, "openvino": _openvino}[arguments.engine]
    began, busy = time.perf_counter(), _processor()
    open_network, more = start(arguments.cache)
    kept = [open_network(path) for path in arguments.models]
    seconds, processor = time.perf_counter() - began, _processor() - busy
    from opbuild.tuning.bench.child import most_memory  # nobody's start pays for it

    record = {
        "seconds": seconds,
        "processor": processor,
        "megabytes": most_memory() / 2**20,
        "networks": len(kept),
        **more(),
    }
    print(json.dumps(record))


def _processor() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def _zeros(shape: Any, dtype: str) -> np.ndarray:
    return np.zeros([int(extent) for extent in shape], dtype)


def _opbuild(cache: str) -> Any:
    import opbuild
    from opbuild.events import CompileFinished, Taken, Warned

    counts = {"built": 0, "fetched": 0, "images": 0}

    def observe(event: object) -> None:
        counts["built"] += isinstance(event, CompileFinished)
        counts["fetched"] += isinstance(event, Taken)
        if isinstance(event, Warned):
            print(event.message, file=sys.stderr)

    def open_network(path: str) -> Any:
        network = opbuild.compile(path, cache_path=cache, observer=observe, num_threads=THREADS)
        network.run({port.name: _zeros(port.shape, port.dtype) for port in network.inputs})
        report = network.report
        counts["images"] += report.image
        counts["fetched"] += sum(each.status == "shared" for each in report.operators)
        return network

    def more() -> dict[str, int]:
        from opbuild.config import Config
        from opbuild.pipeline.remote import service_at

        url = Config.from_environment().remote
        traffic = service_at(url).traffic if url else None
        return counts | ({} if traffic is None else {"requests": traffic.requests, "bytes": traffic.bytes_read})

    return open_network, more


def _onnxruntime(cache: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    types = {"tensor(float)": "float32", "tensor(int64)": "int64"}

    def open_network(path: str) -> Any:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        session.run(None, {port.name: _zeros(port.shape, types[port.type]) for port in session.get_inputs()})
        return session

    return open_network, dict


def _openvino(cache: str) -> Any:
    import openvino

    core = openvino.Core()
    core.set_property({"CACHE_DIR": cache})
    core.set_property("CPU", {"INFERENCE_NUM_THREADS": THREADS})

    def open_network(path: str) -> Any:
        compiled = core.compile_model(path, "CPU")
        compiled([_zeros(port.shape, port.element_type.to_dtype()) for port in compiled.inputs])
        return compiled

    return open_network, lambda: {"cached": len(list(Path(cache).glob("*.blob")))}


if __name__ == "__main__":
    main()
