"""Networks that are called with one size after the other: what each new size takes, and whether it is lowered or built.

Each network runs in a process of its own that finds an empty store, in a second one that finds what the first left, and
in a third one with sizes that none had.
For each new size the table has, for the first call and for the second, the processor's milliseconds of the calling
thread and those of the clock; how many of the first call's were a full collection of Python's garbage, which looks at
all objects of the process; the kernels that the store has gained until then, how many nodes were lowered for it, by the
calling thread and by others, and how far the result is from ONNX Runtime's. Rows:

    1  numbers that follow from lengths: positions read at a length, rows of a mask, shapes
    2  two inputs whose extents are related
    3  sizes of another kind: a batch of 1 and 2, a square, a length of 1 and 2
    4  a network that knows images of any size, at twelve
    5  networks in segments: lengths from data, NonMaxSuppression, a loop
    6  decoding with a growing cache beside ONNX Runtime, token by token, then all lengths twice again: the token's
       place is given, or read from a table at the cache's length
    7  a file for ranges
    8  the first call of a network with open sizes, beside the same network with fixed ones
    9  what 300 lengths take of memory beyond the longest

    python benchmarks/sizes.py --row 1 3 --json sizes.json
    python benchmarks/sizes.py --case T5
    python benchmarks/sizes.py --model bert.onnx --lengths 20
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import measure
import numpy as np
from rich.console import Console
from rich.table import Table
from sizes_models import CASES, Case, Data, Size

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.counted_functions import CountedFunction, counted

THREADS = 2
STEADY, LONGEST = 1.0, 60.0
"""Seconds without a change after which nothing goes on behind the calls any more, and the longest wait for that."""

STORES = {"cold": "cold store", "warm": "warm store", "new": "warm store, new sizes"}

Row = dict[str, Any]


# -- what is counted ---------------------------------------------------------------------------------------------------


def kernels(store: Path) -> int:
    """Return how many kernels a store has."""
    return sum(1 for _ in store.rglob("kernel_meta/*.json"))


def memory() -> dict[str, float]:
    """Return megabytes of this process: what it has, of that what is no file, and the most that it had."""
    found = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    names = {"all": "VmRSS", "own": "RssAnon", "peak": "VmHWM"}
    return {name: int(found[field].split()[0]) / 1024 for name, field in names.items()}


@contextmanager
def timed(row: Row, name: str) -> Iterator[None]:
    """Note the milliseconds of the calling thread's processor and of the clock, and those of a full collection."""
    times: list[float] = []

    def collected(_: str, info: dict[str, int]) -> None:
        if info["generation"] == 2 and threading.get_ident() == own:
            times.append(time.thread_time())

    own = threading.get_ident()
    gc.callbacks.append(collected)
    wall, processor = time.perf_counter(), time.thread_time()
    try:
        yield
    finally:
        gc.callbacks.remove(collected)
        row[f"{name}_collected"] = 1e3 * sum(b - a for a, b in zip(times[::2], times[1::2], strict=True))
        row[f"{name}_processor"] = 1e3 * (time.thread_time() - processor)
        row[f"{name}_wall"] = 1e3 * (time.perf_counter() - wall)


def settle(store: Path, lowering: CountedFunction) -> None:
    """Wait until nothing is lowered or built behind the calls any more."""
    seen: Any = None
    since = began = time.monotonic()
    while time.monotonic() - began < LONGEST and time.monotonic() - since < STEADY:
        state = kernels(store), lowering.count, len(list(store.rglob("*")))
        if state != seen:
            seen, since = state, time.monotonic()
        time.sleep(0.05)


def peer(model: Path, threads: int = 1) -> Any:
    """Return ONNX Runtime's session; with one thread none of it looks for work beside what is measured."""
    return measure.ort_session(str(model), threads)


def error_of(got: Sequence[Any], wanted: Sequence[Any]) -> float | str:
    """Return the greatest relative error of the outputs, or that a shape is another one."""
    if any(np.shape(one) != np.shape(other) for one, other in zip(got, wanted, strict=True)):
        return "shape"
    return max(
        float(np.abs(np.float64(one) - other).max(initial=0) / max(np.abs(other).max(initial=0), 1e-6))
        for one, other in zip(got, wanted, strict=True)
    )


# -- measurements, each in a process of its own ------------------------------------------------------------------------


