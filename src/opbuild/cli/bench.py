"""``opbuild bench``: a model in opbuild and in other runtimes that are installed, side by side."""

from __future__ import annotations

import math
import os
import platform
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from opbuild.cli.bench_texts import Measurement, texts
from opbuild.cli.options import (
    TO_WRITE,
    Whole,
    WordValue,
    given_options,
    input_option,
    model_arguments,
    new_file,
    option_group,
    seed_option,
    shapes_option,
    value_option,
)
from opbuild.cli.tables import Terminal, output_console, say
from opbuild.errors import OptionError
from opbuild.platform.paths import Path
from opbuild.text.plural import counted
from opbuild.tuning.bench.gpu import CUDA, ON_GPU, is_installed
from opbuild.tuning.bench.runtimes import LIMITED, RUNTIMES, Array
from opbuild.version import __version__

if TYPE_CHECKING:
    from rich.table import Table

    from opbuild.frontend.models.declaration import Declared
    from opbuild.runtime.endpoint import Endpoint
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
    click.option("--generate", is_flag=True, help="Generate texts with a decoder that has its cache as inputs."),
    value_option("--prompt", "N", "Tokens of a prompt, with --generate.", Whole(1), default=128, show_default=True),
    value_option("--tokens", "N", "Tokens that follow it.", Whole(1), default=64, show_default=True),
    value_option("--rounds", "N", "Turns of each runtime; medians count.", Whole(1), default=7, show_default=True),
    value_option("--seconds", "N", "Length of a turn.", Whole(1, 3600), default=1, show_default=True),
    input_option,
    seed_option,
    value_option("--target", "LEVEL",
                 f"Run opbuild's code for {' or '.join(LIMITED)}, and keep others to it that can be kept; "
                 "or cuda: on the GPU.",
                 WordValue((*LIMITED, CUDA)), "host", older="--soc_version"),
    value_option("-o --output results", "FILE.json", "Write all figures, with the machine and the versions.", TO_WRITE,
                 older="--json"),
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
    generate: bool,
    prompt: int,
    tokens: int,
    rounds: int,
    seconds: int,
    inputs: tuple[str, ...],
    input_shapes: dict[str, tuple[int, ...]],
    seed: int,
    target: str | None,
    results: Path | None,
) -> None:
    """Measure a model in opbuild and in the runtimes that are installed.

    Those are ONNX Runtime, OpenVINO, MNN, ncnn and torch.compile; models for the last three are converted first, and
    one that cannot take a model says so.

    Each runs in a process of its own, started with an empty cache and then once more, and takes turns with the others:
    a machine that slows down slows all. The store of the user is neither read nor written.

    With --target cuda a model is measured on the GPU, where its inputs and outputs lie, beside ONNX Runtime if its
    package for GPUs is installed.

    With --generate a turn is a text of a decoder, the likeliest tokens behind a random prompt, in opbuild and ONNX
    Runtime: tokens a second of the prompt and behind it.
    """
    others = ("gaps", "seconds", "inputs", "seed") if generate else ("prompt", "tokens")
    if given := given_options(others):
        raise OptionError(
            f"{given[0]} is for {'calls, not texts' if generate else 'texts, with --generate'}", "leave it out"
        )
    if results is not None:
        new_file("output", str(results), "the file to write")
    if target == CUDA:
        _require_gpu(runtimes, generate)
    chosen = [
        name for name in _installed(runtimes, generate) if target != CUDA or name in runtimes or is_installed(name)
    ]
    cores = os.cpu_count() or 1
    counts = tuple(dict.fromkeys(threads or ((cores,) if target == CUDA else (1, cores))))
    if generate:
        measure, shown, about = texts(model, _ends(model, input_shapes), prompt, tokens)
    else:
        measure, shown, about = _calls(model, _data(model, inputs, input_shapes, seed), seconds, gaps)
    figures: list[Figures] = []
    with Terminal(stderr=True).status("") as status:
        for count in counts:
            titles = ", ".join(RUNTIMES[name].title for name in chosen)
            status.update(f"{model.name}: {titles}, {counted(count, 'thread')} ...")
            figures += measure(chosen, count, rounds=rounds, level=target or "")
    table, verdicts = shown(figures)
    output_console().print(table)
    for line in verdicts:
        say(line)
    if results is not None:
        _write(results, model, about, figures)


