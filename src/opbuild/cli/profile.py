"""``opbuild profile`` and ``report``: a built model timed call by call, as a table or as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from opbuild.cli.options import (
    TO_WRITE,
    Whole,
    WordValue,
    input_option,
    model_arguments,
    model_options,
    option_group,
    seed_option,
    value_option,
)
from opbuild.cli.picture import Picture, nominal_peak, picture_options, trace_option
from opbuild.cli.run_model import open_network, read_inputs
from opbuild.cli.tables import output_console, say, text_table
from opbuild.config import CACHE_MODES, Config
from opbuild.platform.files.kinds import OFFLINE, ONNX, kind_of, require_kind
from opbuild.platform.paths import Path
from opbuild.text.plural import counted, first_of, size

if TYPE_CHECKING:
    from rich.table import Table

    from opbuild.runtime.network import Network
    from opbuild.runtime.profile import Profile


data_options = option_group(
    input_option,
    value_option("--runs", "N", "Timed runs; the median counts.", Whole(1), default=10, show_default=True),
    seed_option,
)
"""Options of the arrays that a network is timed with, and of how often."""


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
    """Build a model or load an offline one, and time its calls if that is wanted; arguments as for ``run_model``."""
    model = picture.model
    require_kind(model, OFFLINE if model.suffix == ".om" else ONNX, OFFLINE, ONNX)
    is_built, given = kind_of(model) == OFFLINE, read_inputs(inputs)
    config = Config.from_environment(**settings, op_compiler_cache_mode=CACHE_MODES[2] if is_built else None)

    def is_called(network: Network) -> bool:
        """Return whether a call is needed; it builds parts that are not bound yet: open sizes, and later segments."""
        return timed or not network.bound_inputs or bool(network.report.breaks)

    network, data, *_ = open_network(
        picture, config, given, input_shapes, seed, is_built=is_built, is_called=is_called, opens=True
    )
    return network, config, network.profile(data, runs=runs) if timed else None


@click.command()
@model_arguments("[MODEL.onnx|MODEL.om]")
@value_option("--by", "layer|kernel", "A row for each layer in order, or for each kernel, the slowest first.",
              WordValue(("layer", "kernel")), default="layer", show_default=True)  # fmt: skip
@data_options
@picture_options
@model_options
def profile(model: Path, by: str, report: Path | None, trace: Path | None, **options: Any) -> None:
    """Build a model unless it was, and show how long each of its calls takes.

    Times are medians of runs of the whole network. GFLOP/s are counted for products and convolutions, the latter as
    the direct algorithm computes them.
    """
    picture = Picture(model, report, trace)
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
    return text_table(("layer", "kernel", "output"), rows, _FIGURES)


def _by_kernel(times: Profile) -> Table:
    rows = [(row.kernel, row.family, str(row.calls), *_figures(row, row)) for row in times.by_kernel()]
    return text_table(("kernel", "family", "calls"), rows, _FIGURES)


_FIGURES = ("ms", "%", "GFLOP/s", "bytes")


def _figures(row: Any, counted_in: Any) -> tuple[str, ...]:
    rate = f"{row.gflops:.0f}" if row.gflops else ""
    return (
        f"{row.milliseconds:.3f}",
        f"{100 * row.share:.1f}",
        rate,
        size(counted_in.nbytes) if counted_in.nbytes else "",
    )


@click.command()
@model_arguments("[MODEL.onnx|MODEL.om]")
@value_option("-o --output", "FILE.html", "The page to write.", TO_WRITE, "MODEL.html, here")
@click.option("--time", "timed", is_flag=True, help="Time each call in runs of the network, too.")
@data_options
@trace_option
@model_options
def report(model: Path, output: Path | None, trace: Path | None, **options: Any) -> None:
    """Build a model and write what became of each layer as one page, which needs no network.

    It shows the kernel of each layer, which other networks use it, whether it was built or reused and why, when each
    worker compiled what, the memory over the calls, and what has no kernel; with --time how long each call takes.
    """
    picture = Picture(model, output or Path(f"{model.stem}.html"), trace, "output")
    picture.write(*built_and_timed(picture, **options))