def measure_sizes(
    case: Case, model: Path, store: Path, lowering: CountedFunction, open_network: Callable[[], Any] | None = None
) -> Row:
    """Call a network with one size after the other."""
    import opbuild

    network = open_network() if open_network else opbuild.compile(model, cache_path=store, num_threads=THREADS)
    other = peer(model)
    rows: list[Row] = []
    for number, size in enumerate(case.sizes):
        data, row = case.data(size, number), Row(size=list(size))
        here, elsewhere = lowering.here, lowering.elsewhere
        try:
            with timed(row, "first"):
                got = network.run(None, data)
            with timed(row, "second"):
                network.run(None, data)
            row["error"] = error_of(got, other.run(None, data))
        except opbuild.errors.OpbuildError as error:
            row |= {
                "second_processor": np.nan,
                "second_wall": np.nan,
                "error": type(error).__name__,
                "said": str(error),
            }
        row |= {"here": lowering.here - here, "elsewhere": lowering.elsewhere - elsewhere}
        row["kernels"] = kernels(store)
        rows.append(row)
    settle(store, lowering)
    return {"sizes": rows, "lowered": lowering.count, "kernels": kernels(store)}


def measure_file(case: Case, model: Path, store: Path, lowering: CountedFunction) -> Row:
    """Write a file for ranges, in the first process, and call what is loaded with sizes in them."""
    import opbuild
    from opbuild.config import Config

    path = store / "network.om"
    store.mkdir(exist_ok=True)
    if not path.exists():
        opbuild.export(model, path, ranges=case.ranges, config=Config(cache_path=store))
    return measure_sizes(case, model, store, lowering, lambda: opbuild.load(path, num_threads=THREADS))


def measure_first(case: Case, model: Path, store: Path, lowering: CountedFunction) -> Row:
    """Call a network once that was opened with open sizes, then the same with fixed ones and another store."""
    import opbuild

    (size,) = case.sizes
    data = case.data(size, 0)
    rows = []
    for name, shapes in (("open", None), ("fixed", {name: each.shape for name, each in data.items()})):
        row, folder = Row(size=[name]), store / name
        calls, busy = lowering.count, lowering.seconds
        with timed(row, "first"):
            if shapes is not None:
                model = _fixed(model, shapes)
            network = opbuild.compile(model, cache_path=folder, num_threads=THREADS)
            network.run(None, data)
        with timed(row, "second"):
            network.run(None, data)
        settle(folder, lowering)
        row |= {"lowered": lowering.count - calls, "lowering": 1e3 * (lowering.seconds - busy)}
        rows.append(row | {"kernels": kernels(folder)})
    return {"first": rows}


def _fixed(model: Path, shapes: dict[str, tuple[int, ...]]) -> Path:
    """Write a model whose inputs have these shapes, and no open ones; return the file."""
    import onnx

    read = onnx.load(model)
    for value in read.graph.input:
        for dimension, extent in zip(value.type.tensor_type.shape.dim, shapes[value.name], strict=True):
            dimension.dim_value = extent
    path = model.with_suffix(".fixed.onnx")
    onnx.save(read, path)
    return path


def measure_memory(case: Case, model: Path, store: Path, lowering: CountedFunction) -> Row:
    """Call a network with its largest size, then with all others, and compare what the process has."""
    import opbuild

    network = opbuild.compile(model, cache_path=store, num_threads=THREADS)
    *others, largest = case.sizes
    for number in range(3):
        network.run(None, case.data(largest, number))
    settle(store, lowering)
    before, began = memory(), time.perf_counter()
    for number, size in enumerate(others):
        network.run(None, case.data(size, number))
    settle(store, lowering)
    after = memory()
    grown = {name: after[name] - before[name] for name in after}
    return {"memory": {"before": before, "grown": grown, "sizes": len(others), "seconds": time.perf_counter() - began}}


def measure_decoding(case: Case, model: Path, store: Path, lowering: CountedFunction) -> Row:
    """Decode token by token, both runtimes in turn, then call all lengths twice again, and the last one often.

    A cache is let go of when the next one is there, as decoders do: the lengths that come again have other numbers.
    """
    import opbuild

    network = opbuild.compile(model, cache_path=store, num_threads=THREADS)
    other = peer(model, THREADS)
    rows: list[Row] = []
    data = case.data(case.sizes[0], 0)
    lengths = range(1, len(case.sizes) + 1)
    for length in lengths:
        row = _both(network, other, data, f"token {length}")
        outputs = row.pop("outputs")
        rows.append(row)
        data = case.data((length + 1,), length) | dict(
            zip([name for name in data if "past" in name], outputs[1:], strict=True)
        )
    passes = {"decode": rows}
    for name in ("again", "and again"):
        passes[name] = [_both(network, other, case.data((length,), length), name) for length in lengths]
    passes["one length"] = [_both(network, other, data, "one length") for _ in range(50)]
    for each in passes.values():
        for row in each:
            row.pop("outputs", None)
    return {"decode": passes, "lowered": lowering.count, "kernels": kernels(store), "memory": memory()}


