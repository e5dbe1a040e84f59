"""Whole networks on a GPU: opbuild beside torch, eager and compiled with CUDA graphs, in one run of eight minutes.

``prepare.py`` makes the files that it needs, on any machine. Weights are made here; inputs lie on the GPU and results
come to the host, for both. Nothing is compiled by opbuild: all kernels come from the pack. Each step is a process of
its own and writes its results at once to ``field.jsonl``; the table comes last.

    python3 benchmarks/gpu/gpu_field.py [--small] [--folder build/gpu-field] [--steps STEP ...]

Without a GPU the steps can be tried with ``--driver``, another library that stands for CUDA's, and ``--device cpu``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from steps import Record, latency, recorded, run_all, stand_in, started, write_record

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parents[1] / "build" / "gpu-field"
RESULTS, LIMIT, LONGEST, CALLS = "field.jsonl", 480, 120, 50
BATCHES = (1, 8)
WAYS = {"eager": None, "compiled": "reduce-overhead"}
"""Ways of torch, and the mode of ``torch.compile``, in which it replays CUDA graphs."""

CLOSE = {"fp16": 2e-3, "bf16": 1e-2, "fp32": 1e-5}
"""Largest errors, of the largest value, against torch's float32 on the CPU."""

NAMES = ("BERT", "GPT-2", "MiniLM", "Llama", "ViT", "ResNet-50", "MobileNet-v2")
SINGLE = (
    "product of 1024",
    "attention of 512",
    "rows of 1024",
    "product of 16",
    "product of 8192",
    "attention of 2048",
)
SMALL = ("BERT", "GPT-2", "Llama", "ResNet-50", "MobileNet-v2", "product of 16")
Call = Callable[[], Any]


def steps(*, small: bool) -> list[str]:
    """Return the steps: what decides most comes first."""
    if small:
        return ["machine", *(f"opbuild {name} {dtype}" for name in SMALL for dtype in ("fp16", "fp32"))]
    first = [f"{who} {name} fp16" for name in NAMES for who in ("opbuild", "eager", "compiled")]
    single = [f"{who} {name} fp16" for name in SINGLE for who in ("opbuild", "compiled")]
    others = [f"opbuild {name} {dtype}" for dtype in ("fp32", "bf16") for name in NAMES]
    return ["machine", *first, *single, *others]


def use_packages(folder: Path) -> None:
    """Have opbuild and what it needs importable, behind what is installed."""
    version = ".".join(map(str, sys.version_info[:2]))
    sys.path += [str(HERE.parents[1] / "src"), str(folder / "packages" / version)]


def machine(path: Path, step: str) -> None:
    """Record card, driver and versions."""
    import torch

    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    write_record(path, step, card=card, torch=torch.__version__, date=time.strftime("%Y-%m-%d"))


def by_opbuild(path: Path, step: str, options: argparse.Namespace) -> None:
    """Record first answer, errors and latencies of opbuild."""
    import numpy as np
    from networks import DTYPES, fed, file_name, made, selected, write_weights

    _, name, dtype = _parsed(step)
    network = selected([name], small=options.small)[name]
    model = options.folder / f"{file_name(name, dtype)}.onnx"
    data = model.with_suffix(".weights")
    if not data.exists():
        write_weights(network, dtype, data)
    before = time.time()
    os.environ.update(OPBUILD_PACK=f"0:{options.folder / 'field.pack'}", OPBUILD_FORBID_COMPILE="1")
    import opbuild

    if options.driver:
        use_driver(options.driver)
    with tempfile.TemporaryDirectory() as store:
        net = opbuild.compile(model, target="cuda", cache_path=store)
        for batch in BATCHES if name in (*NAMES, *SMALL) else BATCHES[:1]:
            x = fed(network, batch, DTYPES[dtype], options.device)
            given = taken(net, x)
            got = np.asarray(net(given))
            first = {"first_answer": time.time() - before} if batch == BATCHES[0] else {}
            report = net.report
            wanted = made(network, DTYPES["fp32"])(fed(network, batch, DTYPES["fp32"])).numpy()
            error = float(np.abs(got.astype(np.float32) - wanted).max() / np.abs(wanted).max())
            record = {"error": error, "right": error <= CLOSE[dtype], "built": report.built, **first}
            record |= {"inputs": "host" if given is not x else "GPU"}
            record |= {"binaries": binaries_of(net, options.folder / "field.pack")}
            seconds = latency(lambda given=given: net(given), 1 if options.small else CALLS)
            write_record(path, step, batch=batch, seconds=seconds, **record)


def binaries_of(net: Any, pack: Path) -> list[str]:
    """Return the SHA-256 of the binaries that a network has from the pack."""
    from opbuild.platform.digest import sha256
    from opbuild.platform.files.trust import PRIVATE
    from opbuild.platform.paths import Path as OwnPath
    from opbuild.store.model_packs import opened

    used = {each.symbol.removesuffix("__kernel0").rpartition("_")[2] for each in net.report.operators}
    files = (file for each in opened(OwnPath(str(pack)), "", PRIVATE).packs("cuda:sm_90a") for file in each.files())
    objects = (each for file in files for each in file.objects())
    return sorted(sha256(each.object) for each in objects if str(int(each.operator[:16], 16)) in used)


