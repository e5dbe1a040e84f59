"""Time of builds, starts and commands beside 100, 10,000 and 50,000 operators in one cache.

The operators are real entries of a made-up compiler: three files each, a 9 KB object, ten operator types, one target.
Each figure is the median of several new processes, its parts measured inside; removing is measured once a size. What is
measured is this process's view: the files are in the system's memory unless that is short.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import measure
import models  # noqa: F401  it finds the builders of the tests
import numpy as np
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from opbuild.kernel.artifact import Artifact
from opbuild.kernel.entry import make_entry
from opbuild.kernel.key import CompilerIdentity, make_key
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.store.operators import operators_in
from opbuild.target.host import host_level
from support.fake_compiler import fake_object

SIZES = (100, 10_000, 50_000)
TYPES = ("Conv", "Add", "MatMul", "Gemm", "Relu", "Softmax", "MaxPool", "Mul", "Concat", "Resize")
NO_LIMIT = 100_000
"""Megabytes that no cache here reaches."""

_MEASURED = """
import json, os, resource, sys, time
from pathlib import Path
from opbuild.cli.store.folder import Cache
name, folder, model = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
cache = Cache(folder / "rank_0" / "kernel_meta", folder / "rank_0" / "network_meta")

def build():
    import opbuild
    return opbuild.compile(model, cache_path=folder, input_shapes={"x": (64, 256)}).report

def explain():
    from opbuild.config import Config
    from opbuild.offline.plan import preview
    return preview(Path(model), input_shapes={"x": (64, 256)}, config=Config.from_environment(cache_path=folder))

def ls():
    from opbuild.cli.main import main
    sys.stdout = open(os.devnull, "w")
    main(["cache", "ls", "--cache_path", str(folder)])
    sys.stdout = sys.__stdout__

work = {"build": build, "explain": explain, "ls": ls, "stats": cache.stats, "verify": lambda: list(cache.problems()),
        "prune": lambda: cache.prune(older_than=1e9), "clear": cache.clear}[name]
import opbuild.api, opbuild.offline.plan
before = resource.getrusage(resource.RUSAGE_SELF)
started = time.perf_counter()
answer = work()
seconds = time.perf_counter() - started
after = resource.getrusage(resource.RUSAGE_SELF)
cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
steps = getattr(answer, "steps", None) or {}
print(json.dumps({"seconds": seconds, "cpu": cpu, "steps": dict(steps)}))
"""


def main() -> int:
    """Measure, print a table, write the results."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=5, help="repetitions of each; the median counts")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of operators")
    parser.add_argument("--folder", type=Path, help="where to put the caches; default: the temporary folder")
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name, console.status("") as status:
        rows = measure_all(Path(name), arguments.sizes, arguments.rounds, status.update)
    console.print(f"{measure.processor()}; milliseconds, in brackets of one core", highlight=False)
    table = Table("", *(f"beside {size:,}" for size in arguments.sizes), title="Beside so many operators in the cache")
    for row in rows:
        figures = (row["beside"][size] for size in arguments.sizes)
        table.add_row(row["what"], *(_shown(*each) for each in figures))
    console.print(table)
    measure.write_results(arguments.json, "store_size", rows)
    return 0


def _shown(wall: float, cpu: float) -> str:
    text = f"{1e3 * wall:,.{1 if wall < 0.002 else 0}f}"
    return text if math.isnan(cpu) else f"{text} ({1e3 * cpu:,.0f})"


def measure_all(folder: Path, sizes: list[int], rounds: int, say: Any) -> list[dict[str, Any]]:
    """Return for each thing that is measured the wall and processor seconds by the number of operators."""
    model = folder / "small.onnx"
    model.write_bytes(_model())
    found: dict[str, dict[int, tuple[float, float]]] = {}
    for size in sizes:
        say(f"filling a cache with {size:,} operators ...")
        cache = folder / str(size)
        publish = fill(cache, size)
        found.setdefault("publish one operator", {})[size] = publish, math.nan
        figures_by_name = _beside(cache, model, rounds, lambda text, size=size: say(f"{size:,}: {text} ..."))
        for what, figures in figures_by_name.items():
            found.setdefault(what, {})[size] = figures
        shutil.rmtree(cache)
    return [{"what": what, "beside": beside} for what, beside in found.items()]


