"""``opbuild profile``: how long each call of a network takes, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import click

from opbuild.cli.option_values import WordValue
from opbuild.cli.options import model_arguments, model_of, model_options
from opbuild.cli.picture import Picture, nominal_peak, picture_options
from opbuild.cli.timed_model import built_and_timed, data_options
from opbuild.platform.paths import Path
from opbuild.text.plural import counted, first_of, size

if TYPE_CHECKING:
    from rich.table import Table

    from opbuild.runtime.profile import Profile


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
    from opbuild.cli.tables import output_console, say

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

    from opbuild.cli.tables import plain_table

    table = plain_table(*names)
    for column in table.columns:
        column.overflow = "fold"
    for name in ("ms", "%", "GFLOP/s", "bytes"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    return table