def _calls(model: Path, data: dict[str, Array], seconds: float, gaps: Sequence[int]) -> Measurement:
    """Return the way to measure calls with some data."""
    from opbuild.tuning.bench.measure import measure

    about = {"inputs": {name: f"{array.dtype}[{','.join(map(str, array.shape))}]" for name, array in data.items()}}
    measured = partial(measure, model, data, seconds=seconds, gaps=gaps)
    return Measurement(measured, lambda figures: (_table(figures, gaps), _verdicts(figures)), about)


def _require_gpu(wanted: Sequence[str], generate: bool) -> None:
    """Refuse to measure on a GPU what is not, or where there is none."""
    from opbuild.target.devices import device_class

    if generate:
        raise OptionError(f"--target is {CUDA!r}, and texts are measured on the CPU", "leave out --generate")
    other = next((name for name in wanted if name not in ON_GPU), None)
    if other is not None:
        hint = f"with --target {CUDA} these are: {', '.join(ON_GPU)}"
        raise OptionError(f"--runtime is {other!r}, which is measured on the CPU alone", hint)
    device_class(CUDA).require()


def _installed(wanted: Sequence[str], generate: bool) -> list[str]:
    """Return the runtimes to measure: opbuild first, and those named, or all that are there."""
    for name in wanted:
        if not RUNTIMES[name].is_installed:
            hint = f"install it: {RUNTIMES[name].installation}"
            raise OptionError(f"--runtime is {name!r}, and it is not installed", hint)
        if generate and RUNTIMES[name].open is None:
            raise OptionError(f"--runtime is {name!r}, which --generate does not measure", "leave it out")
    known = [name for name, each in RUNTIMES.items() if not generate or each.open is not None]
    return [name for name in known if (name in wanted if wanted else RUNTIMES[name].is_installed)]


def _ends(model: Path, shapes: dict[str, tuple[int, ...]]) -> tuple[Sequence[Endpoint], Sequence[Declared]]:
    """Return the inputs and outputs of a model, as its declaration and the options have them."""
    from opbuild.config import Config
    from opbuild.frontend.models.declaration import inputs_of
    from opbuild.frontend.models.source import open_model
    from opbuild.pipeline.setup import set_up
    from opbuild.pipeline.stores import Stores

    stores = Stores(set_up(Config.from_environment(op_compiler_cache_mode="disable"), None, None))
    declaration = open_model(model, stores.models).declaration
    return inputs_of(declaration, shapes, open_ranks=True)[0], declaration.outputs


def _data(model: Path, inputs: tuple[str, ...], shapes: dict[str, tuple[int, ...]], seed: int) -> dict[str, Array]:
    """Return data for all inputs of a model, as its declaration and the options ask for it."""
    from opbuild.cli.run_model import check_inputs, complete_inputs, read_inputs

    given = read_inputs(inputs)
    ports, _ = _ends(model, shapes)
    check_inputs(ports, given, shapes)
    return complete_inputs(ports, given, seed, shapes)


def _table(figures: Sequence[Figures], gaps: Sequence[int]) -> Table:
    from opbuild.cli.tables import figures_table

    def cells(each: Figures) -> Sequence[str]:
        return (
            f"{each.first:.2f}", f"{each.again:.2f}", f"{1e3 * each.median:.3f}", f"{100 * each.spread:.0f}%",
            *(f"{1e3 * each.median_after(gap):.3f}" for gap in gaps),
            f"{each.memory / 1e6:.0f}", *of_gpu(each), "reference" if each.error is None else f"{each.error:.0e}",
        )  # fmt: skip

    on_gpu = any(each.device for each in figures)

    def of_gpu(each: Figures) -> Sequence[str]:
        own = each.device
        counts = (str(own["calls"]), str(own["cpu_calls"]), f"{own['bytes'] / 1e6:.1f}") if own else ("",) * 3
        return counts if on_gpu else ()

    more = ("GPU calls", "CPU calls", "GPU MB") if on_gpu else ()
    after = [f"ms after {gap} ms" for gap in gaps]
    return figures_table(("first outputs s", "again s", "ms", "spread", *after, "MB", *more, "error"), figures, cells)


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


def _write(path: Path, model: Path, about: Mapping[str, Any], figures: Sequence[Figures]) -> None:
    from opbuild.cli.export import write_report
    from opbuild.platform.processor import processor_name

    record: dict[str, Any] = {
        "model": model.name,
        **about,
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
    write_report(record, "json", path)
