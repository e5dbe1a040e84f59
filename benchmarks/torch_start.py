"""The second process of a torch module: from ``torch.compile`` or ``load`` to the first output, by several ways.

Each way prepares once in a process of its own. Then processes are started by turns, and the middle of each way counts:

- torch alone: ``import torch``.
- plain: ``torch.compile(model, backend="opbuild")`` with a warm store.
- torch's loader: what ``load_compiled_function`` imports before it calls any back end, and the module itself.
- aot_compile: torch's ``load_compiled_function`` of what this back end compiled ahead of time.
- save and load: ``opbuild.torch.load`` of what ``opbuild.torch.save`` wrote.
- Inductor: ``torch.compile(model)`` with its caches warm.

Seconds are of the clock, those of the processor include child processes. What comes before, the import of torch and
making the module, is in the first row alone and not in the others.

    python benchmarks/torch_start.py                    # the small BERT, three processes each
    python benchmarks/torch_start.py --full --repeats 7 BERT
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAYS = ("torch alone", "plain", "torch's loader", "aot_compile", "save and load", "Inductor")


def processor() -> float:
    """Return the seconds of the processor that this process and its children took."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def starts(way: str, folder: Path, network: Any, args: tuple[Any, ...], *, prepares: bool) -> Callable[[], Any]:
    """Return a function that makes a way's first output, and writes files for the next process if it prepares."""
    import torch

    file, module = folder / way.replace(" ", "_"), network.module
    options = {"cache_path": str(folder / "store"), "num_threads": torch.get_num_threads()}

    def ahead() -> Any:
        if prepares:
            keep = torch.compiler.keep_tensor_guards_unsafe  # torch cannot store all others, as of transformers' BERT
            guarded: dict[str, Any] = {**options, "guard_filter_fn": keep}
            compiled = torch.compile(module, fullgraph=True, backend="opbuild", options=guarded)
            whole: Any = compiled.forward
            made = whole.aot_compile((args, {}))
            made.save_compiled_function(str(file))
            return made(module, *args)
        with file.open("rb") as data:
            return torch.compiler.load_compiled_function(data)(module, *args)

    def loader() -> Any:
        importlib.import_module("torch._dynamo.aot_compile")
        importlib.import_module("torch._inductor.config")
        return module(*args)

    def loaded() -> Any:
        import opbuild.torch

        if prepares:
            return opbuild.torch.save(file, module, args, options=options)(*args)
        return opbuild.torch.load(file, module, options=options)(*args)

    found: dict[str, Callable[[], Any]] = {
        "plain": lambda: torch.compile(module, backend="opbuild", options=options)(*args),
        "torch's loader": loader,
        "aot_compile": ahead,
        "save and load": loaded,
        "Inductor": lambda: torch.compile(module)(*args),
    }
    return found[way]


def worker(way: str, name: str, folder: Path, *, full: bool, prepares: bool) -> None:
    """Measure one way in this process and print seconds of the clock and of the processor as JSON."""
    began, used = time.perf_counter(), processor()
    import torch

    imported = time.perf_counter() - began, processor() - used
    if way == "torch alone":
        print(json.dumps(imported))
        return
    import torch_networks

    network = torch_networks.make(name, full=full)
    args = network.args(0)
    with torch.no_grad():
        first = starts(way, folder, network, args, prepares=prepares)
        began, used = time.perf_counter(), processor()
        found = first()
        measured = time.perf_counter() - began, processor() - used
        torch.testing.assert_close(found, network.module(*args), rtol=1e-3, atol=1e-4)
    print(json.dumps(measured))


def in_a_process(way: str, name: str, folder: Path, *, full: bool, prepares: bool = False) -> list[float]:
    """Return the measurements of a process of its own.

    Raises:
        RuntimeError: If it fails; with the end of what it said.
    """
    command = [sys.executable, __file__, name, "--worker", way, str(folder), *["--full"] * full]
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    done = subprocess.run(
        [*command, *["--prepare"] * prepares], env=os.environ | caches, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError("\n".join(done.stderr.strip().splitlines()[-3:]))
    found: list[float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def main() -> None:
    """Measure the networks that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NETWORK", default=["BERT"])
    parser.add_argument("--full", action="store_true", help="networks as people use them")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-peers", action="store_true", help="without Inductor")
    parser.add_argument("--worker", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    parser.add_argument("--prepare", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        way, folder = given.worker
        worker(way, given.names[0], Path(folder), full=given.full, prepares=given.prepare)
        return
    for name in given.names:
        ways = [way for way in WAYS if way != "Inductor" or not given.no_peers]
        times: dict[str, list[list[float]]] = {way: [] for way in ways}
        with tempfile.TemporaryDirectory() as folder:
            for way in ways:
                try:
                    in_a_process(way, name, Path(folder), full=given.full, prepares=True)
                except RuntimeError as error:  # aot_compile does not take every module
                    print(f"{name}, {way}: {error}")
                    del times[way]
            ways = [*times]
            for _ in range(given.repeats):
                for way in ways:
                    times[way].append(in_a_process(way, name, Path(folder), full=given.full))
        print(f"{name:30}{'seconds':>9}{'processor':>11}")
        for way, found in times.items():
            print(f"{way:30}" + "{:9.2f}{:11.2f}".format(*map(statistics.median, zip(*found, strict=True))))


if __name__ == "__main__":
    main()
