"""``opbuild profile`` and ``report``: a built model timed call by call, as a table or as a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import click

from opbuild.cli.options import OnePath, Whole, WordValue, model_arguments, model_of, model_options, option_group
from opbuild.cli.picture import Picture, nominal_peak, picture_options, trace_option
from opbuild.cli.progress import build_progress
from opbuild.cli.run_model import check_inputs, complete_inputs, ports_of, read_inputs
from opbuild.cli.tables import Terminal, output_console, plain_table, say
from opbuild.config import Config
from opbuild.events import ignore
from opbuild.files.kinds import OFFLINE, ONNX, kind_of, require_kind
from opbuild.platform.paths import Path
from opbuild.text.plural import counted, first_of, size

if TYPE_CHECKING:
    from rich.table import Table

    from opbuild.runtime.network import Network
    from opbuild.runtime.profile import Profile


data_options = option_group(
    click.option("--input", "inputs", metavar="NAME=FILE.npy", multiple=True,
                 help="Data of one input; the others get random numbers.  [repeatable]"),
    click.option("--runs", metavar="N", type=Whole(1), default=10, show_default=True,
                 help="Timed runs; the median counts."),
    click.option("--seed", metavar="N", type=Whole(0), default=0, show_default=True,
                 help="Seed of the random inputs."),
)  # fmt: skip
"""What a network is timed with."""


def built_and_timed(
    picture: Picture,
    *,
    inputs: tuple[str, ...],
    input_shapes: dict[str, tuple[int, ...]],
    runs: int,
    seed: int,
    timed: bool,
    **settings: Any,
) -> tuple[Network, Config, Profile | None]:
    """Build a model or load an offline one, and time its calls if that is wanted.

    Args:
        picture: Has the model's file, and records the build.
        inputs: As ``read_inputs`` takes them.
        input_shapes: Shapes of inputs by name.
        runs: Timed runs.
        seed: Seed of the random inputs.
        timed: Whether to time the calls.
        settings: Arguments of ``Config.from_environment``.

    Raises:
        OpbuildError: If the model cannot be built, loaded or run.
    """
    model = picture.model
    require_kind(model, OFFLINE if model.suffix == ".om" else ONNX, OFFLINE, ONNX)
    given, config, served = read_inputs(inputs), Config.from_environment(**settings), ""
    if (kind_of(model) or ONNX) == OFFLINE:
        from opbuild.offline.load import open_offline

        picture.watching(ignore)
        network, served = open_offline(model, config)
        check_inputs(network.inputs, given, input_shapes, built=True)
    else:
        from opbuild.api import compile_model

        with build_progress(Terminal(stderr=True)) as observer:
            network = compile_model(
                model, config, input_shapes=input_shapes, observer=picture.watching(observer),
                check=lambda ports: check_inputs(ports, given, input_shapes),
            )  # fmt: skip
    data = None
    if timed or not network.bound_inputs or network.report.breaks:
        data = complete_inputs(ports_of(network), given, seed, input_shapes, served)
        network.run(data)  # builds what is not bound until values are there: sizes that are open, and later segments
    picture.built()
    return network, config, network.profile(data, runs=runs) if timed else None


@click.command()
@model_arguments("[MODEL.onnx|MODEL.om]")
@click.option("--by", type=WordValue(("layer", "kernel")), default="layer", show_default=True,
              help="A row for each layer in order, or for each kernel, the slowest first.")  # fmt: skip
@data_options
@picture_options
@model_options
def profile(
    path: Path | None, model: Path | None, by: str, report: Path | None, trace: Path | None, **options: Any
) -> None:
    """Build a model unless it was, and show how long each of its calls takes.

    Times are medians of runs of the whole network. GFLOP/s are counted for products and convolutions, the latter as
    the direct algorithm computes them.
    """
    picture = Picture(model_of(path, model), report, trace)
    network, config, found = built_and_timed(picture, timed=True, **options)
    times = cast("Profile", found)
    output_console().print(_by_kernel(times) if by == "kernel" else _by_layer(times))
    calls = sum(row.milliseconds for row in times.rows)
    say(
        f"{times.milliseconds:.3f} ms a run, {calls:.3f} ms in {counted(len(times.rows), 'call')}; "
        f"median of {counted(times.runs, 'run')}"
    )
    operations, peak = sum(row.call.operations for row in times.rows), nominal_peak(config.num_threads)
    if operations and peak and times.milliseconds:
        rate = operations / times.milliseconds / 1e6
        say(f"{rate:.0f} GFLOP/s of a nominal peak of {peak:.0f} in float32, {100 * rate / peak:.0f}%")
    picture.write(network, config, times)


def _by_layer(times: Profile) -> Table:
    rows = [
        (first_of(row.call.nodes, 2), row.call.kernel, "x".join(map(str, row.call.shape)), *_figures(row, row.call))
        for row in times.rows
    ]
    return _table(("layer", "kernel", "output"), rows)


def _by_kernel(times: Profile) -> Table:
    rows = [(row.kernel, row.family, str(row.calls), *_figures(row, row)) for row in times.by_kernel()]
    return _table(("kernel", "family", "calls"), rows)


def _figures(row: Any, counted_in: Any) -> tuple[str, ...]:
    rate = f"{row.gflops:.0f}" if row.gflops else ""
    return (
        f"{row.milliseconds:.3f}",
        f"{100 * row.share:.1f}",
        rate,
        size(counted_in.nbytes) if counted_in.nbytes else "",
    )


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    from rich.text import Text

    table = plain_table(*names)
    for column in table.columns:
        column.overflow = "fold"
    for name in ("ms", "%", "GFLOP/s", "bytes"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


@click.command()
@model_arguments("[MODEL.onnx|MODEL.om]")
@click.option("-o", "--output", metavar="FILE.html", type=OnePath("the file to write"),
              help="The page to write.  [default: MODEL.html, here]")  # fmt: skip
@click.option("--time", "timed", is_flag=True, help="Time each call in runs of the network, too.")
@data_options
@trace_option
@model_options
def report(path: Path | None, model: Path | None, output: Path | None, trace: Path | None, **options: Any) -> None:
    """Build a model and write what became of each layer as one page, which needs no network.

    It shows the kernel of each layer, which other networks use it, whether it was built or reused and why, when each
    worker compiled what, the memory over the calls, and what has no kernel; with --time how long each call takes.
    """
    model = model_of(path, model)
    picture = Picture(model, output or Path(f"{model.stem}.html"), trace, "output")
    picture.write(*built_and_timed(picture, **options))