def _both(network: Any, other: Any, data: Data, name: str) -> Row:
    """Call both runtimes once."""
    row = Row(size=[name])
    with timed(row, "first"):
        got = network.run(None, data)
    with timed(row, "peer"):
        wanted = other.run(None, data)
    return row | {"outputs": got, "error": error_of(got, wanted)}


def worked(case: Case, model: Path, store: Path) -> Row:
    """Return the measurements of a case in this process."""
    from opbuild.lowering.lower import lower

    measures: dict[str, Callable[..., Row]] = {
        "sizes": measure_sizes, "file": measure_file, "first": measure_first, "memory": measure_memory,
        "decode": measure_decoding,
    }  # fmt: skip
    with counted(lower, lambda graph, *_: len(graph.nodes)) as lowering:
        return measures[case.how](case, model, store, lowering)


# -- tables ------------------------------------------------------------------------------------------------------------

COLUMNS = {
    "first_processor": "first, processor", "first_collected": "of that gc",
    "first_wall": "clock", "second_processor": "second, processor",
    "second_wall": "clock ", "here": "lowered", "elsewhere": "by others", "lowered": "lowered ", "lowering": "ms in it",
    "kernels": "kernels", "error": "error",
}  # fmt: skip
"""What is measured, and what its column is called; what is lowered are nodes."""


def shown(name: str, value: Any) -> str:
    """Return a figure for a table."""
    if isinstance(value, float):
        return f"{value:.0e}" if name == "error" else f"{value:.2f}"
    return str(value)


def show(console: Console, title: str, found: Row) -> None:
    """Print what one process measured."""
    if "failed" in found:
        console.print(f"{title}: the process failed\n{found['failed']}", highlight=False, markup=False)
        return
    if "memory" in found and "decode" not in found:
        show_memory(console, title, found["memory"])
        return
    rows: list[Row] = found.get("sizes") or found.get("first") or list(_decoded(found["decode"]))
    columns = {name: label for name, label in COLUMNS.items() if name in rows[0]}
    if "ratio" in rows[0]:
        columns = {"first": "ms", "greatest": "greatest", "processor": "processor", "peer": "ONNX Runtime",
                   "ratio": "ratio", "error": "error"}  # fmt: skip
    table = Table(title=title, title_justify="left")
    for label in ("size", *columns.values()):
        table.add_column(label, justify="right")
    for row in rows:
        table.add_row("x".join(map(str, row["size"])), *(shown(name, row[name]) for name in columns))
    console.print(table)
    if "sizes" in found:
        print_new(console, found)


def _decoded(passes: dict[str, list[Row]]) -> Iterator[Row]:
    """Yield a row for each pass: medians of all calls but the first."""
    for name, rows in passes.items():
        first, processor, other = (
            [row[column] for row in rows[1:]] for column in ("first_wall", "first_processor", "peer_wall")
        )
        ratios = statistics.median(one / two for one, two in zip(first, other, strict=True))
        middle = {"first": first, "processor": processor, "peer": other}
        yield {
            "size": [name],
            **{column: statistics.median(values) for column, values in middle.items()},
            "greatest": max(first),
            "ratio": ratios,
            "error": _greatest(row["error"] for row in rows),
        }


def _greatest(errors: Iterator[Any]) -> Any:
    every = list(errors)
    return next((each for each in every if isinstance(each, str)), None) or max(every)


def print_new(console: Console, found: Row) -> None:
    """Print what the sizes behind the first took, and what was said of those that failed."""
    rows = found["sizes"][1:]
    for said in dict.fromkeys(row["said"] for row in found["sizes"] if "said" in row):
        console.print(said, highlight=False)
    processor, wall = ([row[f"first_{name}"] for row in rows] for name in ("processor", "wall"))
    most = f"median {statistics.median(processor):.1f}, greatest {max(processor):.1f} ms"
    lowered = sum(row["here"] + row["elsewhere"] > 0 for row in rows)
    console.print(
        f"after the first size: processor {most}, clock {statistics.median(wall):.1f} and {max(wall):.1f};\nlowered at "
        f"{lowered} of {len(rows)}, {found['lowered']} nodes in all; "
        f"{found['kernels'] - found['sizes'][0]['kernels']} kernels more, at the end\n",
        highlight=False,
    )


