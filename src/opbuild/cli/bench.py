"""``opbuild bench``: a model in opbuild and in other runtimes that are installed, side by side."""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from opbuild.cli.options import (
    TO_WRITE,
    Whole,
    WordValue,
    input_option,
    model_arguments,
    new_file,
    option_group,
    seed_option,
    shapes_option,
    value_option,
)
from opbuild.cli.tables import Terminal
from opbuild.errors import OptionError
from opbuild.platform.paths import Path
from opbuild.text.plural import counted
from opbuild.tuning.bench.runtimes import LIMITED, RUNTIMES, Array
from opbuild.version import __version__

if TYPE_CHECKING:
    from rich.table import Table

    from opbuild.tuning.bench.measure import Figures

WRONG = 1.0
"""A runtime whose outputs differ by more, relative to the greatest value, computes something else."""

bench_options = option_group(
    value_option("--runtime runtimes", "NAME",
                 f"Measure {', '.join(RUNTIMES)}.  [repeatable; default: those that are installed]",
                 WordValue(tuple(RUNTIMES)), multiple=True),
    value_option("--num_threads threads", "N", "Threads that run the network.  [repeatable; default: 1, and the cores]",
                 Whole(1, 1024), multiple=True),
    value_option("--gap gaps", "MS",
                 "Measure calls with this time between them too, as a server sees them.  [repeatable]",
                 Whole(1, 60000), multiple=True),
    value_option("--rounds", "N", "Turns of each runtime; medians count.", Whole(1), default=7, show_default=True),
    value_option("--seconds", "N", "Length of a turn.", Whole(1, 3600), default=1, show_default=True),
    input_option,
    seed_option,
    value_option("--soc_version", "LEVEL",
                 f"Run opbuild's code for {' or '.join(LIMITED)}, and keep others to it that can be kept.",
                 WordValue(tuple(LIMITED)), "host"),
    value_option("--json results", "FILE.json", "Write all figures, with the machine and the versions.", TO_WRITE),
)  # fmt: skip


@click.command()
@model_arguments()
@bench_options
@shapes_option
def bench(
    model: Path,
    *,
    runtimes: tuple[str, ...],
    threads: tuple[int, ...],
    gaps: tuple[int, ...],
    rounds: int,
    seconds: int,
    inputs: tuple[str, ...],
    input_shapes: dict[str, tuple[int, ...]],
    seed: int,
    soc_version: str | None,
    results: Path | None,
) -> None:
    """Measure a model in opbuild and in the runtimes that are installed.

    Those are ONNX Runtime, OpenVINO, MNN, ncnn and torch.compile; models for the last three are converted first, and
    one that cannot take a model says so.

    Each runs in a process of its own, started with an empty cache and then once more, and takes turns with the others:
    a machine that slows down slows all. The store of the user is neither read nor written.
    """
    from opbuild.cli.tables import output_console, say
    from opbuild.tuning.bench.measure import measure

    if results is not None:
        new_file("json", str(results), "the file to write")
    chosen = _installed(runtimes)
    data = _data(model, inputs, input_shapes, seed)
    figures: list[Figures] = []
    with Terminal(stderr=True).status("") as status:
        for count in dict.fromkeys(threads or (1, os.cpu_count() or 1)):
            titles = ", ".join(RUNTIMES[name].title for name in chosen)
            status.update(f"{model.name}: {titles}, {counted(count, 'thread')} ...")
            figures += measure(
                model, data, chosen, count, rounds=rounds, seconds=seconds, gaps=gaps, level=soc_version or ""
            )
    output_console().print(_table(figures, gaps))
    for line in _verdicts(figures):
        say(line)
    if results is not None:
        _write(results, model, data, figures)


def _installed(wanted: Sequence[str]) -> list[str]:
    """Return the runtimes to measure: opbuild first, and those named, or all that are there."""
    for name in wanted:
        if not RUNTIMES[name].is_installed:
            package = RUNTIMES[name].package
            raise OptionError(f"--runtime is {name!r}, and it is not installed", f"install it: pip install {package}")
    return [name for name in RUNTIMES if (name in wanted if wanted else RUNTIMES[name].is_installed)]


def _data(model: Path, inputs: tuple[str, ...], shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, Array]:
    """Return data for all inputs of a model, as its declaration and the options ask for it."""
    from opbuild.cli.run_model import check_inputs, complete_inputs, read_inputs
    from opbuild.config import Config
    from opbuild.frontend.models.declaration import inputs_of
    from opbuild.frontend.models.source import open_model
    from opbuild.pipeline.setup import set_up
    from opbuild.pipeline.stores import Stores

    given = read_inputs(inputs)
    stores = Stores(set_up(Config.from_environment(op_compiler_cache_mode="disable"), None, None))
    ports, _ = inputs_of(open_model(model, stores.models).declaration, shapes)
    check_inputs(ports, given, shapes)
    return complete_inputs(ports, given, seed, shapes)


def _table(figures: Sequence[Figures], gaps: Sequence[int]) -> Table:
    from rich.text import Text

    from opbuild.cli.tables import plain_table

    table = plain_table("runtime")
    after = [f"ms after {gap} ms" for gap in gaps]
    for name in ("threads", "first outputs s", "again s", "ms", "spread", *after, "MB", "error"):
        table.add_column(name, justify="right")
    for each in figures:
        title = Text(f"{RUNTIMES[each.runtime].title} {each.version}".strip())
        if each.failure:
            title.append(f"\n{each.failure}", style="red")
            table.add_row(title, str(each.threads))
            continue
        table.add_row(
            title, str(each.threads), f"{each.first:.2f}", f"{each.again:.2f}", f"{1e3 * each.median:.3f}",
            f"{100 * each.spread:.0f}%", *(f"{1e3 * each.median_after(gap):.3f}" for gap in gaps),
            f"{each.memory / 1e6:.0f}", "reference" if each.error is None else f"{each.error:.0e}",
        )  # fmt: skip
    return table


def _verdicts(figures: Sequence[Figures]) -> list[str]:
    """Return a line for each number of threads: opbuild's time relative to that of the best other runtime."""
    lines = []
    for count in dict.fromkeys(each.threads for each in figures):
        measured = [each for each in figures if each.threads == count and not each.failure]
        own = next((each for each in measured if each.runtime == "opbuild"), None)
        best = min(
            (each for each in measured if each is not own and each.is_right(WRONG)),
            key=lambda each: each.median,
            default=None,
        )
        if own is not None and best is not None:
            ratio, title = own.median / best.median, RUNTIMES[best.runtime].title
            lines.append(f"{counted(count, 'thread')}: opbuild takes {ratio:.2f} of the time of {title}")
    return lines


def _write(path: Path, model: Path, data: Mapping[str, Array], figures: Sequence[Figures]) -> None:
    from opbuild.platform.processor import processor_name

    record: dict[str, Any] = {
        "model": model.name,
        "inputs": {name: f"{array.dtype}[{','.join(map(str, array.shape))}]" for name, array in data.items()},
        "machine": processor_name(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "opbuild": __version__,
        "date": time.strftime("%Y-%m-%d"),
        "figures": [
            vars(each) | {"error": None if each.error is None or math.isinf(each.error) else each.error}
            for each in figures
        ],
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
