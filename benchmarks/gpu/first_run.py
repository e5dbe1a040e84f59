"""A first run on a GPU: do the carried kernels load, agree with float64, and how fast are they beside torch?

It needs numpy, and for comparisons torch and Triton, as common CUDA images have them; no network. Each step is a
process of its own, so that a fault of one ends no other, and writes its results at once to ``first_run.jsonl``; the
table comes last. With ``--driver`` another library stands for CUDA's, with ``--small`` all extents are small.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from steps import Record, latency, recorded, run_all, stand_in, started, write_record

STARTED = started()

import numpy as np  # noqa: E402
from bert import Layers, random_weights, reference, shapes_of  # noqa: E402
from cases import CASES  # noqa: E402
from checks import check  # noqa: E402
from driver import Device  # noqa: E402
from transformer import Size  # noqa: E402

HERE = Path(__file__).parent
RESULTS = "first_run.jsonl"
LIMIT = 345
"""Seconds after which no further step begins or goes on: the run ends within six minutes."""

LONGEST = 100
"""Seconds that one step may take."""

TORCH_WAYS = ("eager", "compiled", "reduce-overhead")
BATCHES = (1, 8)
CALLS = 50
SMALL = Size(layers=2, hidden=128, heads=2, shared=2, inner=256, length=16)
CLOSE = 3e-2
"""Largest error of the float16 layers, of the largest value: some eighty roundings one after the other."""


class Run:
    """What the steps share.

    Args:
        options: Of the command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.out, self.small, self._driver = Path(options.out), options.small, options.driver
        self.size, self.calls = (SMALL, 3) if options.small else (Size(), CALLS)

    def device(self) -> Device:
        """Return the GPU, or what stands for it."""
        return Device(stand_in(self._driver)) if self._driver else Device()

    def record(self, step: str, **values: Any) -> None:
        """Write a result at once."""
        write_record(self.out / RESULTS, step, **values)

    def weights(self) -> list[dict[str, Any]]:
        """Return the layers' weights, read from the file that all ways read."""
        path = self.out / "weights.npy"
        if not path.exists():
            flat = [value.ravel() for layer in random_weights(self.size) for value in layer.values()]
            np.save(path, np.concatenate(flat))
        flat_weights, at, layers = np.load(path, mmap_mode="r"), 0, []
        for _ in range(self.size.layers):
            layer = {}
            for name, shape in shapes_of(self.size).items():
                size = int(np.prod(shape))
                layer[name] = np.array(flat_weights[at : at + size]).reshape(shape)
                at += size
            layers.append(layer)
        return layers

    def x(self, batch: int) -> Any:
        """Return an input of the layers."""
        shape = (batch, self.size.length, self.size.hidden)
        return np.random.default_rng(batch).standard_normal(shape).astype(np.float16)


def machine(run: Run, step: str) -> None:
    """Record card, driver, versions and date."""
    device = run.device()
    versions = {}
    for package in ("torch", "triton", "numpy"):
        try:
            versions[package] = importlib.import_module(package).__version__
        except ImportError:
            versions[package] = "none"
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    run.record(step, card=device.name(), cuda=device.driver_version(), date=now, **versions)
    run.weights()


def checked(run: Run, step: str) -> None:
    """Record the errors of a binary on fresh random data."""
    name, seed = step.removeprefix("check "), int.from_bytes(os.urandom(4), "little")
    device = run.device()
    errors = check(device, name, large=not run.small, seed=seed)
    run.record(step, seed=seed, error=max(errors.values()), extents=errors)


def same_bytes(run: Run, step: str) -> None:
    """Record whether this machine's Triton makes the bytes that are carried."""
    done = subprocess.run([sys.executable, HERE / "build.py", "--check"], capture_output=True, text=True, check=False)
    said = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]
    run.record(step, same={0: True, 1: False}.get(done.returncode if "binaries" in said else 2), said=said)


def copied(run: Run, step: str) -> None:
    """Record the rate of copies within the device."""
    from rates import copy_rate

    run.record(step, bytes_a_second=copy_rate(run.device(), 2**16 if run.small else 2**30))


def rated(run: Run, step: str) -> None:
    """Record the rates of products, attention or rows."""
    import rates

    shapes = {"matmul": [(16, 32, 16)], "attention": [(1, 2, 16)], "rows": [(4, 32)]}[step] if run.small else None
    function = {"matmul": rates.matmul_rates, "attention": rates.attention_rates, "rows": rates.row_rates}[step]
    for rate in function(run.device(), *([shapes] if shapes else [])):
        run.record(step, **asdict(rate))


def bert(run: Run, step: str) -> None:
    """Record the first answer and the latencies of the layers by the carried kernels."""
    device, weights = run.device(), run.weights()
    for batch in BATCHES:
        layers = Layers(device, weights, run.size, batch)
        layers.feed(run.x(batch))
        layers.run()
        got = layers.fetch()
        first = time.time() - STARTED
        wanted = reference(run.x(batch), weights, run.size)
        error = float(np.abs(got - wanted).max() / np.abs(wanted).max())
        if not error <= CLOSE:
            raise SystemExit(f"batch {batch}: error {error:.2e}, allowed {CLOSE}")
        graph = layers.graph()
        record = {"first_answer": first} if batch == BATCHES[0] else {}
        for way, work in (("one by one", layers.run), ("one graph", graph)):
            run.record(step, way=way, batch=batch, error=error, launches=len(layers.calls), **record,
                       seconds=latency(lambda work=work: (work(), device.synchronize()), run.calls))  # fmt: skip