def show_memory(console: Console, title: str, found: Row) -> None:
    """Print what sizes took of memory."""
    grown = ", ".join(f"{name} {value:+.1f}" for name, value in found["grown"].items())
    before = ", ".join(f"{name} {value:.1f}" for name, value in found["before"].items())
    console.print(f"{title}\n{found['sizes']} sizes in {found['seconds']:.1f} s, MB: {before}; then {grown}")


# -- the command -------------------------------------------------------------------------------------------------------


GIVEN = (16, 17, 40, 64, 100, 23, 35, 90, 33, 77, 50, 128, 19, 41, 66, 88, 111, 29, 57, 99)
FURTHER = [(each + 5,) for each in GIVEN[1:6]]
"""Lengths of a model that is at hand."""


def given_case(path: Path, lengths: int) -> Case:
    """Return a case of a model that is at hand: each open extent but the first dimension's is a length."""
    import onnx

    inputs = [(each.name, each.type.tensor_type) for each in onnx.load(path, load_external_data=False).graph.input]

    def data(size: Size, number: int) -> Data:
        found = {}
        for name, kind in inputs:
            dims = [each.dim_value for each in kind.shape.dim]
            shape = [each or (size[0] if axis or len(dims) == 1 else 1) for axis, each in enumerate(dims)]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            found[name] = np.random.default_rng(number).integers(0, 2, shape).astype(dtype)
        return found

    sizes = [(GIVEN[number % len(GIVEN)] + 128 * (number // len(GIVEN)),) for number in range(lengths)]
    return Case(0, path.stem, lambda to: to.write_bytes(path.read_bytes()), sizes, data, further=FURTHER)


def run_case(case: Case, place: int, folder: Path, arguments: Any) -> dict[str, Row]:
    """Measure a case in two processes with one store, and return what each found."""
    model, store = folder / f"{place}.onnx", folder / f"{place} store"
    case.write(model)
    found = {}
    for when in ("cold", "warm", "new")[: 3 if case.further else 2]:
        command = [sys.executable, __file__, "--worker", str(place), str(model), str(store), when]
        command += ["--model", str(arguments.model), "--lengths", str(arguments.lengths)] if arguments.model else []
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=arguments.timeout)
        said = {"failed": done.stderr[-1000:]} if done.returncode else json.loads(done.stdout.splitlines()[-1])
        found[when] = said
    return found


def parse() -> Any:
    """Return the arguments."""
    parser = measure.parser(__doc__ or "")
    parser.description, parser.formatter_class = __doc__, argparse.RawDescriptionHelpFormatter
    parser.add_argument("--row", type=int, nargs="*", help="which rows; default: all")
    parser.add_argument("--case", default="", help="only networks whose names have this in them")
    parser.add_argument("--model", type=Path, help="an ONNX file instead of these networks")
    parser.add_argument("--lengths", type=int, default=20, help="how many lengths of that")
    parser.add_argument("--timeout", type=float, default=600, help="seconds that one process may take")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Measure and print a table for each network, cold and warm; return 1 if a result was wrong."""
    arguments = parse()
    cases: Sequence[Case] = (given_case(arguments.model, arguments.lengths),) if arguments.model else CASES
    if arguments.worker:
        place, model, store, when = arguments.worker
        case = cases[int(place)]
        case = case._replace(sizes=(case.sizes[0], *case.further)) if when == "new" else case
        print(json.dumps(worked(case, Path(model), Path(store))))
        return 0
    console = Console(width=110)
    console.print(f"{measure.processor()}, {THREADS} threads, load {os.getloadavg()[0]:.1f}", highlight=False)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for place, case in enumerate(cases):
            if (arguments.row and case.row not in arguments.row) or arguments.case not in case.name:
                continue
            for when, found in run_case(case, place, Path(folder), arguments).items():
                show(console, f"{case.row}. {case.name}, {STORES[when]}", found)
                rows.append({"row": case.row, "name": case.name, "store": when, **found})
    measure.write_results(arguments.json, "sizes", rows)
    return int(any(wrong(row) for row in rows))


def wrong(found: Row) -> bool:
    """Return whether a result was not what ONNX Runtime gives."""
    if "failed" in found:
        return True
    decoded = [row for rows in found.get("decode", {}).values() for row in rows]
    return any(isinstance(row["error"], str) or not row["error"] <= 1e-3 for row in found.get("sizes", decoded))


if __name__ == "__main__":
    sys.exit(main())
