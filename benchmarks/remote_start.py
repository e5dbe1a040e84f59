"""How long a process with an empty disk takes to a callable network where a remote store knows the network.

Each start is a new process with an empty cache folder; what it asked of the remote store and received is counted there.
Beside it a build with nothing stored anywhere, a start from one's own store, and a session of ONNX Runtime.

    python benchmarks/remote_start.py [--starts 5] [--remote redis://host | file:///folder | ...]

Without ``--remote`` it starts Redis on this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

NETWORKS = ("resnet50", "bert_base")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--remote", help="the URL of a remote store, which is written to")
    parser.add_argument("--child", nargs=2, metavar=("MODEL", "CACHE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(start(*arguments.child)))
        return
    with tempfile.TemporaryDirectory() as folder, remote_store(arguments.remote) as url:
        print(f"remote store: {url}")
        print("| network | start | s | processor s | operators built | requests | MB received |")
        print("|---|---|---|---|---|---|---|")
        for name in NETWORKS:
            for line in measured(name, Path(folder), url, arguments.starts):
                print(line, flush=True)


def measured(name: str, folder: Path, url: str, starts: int) -> Iterator[str]:
    """Yield the lines of one network."""
    import measure

    model = folder / f"{name}.onnx"
    write(name, model)
    yield line(name, "nothing stored, written to the remote store", [child(model, folder / "own", url, "write")])
    near, far, session = [], [], []
    for number in range(starts):  # in turns, since other work comes and goes
        empty = folder / f"empty{number}"
        far.append(child(model, empty, url, "read"))
        shutil.rmtree(empty)
        near.append(child(model, folder / "own", url, "off"))
        started, busy = time.perf_counter(), time.process_time()
        measure.ort_session(str(model))
        session.append({"seconds": time.perf_counter() - started, "processor": time.process_time() - busy})
    yield line(name, "empty disk, remote store", far)
    yield line(name, "one's own store", near)
    yield line(name, "ONNX Runtime", session)
    model.unlink()


def line(name: str, start: str, records: list[dict[str, float]]) -> str:
    """Return a line of the table: medians."""
    middle = {key: statistics.median(record[key] for record in records) for key in records[0]}
    counted = [f"{middle[key]:.0f}" if key in middle else "" for key in ("built", "requests")]
    received = f"{middle['received'] / 1e6:.1f}" if "received" in middle else ""
    times = [f"{middle['seconds']:.2f}", f"{middle['processor']:.2f}"]
    return " | ".join(["", name, start, *times, *counted, received, ""]).strip()


def write(name: str, path: Path) -> None:
    """Write a network to a file."""
    from models import network

    from support.networks import bert

    model = bert(layers=12, hidden=768, heads=12, seq=128, decomposed=False) if name == "bert_base" else network(name)
    onnx.save(model, path)


def child(model: Path, cache: Path, url: str, mode: str) -> dict[str, float]:
    """Start a network in a new process."""
    command = [sys.executable, __file__, "--child", str(model), str(cache)]
    environment = {**os.environ, "OPBUILD_REMOTE": url, "OPBUILD_REMOTE_MODE": mode}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    if done.stderr:
        print(done.stderr, file=sys.stderr)
    record: dict[str, float] = json.loads(done.stdout)
    return record


def start(model: str, cache: str) -> dict[str, Any]:
    """Start a network in this process, and return what that took."""
    import numpy as np

    busy = time.process_time()
    started = time.perf_counter()
    import opbuild

    network = opbuild.compile(model, cache_path=cache)
    seconds, processor = time.perf_counter() - started, time.process_time() - busy
    record = {"seconds": seconds, "processor": processor, "built": network.report.built}
    if os.environ["OPBUILD_REMOTE_MODE"] != "off":
        from opbuild.pipeline.remote import service_at

        traffic = service_at(os.environ["OPBUILD_REMOTE"]).traffic
        record |= {"requests": traffic.requests, "received": traffic.bytes_read}
    return {**record, "numpy": int(np.__version__.split(".")[0])}


@contextlib.contextmanager
def remote_store(url: str | None) -> Iterator[str]:
    """Give the URL of a remote store; start one if none is named."""
    if url is not None:
        yield url
        return
    import models  # which finds the tests' modules

    assert models
    from support.remote_servers import redis_server

    with redis_server() as (address, _):
        yield address


if __name__ == "__main__":
    main()