def torch_bert(run: Run, step: str) -> None:
    """Record the first answer and the latencies of the layers by torch."""
    import torch
    from torch_bert import runner

    if not torch.cuda.is_available():
        run.record(step, said="torch sees no GPU here")
        return
    torch._dynamo.config.automatic_dynamic_shapes = False
    way, again = step.removeprefix("torch ").removesuffix(" again"), step.endswith(" again")
    for batch in BATCHES[:1] if again else BATCHES:
        work = runner(way, run.weights(), run.size, run.x(batch))
        work()
        first = {"first_answer": time.time() - STARTED} if batch == BATCHES[0] else {}
        run.record(step, way=step, batch=batch, seconds=0.0 if again else latency(work, run.calls), **first)


STEPS: dict[str, Callable[[Run, str], None]] = {
    "machine": machine,
    **{f"check {name}": checked for name in CASES},
    "bytes": same_bytes,
    "bert": bert,
    "torch eager": torch_bert,
    "torch reduce-overhead": torch_bert,
    "copy": copied,
    "matmul": rated,
    "torch compiled": torch_bert,
    "attention": rated,
    "rows": rated,
    "torch reduce-overhead again": torch_bert,
    "torch compiled again": torch_bert,
}
"""In this order: what decides whether to go on comes first."""


def _arguments(options: argparse.Namespace) -> list[str]:
    arguments = ["--out", options.out]
    return arguments + ["--small"] * options.small + (["--driver", options.driver] if options.driver else [])


def table(records: list[Record]) -> Iterator[str]:
    """Yield the lines of the table, and of what decides whether to go on."""
    for record in records:
        step = record["step"]
        if "failed" in record:
            yield f"{step:44s} FAILED: {record['failed']}"
        elif step == "machine":
            yield "  ".join(f"{key} {value}" for key, value in record.items() if key != "step")
        elif step.startswith("check"):
            yield f"{step:44s} {len(record['extents'])} extents, largest error {record['error']:.1e}"
        elif "said" in record:
            yield f"{step:44s} {record['said']}"
        elif step == "copy":
            yield f"{step:44s} {record['bytes_a_second'] / 1e12:.2f} TB/s read and written"
        elif "work" in record:
            ratio = f", {record['seconds'] / record['torch']:.2f} of torch's time" if record["torch"] else ""
            rate = record["work"] / record["seconds"] / 1e12
            yield f"{record['what']:44s} {record['seconds'] * 1e6:9.1f} us, {rate:7.2f} T/s{ratio} ({record['name']})"
        else:
            first = f", first answer after {record['first_answer']:.2f} s" if "first_answer" in record else ""
            yield f"layers, batch {record['batch']}, {record['way']:28s} {record['seconds'] * 1e6:9.1f} us{first}"
    yield from conditions(records)


def conditions(records: list[Record]) -> Iterator[str]:
    """Yield whether each condition to go on holds."""
    checks = [record for record in records if record["step"].startswith("check")]
    right = sum("error" in record for record in checks)
    yield f"binaries that agree with float64: {right} of {len(CASES)}: {_word(right == len(CASES))}"
    same = [record.get("same") for record in records if record["step"] == "bytes"]
    yield f"this machine makes the same bytes: {_word(same[0] if same else None)}"
    ours = {r["batch"]: r["seconds"] for r in records if r.get("way") == "one graph"}
    theirs = {r["batch"]: r["seconds"] for r in records if r.get("way") == "torch reduce-overhead" and r.get("seconds")}
    ratios = [ours[batch] / theirs[batch] for batch in ours if batch in theirs]
    said = ", ".join(f"{ratio:.2f}" for ratio in ratios) or "not measured"
    yield f"layers as one graph <= 1.3 of reduce-overhead: {said}: {_word(max(ratios) <= 1.3 if ratios else None)}"
    rates = [
        r["torch"] / r["seconds"] for r in records if r["step"] == "matmul" and r.get("torch") and _rows(r) >= 1024
    ]
    said = ", ".join(f"{rate:.2f}" for rate in rates) or "not measured"
    holds = min(rates) >= 0.7 if rates else None
    yield f"products of 1024 rows and more >= 0.7 of cuBLAS' rate: {said}: {_word(holds)}"


def _rows(record: Record) -> int:
    return int(record["what"].split()[1].partition("x")[0])


def _word(holds: bool | None) -> str:
    return "unknown" if holds is None else "yes" if holds else "NO"


def main(arguments: list[str] | None = None) -> int:
    """Run all steps, or one; return 1 if a step failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", default=os.environ.get("OUT") or "benchmarks/results/gpu", help="folder of the results"
    )
    parser.add_argument(
        "--steps", nargs="*", choices=list(STEPS), metavar="STEP", default=list(STEPS), help="these only"
    )
    parser.add_argument("--step", choices=list(STEPS), metavar="STEP", help="one step, in this process")
    parser.add_argument("--driver", help="Python file whose Library stands for CUDA's driver")
    parser.add_argument("--small", action="store_true", help="small extents only")
    options = parser.parse_args(arguments)
    Path(options.out).mkdir(parents=True, exist_ok=True)
    if options.step:
        STEPS[options.step](Run(options), options.step)
        return 0
    results, weights = Path(options.out) / RESULTS, Path(options.out) / "weights.npy"
    for path in (results, weights):
        path.unlink(missing_ok=True)
    run_all(__file__, options.steps, _arguments(options), results, LIMIT, LONGEST)
    weights.unlink(missing_ok=True)
    records = recorded(results)
    lines = list(table(records))
    (Path(options.out) / "first_run.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return int(any("failed" in record for record in records))


if __name__ == "__main__":
    sys.exit(main())