def use_driver(path: str) -> None:
    """Have this process's GPU be another library's."""
    from opbuild.runtime.devices.cuda.device import CudaDevice
    from opbuild.target.cuda import CLASS

    CLASS._device = CudaDevice(stand_in(path))


def taken(net: Call, x: Any) -> Any:
    """Return an input as opbuild takes it: where it lies, or else on the host."""
    import torch
    from ml_dtypes import bfloat16

    from opbuild.errors import OpbuildError

    if x.is_cuda:
        try:
            net(x)
        except (OpbuildError, TypeError, ValueError) as error:
            print(f"inputs come from the host: {error}")
        else:
            return x
    x = x.cpu()
    return x.view(torch.int16).numpy().view(bfloat16) if x.dtype == torch.bfloat16 else x.numpy()


def by_torch(path: Path, step: str, options: argparse.Namespace) -> None:
    """Record first answer and latencies of torch."""
    import torch
    from networks import DTYPES, fed, made, selected

    way, name, dtype = _parsed(step)
    torch._dynamo.config.automatic_dynamic_shapes = False
    network = selected([name], small=options.small)[name]
    module: Any = made(network, DTYPES[dtype], options.device)
    before = time.time()
    for batch in BATCHES if name in NAMES else BATCHES[:1]:
        x = fed(network, batch, DTYPES[dtype], options.device)
        run = module if WAYS[way] is None else torch.compile(module, mode=WAYS[way])

        def call(run: Any = run, x: Any = x) -> Any:
            with torch.inference_mode():
                return run(x).cpu()

        call()
        first = {"first_answer": time.time() - before} if batch == BATCHES[0] else {}
        write_record(path, step, batch=batch, seconds=latency(call, CALLS), **first)


def _parsed(step: str) -> tuple[str, str, str]:
    who, _, rest = step.partition(" ")
    name, _, dtype = rest.rpartition(" ")
    return who, name, dtype


def run_step(step: str, options: argparse.Namespace) -> None:
    """Run one step in this process."""
    path = options.out / RESULTS
    if step == "machine":
        machine(path, step)
    elif step.startswith("opbuild"):
        by_opbuild(path, step, options)
    else:
        by_torch(path, step, options)


def table(records: list[Record]) -> Iterator[str]:
    """Yield the lines of the table: milliseconds, and the ratio of opbuild's to those of torch with CUDA graphs."""
    others = (each for each in records if each["step"].startswith("compiled") and "seconds" in each)
    compiled = {(*_parsed(each["step"])[1:], each["batch"]): each["seconds"] for each in others}
    for each in records:
        step = each["step"]
        if "failed" in each:
            yield f"{step:36s} FAILED: {each['failed']}"
        elif step == "machine":
            yield f"{each['card']}, torch {each['torch']}, {each['date']}"
        else:
            first = f", first answer after {each['first_answer']:.2f} s" if "first_answer" in each else ""
            other = compiled.get((*_parsed(step)[1:], each["batch"]))
            ratio = f" {each['seconds'] / other:6.2f} of compiled" if other and "built" in each else ""
            right = f", error {each['error']:.1e}{'' if each['right'] else ' TOO LARGE'}" if "error" in each else ""
            built = f", {each['built']} compiled" if "built" in each else ""
            given = ", inputs on the host" if each.get("inputs") == "host" else ""
            yield f"{step:36s} batch {each['batch']} {each['seconds'] * 1e3:9.3f} ms{ratio}{first}{right}{built}{given}"


def main(arguments: list[str] | None = None) -> int:
    """Run all steps, or one; return 1 if a step failed or a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    out = Path(os.environ.get("OUT") or HERE.parent / "results" / "gpu")
    parser.add_argument("--out", type=Path, default=out, help="folder of the results")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="what prepare.py made")
    parser.add_argument("--small", action="store_true", help="small networks")
    parser.add_argument("--device", default="cuda", help="where torch has inputs; cpu: opbuild is given the host's")
    parser.add_argument("--driver", help="Python file whose Library stands for CUDA's driver")
    parser.add_argument("--steps", nargs="*", metavar="STEP", help="these only")
    parser.add_argument("--step", metavar="STEP", help="one step, in this process")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    use_packages(options.folder)
    if options.step:
        run_step(options.step, options)
        return 0
    results = options.out / RESULTS
    results.unlink(missing_ok=True)
    given = ["--out", str(options.out), "--folder", str(options.folder), "--device", options.device]
    given += ["--small"] * options.small + (["--driver", options.driver] if options.driver else [])
    run_all(__file__, options.steps or steps(small=options.small), given, results, LIMIT, LONGEST)
    records = recorded(results)
    lines = list(table(records))
    (options.out / "field.txt").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return int(any("failed" in each or each.get("right") is False for each in records))


if __name__ == "__main__":
    started()
    sys.exit(main())
