"""One model in one runtime, in a process of its own: ``python -m opbuild.tuning.bench.child``.

It reads a line of JSON with the job, makes the first call, and answers with a line: the seconds that took from before
the runtime was imported, and its version. Each further line asks for a turn, ``[seconds, gap]``, and is answered with
the median seconds of a call. The end of the input ends it; its last line is the most memory that it had.

A job with a decoder generates a text in place of each call: the seconds of the first text are told, too, and a turn is
answered with those of a prompt and the median of those of a token behind it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TextIO

import numpy as np

from opbuild.platform.paths import Path
from opbuild.tuning.bench.decoder import DecoderLayout
from opbuild.tuning.bench.gpu import CUDA, ON_GPU
from opbuild.tuning.bench.runtimes import COLUMNS, RUNTIMES, BenchJob, Call, Run, Runtime

LEAST_CALLS = 3
"""Calls in a turn, however long one takes."""


def main() -> None:
    """Carry out the requests on the lines of the standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this process ends it
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a runtime prints is no answer
    job = json.loads(sys.stdin.readline())
    runtime = (RUNTIMES | COLUMNS)[job["runtime"]]
    if "decoder" in job and runtime.open is not None:
        _texts(job, runtime, runtime.open, answers)
    else:
        _calls(job, runtime, answers)
    _send(answers, most_memory())


def _calls(job: Mapping[str, Any], runtime: Runtime, answers: TextIO) -> None:
    with np.load(job["data"]) as file:
        data = {name: file[f"arr_{number}"] for number, name in enumerate(job["names"])}
    started = time.perf_counter()
    task = BenchJob(job["model"], data, job["threads"], job["cache"], job["level"])
    call = ON_GPU[job["runtime"]](task) if job["level"] == CUDA else runtime.load(task)
    outputs = call()
    seconds = time.perf_counter() - started
    np.savez(job["outputs"], *outputs)
    counts = getattr(call, "counts", {})
    _send(answers, {"seconds": seconds, "version": _version(runtime.package), "device": counts})
    for line in sys.stdin:
        _send(answers, turn(call, *json.loads(line)))


def _texts(job: Mapping[str, Any], runtime: Runtime, open_: Callable[[BenchJob], Run], answers: TextIO) -> None:
    decoder, sizes = DecoderLayout(**job["decoder"]), (job["prompt"], job["tokens"])
    started = time.perf_counter()
    run = open_(BenchJob(job["model"], {}, job["threads"], job["cache"], job["level"]))
    text = decoder.generate(run, *sizes)
    tokens = [next(text)[0]]
    seconds = time.perf_counter() - started
    tokens += [token for token, _ in text]
    whole = time.perf_counter() - started
    np.savez(job["outputs"], tokens)
    _send(answers, {"seconds": seconds, "text": whole, "version": _version(runtime.package)})
    for _ in sys.stdin:
        prompt, *others = (each for _, each in decoder.generate(run, *sizes))
        _send(answers, [prompt, statistics.median(others)])


def turn(call: Call, seconds: float, gap: float) -> float:
    """Return the median seconds of a call."""
    if not gap:
        call()
    times: list[float] = []
    ends = time.perf_counter() + seconds
    while len(times) < LEAST_CALLS or time.perf_counter() < ends:
        if gap:
            time.sleep(gap)
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def most_memory() -> int:
    """Return the most memory that this process had, in bytes.

    What ``getrusage`` says begins with the memory of the process that started this one, from before ``exec``.
    """
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _send(answers: TextIO, what: object) -> None:
    answers.write(json.dumps(what) + "\n")


if __name__ == "__main__":
    main()
