"""Modules of torch through ``torch.compile(model, backend="opbuild")``, beside eager torch and Inductor with freezing.

For each network, processes one after the other:

- cold: an empty store. From ``torch.compile`` to the first output; the error against eager torch, relative to the
  greatest number; operators that are compiled and that are left to torch; what another size needs.
- warm: a clean process with that store. The same, then the middle of interleaved calls beside eager torch and Inductor.
- from ONNX: the network as an ONNX file with an empty store, then from torch: operators that are compiled for that.

    python benchmarks/torch_modules.py                     # small networks, a minute
    python benchmarks/torch_modules.py --full --json out.json BERT ViT

Networks that the file of ``--json`` has already, measured alike and without a failure, are shown from there: a run that
was cut off is continued by the same command.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch_networks

Row = dict[str, Any]


def compiled(network: torch_networks.Network, store: str, threads: int) -> Callable[..., Any]:
    """Return the module through opbuild."""
    options = {"cache_path": store, "num_threads": threads}
    return torch.compile(network.module, backend="opbuild", options=options)


def seconds(function: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    """Return how long a call takes, and its result."""
    started = time.perf_counter()
    result = function(*args)
    return time.perf_counter() - started, result


def entries(store: str) -> int:
    """Return how many operators a store has."""
    return len(list(Path(store).rglob("*.o")))


def error(found: Any, expected: Any) -> float:
    """Return the greatest difference, relative to the greatest number."""
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def wait_behind() -> None:
    """Wait for what is built behind the first call, as a program that runs on would find it."""
    import threading

    for thread in threading.enumerate():
        if thread.name.startswith("opbuild-further"):
            thread.join()


def cold(name: str, store: str, threads: int, full: bool) -> Row:
    """Measure with an empty store, then call with another size."""
    import opbuild.torch

    network = torch_networks.make(name, full=full)
    module, args = network.module, network.args(0)
    fast = compiled(network, store, threads)
    took, found = seconds(fast, *args)
    report = opbuild.torch.report(fast)
    row: Row = {"cold": took, "error": error(found, module(*args)), "built": entries(store)}
    row |= {"compiled": report.compiled.total(), "left": report.partitioned.total()}
    row["left by name"] = {f"{each} ({why})": count for (each, why), count in report.partitioned.items()}
    row["graphs"] = len(report.graphs)
    wait_behind()
    before, other = entries(store), network.args(1)
    took, found = seconds(fast, *other)
    row |= {"other size": took, "other built": entries(store) - before, "other error": error(found, module(*other))}
    wait_behind()
    return row


def warm(name: str, store: str, threads: int, full: bool, peers: bool) -> Row:
    """Measure with what the first process left, then call it by turns with others."""
    network = torch_networks.make(name, full=full)
    args, before = network.args(0), entries(store)
    fast = compiled(network, store, threads)
    row: Row = {"warm": seconds(fast, *args)[0], "warm built": entries(store) - before}
    functions: dict[str, Callable[..., Any]] = {"opbuild ms": fast, "eager ms": network.module}
    if peers:
        from torch._inductor import config as inductor

        inductor.freezing = True
        functions["Inductor ms"] = torch.compile(torch_networks.make(name, full=full).module)
        row["Inductor cold"] = seconds(functions["Inductor ms"], *args)[0]
    times: dict[str, list[float]] = {each: [] for each in functions}
    started = time.perf_counter()
    while len(times["eager ms"]) < 100 and (time.perf_counter() - started < 10 or len(times["eager ms"]) < 5):
        for each, function in functions.items():
            times[each].append(seconds(function, *args)[0])
    return row | {each: 1e3 * statistics.median(values) for each, values in times.items()}


def from_onnx(name: str, store: str, threads: int, full: bool) -> Row:
    """Build the network from an ONNX file, then from torch."""
    import opbuild

    network = torch_networks.make(name, full=full)
    if not network.onnx:
        return {}
    args, file = network.args(0), Path(store, "model.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network.module, args, file, dynamo=False, opset_version=17)
    opbuild.compile(file, cache_path=store, num_threads=threads).run(None, dict(_named(file, args)))
    before = entries(store)
    row: Row = {"by ONNX": before}
    compiled(network, store, threads)(*args)
    from opbuild.torch import report

    return row | {"after ONNX": report().built}


def _named(file: Path, args: tuple[torch.Tensor, ...]) -> list[tuple[str, Any]]:
    import onnx

    names = [each.name for each in onnx.load(file, load_external_data=False).graph.input]
    return [(name, each.numpy()) for name, each in zip(names, args, strict=False)]


def worker(what: str, name: str, store: str, threads: int, full: bool, peers: bool) -> None:
    """Measure one thing in this process and print it as JSON."""
    torch.set_num_threads(threads)
    torch._dynamo.config.allow_rnn = True
    with torch.no_grad():
        if what == "cold":
            row = cold(name, store, threads, full)
        elif what == "warm":
            row = warm(name, store, threads, full, peers)
        else:
            row = from_onnx(name, store, threads, full)
    print(json.dumps(row))


def measure(name: str, threads: int, full: bool, peers: bool) -> Row:
    """Return the measurements of the processes of one network."""
    row: Row = {"network": name} | conditions(threads, full, peers)
    with tempfile.TemporaryDirectory() as store, tempfile.TemporaryDirectory() as other:
        for what, folder in (("cold", store), ("warm", store), ("onnx", other)):
            command = [sys.executable, __file__, name, "--worker", what, folder, "--threads", str(threads)]
            command += ["--full"] * full + ["--no-peers"] * (not peers)
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                row[f"{what} failed"] = done.stderr.strip().splitlines()[-1:]
            else:
                row |= json.loads(done.stdout.strip().splitlines()[-1])
    return row


def conditions(threads: int, full: bool, peers: bool) -> Row:
    """Return how a row is measured."""
    return {"threads": threads, "full": full, "peers": peers}


def known_rows(file: Path | None, wanted: Row) -> dict[str, Row]:
    """Return the rows of a file by network: those that were measured as is wanted, and did not fail."""
    rows: list[Row] = json.loads(file.read_text(encoding="utf-8")) if file is not None and file.exists() else []
    return {
        row["network"]: row
        for row in rows
        if wanted.items() <= row.items() and not any(each.endswith(" failed") for each in row)
    }


_COLUMNS = (
    ("network", 19, ""), ("error", 8, ".0e"), ("compiled", 9, ""), ("left", 5, ""), ("built", 6, ""),
    ("cold", 6, ".1f"), ("warm", 6, ".1f"), ("warm built", 11, ""), ("other built", 12, ""), ("after ONNX", 11, ""),
    ("opbuild ms", 11, ".2f"), ("eager ms", 9, ".2f"), ("Inductor ms", 12, ".2f"), ("Inductor cold", 14, ".1f"),
)  # fmt: skip


def show(row: Row) -> None:
    """Print one line of the table, and what was left to torch or failed."""
    cells = ((row.get(title, "-"), width, form) for title, width, form in _COLUMNS)
    print("".join(f"{format(each, '' if isinstance(each, str) else form):>{width}}" for each, width, form in cells))
    for each, count in row.get("left by name", {}).items():
        print(f"    left to torch: {count} {each}")
    for what in ("cold", "warm", "onnx"):
        for line in row.get(f"{what} failed", ()):
            print(f"    {what}: {line}")
    sys.stdout.flush()


def main() -> None:
    """Measure the networks that are named, all of them by default."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NETWORK", help=f"of {', '.join(torch_networks.NAMES)}")
    parser.add_argument("--full", action="store_true", help="networks as people use them")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-peers", action="store_true", help="without Inductor, which compiles C++ for a while")
    parser.add_argument("--json", type=Path, help="write the rows to a file, and take those that it has")
    parser.add_argument("--worker", nargs=2, metavar=("WHAT", "STORE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(given.worker[0], given.names[0], given.worker[1], given.threads, given.full, not given.no_peers)
        return
    print("".join(f"{title:>{width}}" for title, width, _ in _COLUMNS))
    how = (given.threads, given.full, not given.no_peers)
    rows = known_rows(given.json, conditions(*how))
    for name in given.names or torch_networks.NAMES:
        if name not in rows:
            rows[name] = measure(name, *how)
        show(rows[name])
        if given.json:
            given.json.write_text(json.dumps([*rows.values()], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
