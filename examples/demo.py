"""The main job in one minute: a script, then ResNet-50 compiled from nothing, again, with one layer changed, and with
the kernels that the release brings.

``make demo`` runs it. Each step is a process of its own, so what a later step reuses came from disk. The exit code is
not 0 if a step did not do what it shows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from opbuild.frontend.example_models import EXAMPLES, example_model
from opbuild.store.pack import Pack
from opbuild.target.host import host_level

HERE = Path(__file__).resolve().parent
TOLERANCE = 1e-3
SMALLEST = 1e-4
"""Added to expected values before dividing by them: below it, differences count absolutely."""


@dataclass(frozen=True)
class Step:
    """What one process did with one model: times in seconds, and the operators it built, with the reasons."""

    process: float
    ready: float
    call: float
    built: int
    reused: int
    operators: list[tuple[str, str]]
    error: float


def main() -> int:
    """Run the demo, or one of its steps; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=HERE.parent / ".demo", help="emptied, and worked in")
    parser.add_argument("--step", nargs=3, metavar=("MODEL", "FOLDER", "RESULT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        return build_and_call(*map(Path, arguments.step))
    return demo(arguments.folder.resolve(), Console())


def demo(folder: Path, console: Console) -> int:
    """Show everything in ``folder``; return 0 if each step did what it should."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    problems = show_script(folder / "script", console) + show_network(folder / "resnet50", console)
    for problem in problems:
        console.print(f"[red]wrong:[/] {problem}")
    if not problems:
        console.print(f"[green]all as it should be[/]; the files are in {folder}", highlight=False)
    return 1 if problems else 0


def show_script(folder: Path, console: Console) -> list[str]:
    """Run the example script in an empty folder and list what it left; return what is wrong."""
    folder.mkdir()
    console.rule("1. a script of one operator: opbuild run examples/test_square.py")
    command = [sys.executable, "-m", "opbuild", "run", str(HERE / "test_square.py")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    sys.stderr.write(done.stderr)
    console.print(done.stdout, highlight=False, markup=False, end="")
    files = sorted(path.relative_to(folder) for path in folder.glob("rank_0/kernel_meta/*"))
    for file in files:
        console.print(f"  {file}  ({(folder / file).stat().st_size} bytes)", highlight=False)
    console.print()
    problems = []
    if done.returncode or "[ 1. 16. 81.]" not in done.stdout:
        problems.append(f"the script ended with {done.returncode} and did not print [ 1. 16. 81.]")
    if [file.suffix for file in files] != [".info", ".json", ".o"]:
        problems.append(f"the script should leave one .info, .json and .o, and left {len(files)} files")
    return problems


def show_network(folder: Path, console: Console) -> list[str]:
    """Build ResNet-50 four times, each in a new process, and show a table; return what is wrong."""
    folder.mkdir()
    console.rule("2. ResNet-50: cold, again, with one layer changed, and from the pack of kernels")
    model, changed = folder / "resnet50.onnx", folder / "changed.onnx"
    onnx.save(example_model("resnet50"), model)
    layer = widen_one_kernel(model, changed)
    for path in (model, changed):
        write_expected(path)
    cold = run_step(model, folder)
    again = run_step(model, folder)
    edited = run_step(changed, folder)
    packed = run_step(model, folder / "first", "1")
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in ("a new process", "built", "reused", "ready", "call", "all", "error"):
        table.add_column(column, justify="left" if column.startswith("a") else "right", no_wrap=True)
    labels = ("cold", "again", f"{layer} 3x3 -> 5x5", "first, from the pack")
    for label, step in zip(labels, (cold, again, edited, packed), strict=True):
        times = (f"{step.ready * 1e3:.0f} ms", f"{step.call * 1e3:.1f} ms", f"{step.process:.2f} s")
        table.add_row(label, str(step.built), str(step.reused), *times, f"{step.error:.1e}")
    console.print(table)
    console.print(
        "  ready: compile() to callable; all: the process; error: relative, from ONNX Runtime; the first three with"
        " OPBUILD_PACK=0, the last in an empty folder",
        style="dim",
    )
    for name, reason in edited.operators:
        console.print(f"  built for the changed layer: {name}: {reason}", highlight=False, soft_wrap=True)
    console.print()
    is_packed = Pack(host_level().name).compiler() is not None
    return network_problems(cold, again, edited) + (pack_problems(packed) if is_packed else [])


def pack_problems(packed: Step) -> list[str]:
    """Return the problems of the build with the release's kernels."""
    problems = [f"the pack lacks {packed.built} operators: run make kernels"] if packed.built else []
    if not packed.error <= TOLERANCE:
        problems.append(f"the output with the pack differs from ONNX Runtime's by {packed.error}")
    return problems


def network_problems(cold: Step, again: Step, edited: Step) -> list[str]:
    """Return the problems of the three builds without the pack."""
    problems = []
    if not cold.built:
        problems.append("the cold build compiled nothing")
    if again.built:
        problems.append(f"the second process compiled {again.built} operators")
    if not 1 <= edited.built < cold.built / 2 or not edited.reused:
        problems.append(f"one changed layer compiled {edited.built} operators and reused {edited.reused}")
    for name, step in (("cold", cold), ("second", again), ("third", edited)):
        if not step.error <= TOLERANCE:
            problems.append(f"the {name} process's output differs from ONNX Runtime's by {step.error}")
    return problems


def widen_one_kernel(source: Path, target: Path) -> str:
    """Write a copy of a model whose first 3x3 convolution is a 5x5 one; return that node's name or output."""
    model = onnx.load(source)
    node = next(n for n in model.graph.node if n.op_type == "Conv" and _ints(n, "kernel_shape") == [3, 3])
    for attribute in node.attribute:
        if attribute.name == "kernel_shape":
            attribute.ints[:] = [5, 5]
        elif attribute.name == "pads":
            attribute.ints[:] = [2, 2, 2, 2]
    weights = next(tensor for tensor in model.graph.initializer if tensor.name == node.input[1])
    values = np.pad(numpy_helper.to_array(weights), ((0, 0), (0, 0), (1, 1), (1, 1)), mode="symmetric")
    weights.CopyFrom(numpy_helper.from_array(values, weights.name))
    del model.graph.value_info[:]
    onnx.save(model, target)
    return node.name or node.output[0]


def _ints(node: onnx.NodeProto, name: str) -> list[int]:
    return [value for attribute in node.attribute if attribute.name == name for value in attribute.ints]


def write_expected(model: Path) -> None:
    """Write a random image and what ONNX Runtime makes of it to ``<model>.npz``."""
    image = np.random.default_rng(0).standard_normal(EXAMPLES["resnet50"].shape).astype(np.float32)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {EXAMPLES["resnet50"].input: image})
    np.savez(model.with_suffix(".npz"), image=image, expected=expected)


def run_step(model: Path, folder: Path, pack: str = "0") -> Step:
    """Build and call a model in a new process, whose progress shows on this terminal; ``pack`` is its OPBUILD_PACK."""
    folder.mkdir(exist_ok=True)
    result = folder / "result.json"
    command = [sys.executable, __file__, "--step", str(model), str(folder), str(result)]
    started = time.perf_counter()
    done = subprocess.run(command, env={**os.environ, "OPBUILD_PACK": pack}, check=False)
    seconds = time.perf_counter() - started
    if done.returncode:
        sys.exit(f"{model.name} could not be built: see above")
    return Step(**{**json.loads(result.read_text()), "process": seconds})


def build_and_call(model: Path, cache: Path, result: Path) -> int:
    """Do one step in this process and write what it did to ``result``."""
    import opbuild
    from opbuild.cli.progress import build_progress
    from opbuild.cli.streams import show_failure
    from opbuild.errors import OpbuildError

    data = np.load(model.with_suffix(".npz"))
    image, expected = data["image"], data["expected"]
    try:
        with build_progress(Console(stderr=True)) as observer:
            started = time.perf_counter()
            network = opbuild.compile(model, cache_path=cache, observer=observer, wait=True)
            ready = time.perf_counter() - started
        started = time.perf_counter()
        output = network(image)
        call = time.perf_counter() - started
    except OpbuildError as problem:
        show_failure(problem)
        return problem.exit_code
    error = float(np.max(np.abs(output - expected) / (np.abs(expected) + SMALLEST)))
    report = network.report
    built = [(operator.name, operator.reason) for operator in report.operators if operator.status == "built"]
    result.write_text(json.dumps(asdict(Step(0.0, ready, call, report.built, report.reused, built, error))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
