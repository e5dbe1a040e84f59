"""Steps of a run on a GPU, each in a process of its own, so that a fault of one ends no other.

Results are written at once, a JSON object a line.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

Record = dict[str, Any]

STARTED = "STEP_STARTED"
"""The variable that says when a step's process was asked for: its first answer counts from there."""


def started() -> float:
    """Return when this process was asked for."""
    return float(os.environ.get(STARTED) or time.time())


def write_record(path: Path, step: str, **values: Any) -> None:
    """Write a result at once."""
    with path.open("a") as file:
        file.write(json.dumps({"step": step, **values}) + "\n")


def recorded(path: Path) -> list[Record]:
    """Return the results so far."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def stand_in(path: str) -> Any:
    """Return the library that stands for CUDA's driver: ``Library()`` of a Python file."""
    spec = importlib.util.spec_from_file_location("stand_in", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["stand_in"] = module
    spec.loader.exec_module(module)
    return module.Library()


def run_all(
    script: str, steps: Sequence[str], arguments: Sequence[str], path: Path, limit: float, longest: float
) -> None:
    """Run each step in a process, and record those that failed; none begins or goes on after ``limit`` seconds.

    Args:
        script: Runs the step that ``--step`` names.
        steps: The steps.
        arguments: What else the script is given.
        path: The file of results.
        limit: Seconds for all.
        longest: Seconds that one step may take.
    """
    began = time.time()
    caches = {"TORCHINDUCTOR_CACHE_DIR": path.parent / "inductor", "TRITON_CACHE_DIR": path.parent / "triton"}
    for step in steps:
        left = limit - (time.time() - began)
        if left <= 1:
            write_record(path, step, failed="not begun: the time was over")
            continue
        print(f"{time.time() - began:6.1f} s  {step}", flush=True)
        command = [sys.executable, script, "--step", step, *arguments]
        environment = {**os.environ, **{k: str(v) for k, v in caches.items()}, STARTED: str(time.time())}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=min(left, longest), check=False
            )
        except subprocess.TimeoutExpired as error:
            write_record(path, step, failed=f"not done after {error.timeout:.0f} s")
            continue
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("  hint: ")]
            write_record(path, step, failed=[f"exit code {done.returncode}", *said][-1], exit=done.returncode)


def latency(work: Callable[[], Any], calls: int) -> float:
    """Return the median seconds of a call, after a few."""
    for _ in range(min(calls, 5)):
        work()
    took = []
    for _ in range(calls):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return median(took)
