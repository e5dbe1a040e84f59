"""Fresh processes for tests: a model file is built and run there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from support import kept_kernels

WITHOUT_COMPILER = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("halide", "onnx", "onnxruntime"):
            raise ImportError(f"{name} is not installed here")
sys.meta_path.insert(0, Refuse())
"""
"""The beginning of a program that can import neither halide nor onnx."""

WITHOUT = """
from importlib.machinery import PathFinder
gone = {names}
found, distributions = PathFinder.find_spec, PathFinder.find_distributions
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in gone else found(name, path, target)
def find_distributions(*context):
    return () if context and context[0].name in gone else distributions(*context)
PathFinder.find_spec, PathFinder.find_distributions = find_spec, find_distributions
"""
"""The beginning of a program on a machine where the packages ``names`` are not installed."""

_RUN = """
import json, sys
import numpy as np
import opbuild
job = json.loads(sys.argv[1])
shapes = {name: tuple(shape) for name, shape in job["input_shapes"].items()} or None
net = opbuild.compile(job["model"], input_shapes=shapes, cache_path=job["cache"])
feeds = dict(np.load(job["inputs"])) if job["inputs"] else None
outputs = net.run(feeds) if feeds else {}
np.savez(job["outputs"], **{str(i): value for i, value in enumerate(outputs.values())})
report = net.report
print(json.dumps({
    "built": [[o.name, o.reason, list(o.nodes)] for o in report.operators if o.status == "built"],
    "reused": [o.name for o in report.operators if o.status == "reused"],
    "image": report.image,
    "host": dict(report.host),
    "loaded": sorted({"halide", "onnx"} & set(sys.modules)),
}))
"""


@dataclass(frozen=True)
class Outcome:
    """The report of a fresh process: operators built and reused, outputs, which of halide and onnx it loaded."""

    built: list[list[Any]]
    reused: list[str]
    image: bool
    host: dict[str, int]
    loaded: list[str]
    outputs: list[npt.NDArray[Any]]


def environment(**variables: str) -> dict[str, str]:
    """Return this process's environment with opbuild importable and some variables set."""
    return {**os.environ, "PYTHONPATH": kept_kernels.search_path(), **variables}


def build_and_run(
    model: Path,
    cache: Path,
    inputs: Mapping[str, npt.NDArray[Any]] | None = None,
    input_shapes: Mapping[str, tuple[int, ...]] | None = None,
    **variables: str,
) -> Outcome:
    """Compile a model file in a fresh process, run it on ``inputs``, and return what happened."""
    cache.mkdir(parents=True, exist_ok=True)
    feeds, results = cache / "inputs.npz", cache / "outputs.npz"
    if inputs is not None:
        np.savez(feeds, **dict(inputs))
    job = {
        "model": str(model),
        "cache": str(cache),
        "inputs": str(feeds) if inputs is not None else "",
        "outputs": str(results),
        "input_shapes": {name: list(shape) for name, shape in (input_shapes or {}).items()},
    }
    done = subprocess.run(
        [sys.executable, "-c", _RUN, json.dumps(job)],
        check=False,
        env=environment(**variables),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    with np.load(results) as stored:
        outputs = [stored[str(index)] for index in range(len(stored.files))]
    return Outcome(**said, outputs=outputs)