def _beside(cache: Path, model: Path, rounds: int, say: Any) -> dict[str, tuple[float, float]]:
    before = _names(cache)
    results: dict[str, list[dict[str, Any]]] = {}

    def measured(what: str, name: str, megabytes: int = NO_LIMIT) -> dict[str, Any]:
        say(what)
        results.setdefault(what, []).append(_run(name, cache, model, megabytes))
        return results[what][-1]

    for _ in range(rounds):
        _remove_new(cache, before)
        (cache / "rank_0" / "network_meta" / "size.jsonl").unlink(missing_ok=True)
        measured("build a new network, size of the folder not known", "build")
        _remove_new(cache, before)
        measured("explain a new network", "explain")
        built = measured("build a new network", "build")
        end = {"seconds": built["steps"]["store"] / 1e3, "cpu": math.nan}
        results.setdefault("  of that, storing it and ageing", []).append(end)
        measured("start it from its image", "build")
    _remove_new(cache, before)
    (cache / "rank_0" / "network_meta" / "size.jsonl").unlink(missing_ok=True)
    measured("build beyond the limit, all in use, size not known", "build", 1)
    for name in ("ls", "stats", "verify", "prune"):
        for _ in range(rounds):
            measured(f"cache {name}", name)
    measured("cache clear", "clear")
    return {what: _median(each) for what, each in results.items()}


def fill(cache: Path, count: int) -> float:
    """Put so many operators into a cache; return the median seconds that publishing one of the last thousand took."""
    store, numbers = operators_in(cache / "rank_0" / "kernel_meta"), random.Random(0)
    seconds: list[float] = []
    for number in range(count):
        dims = (Dim(), Dim(min=1), Dim(stride=16, multiple=16))
        operands = [Operand(name, "float32", dims, "NC1HWC0") for name in ("x", "w", "y")]
        desc = OpDesc(op_types=(TYPES[number % len(TYPES)],), family="conv", inputs=tuple(operands[:2]),
                      outputs=tuple(operands[2:]), attrs={"kernel": [3, 3]}, variant={"tile": number})  # fmt: skip
        key = make_key(desc, host_level(), CompilerIdentity("fake", "1.0", "0" * 64), "sources")
        entry = make_entry(
            desc, key, 0, Artifact(fake_object(numbers.randbytes(9000), (key.symbol,))), 50.0, nodes=("node",)
        )
        started = time.perf_counter()
        store.publish(entry)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[-1000:])


def _model() -> bytes:
    """Return ``softmax(x @ w)``."""
    weights = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("rows", 256))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    model: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    return model


def _names(cache: Path) -> dict[Path, set[str]]:
    folders = (cache / "rank_0" / name for name in ("kernel_meta", "network_meta", "network_meta/weights"))
    return {folder: {path.name for path in folder.iterdir()} if folder.exists() else set() for folder in folders}


def _remove_new(cache: Path, before: dict[Path, set[str]]) -> None:
    """Remove the new network's own files; what is known of the compiler and of the folder stays."""
    for folder, names in _names(cache).items():
        for name in names - before[folder]:
            path = folder / name
            if path.is_file() and path.suffix != ".jsonl" and name != "compiler.json":
                path.unlink()


def _run(name: str, cache: Path, model: Path, megabytes: int) -> dict[str, Any]:
    command = [sys.executable, "-c", _MEASURED, name, str(cache), str(model)]
    environment = {**os.environ, "ASCEND_MAX_OP_CACHE_SIZE": str(megabytes)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _median(results: list[dict[str, Any]]) -> tuple[float, float]:
    return statistics.median(each["seconds"] for each in results), statistics.median(each["cpu"] for each in results)


if __name__ == "__main__":
    sys.exit(main())
