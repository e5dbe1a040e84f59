"""``opbuild build``: a model in, its operators in the store, and a table of what was done."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from opbuild.cli.options import model_options
from opbuild.cli.strict import StorageWatch
from opbuild.plural import counted


@click.command()
@click.argument("model", metavar="MODEL.onnx", type=click.Path(path_type=Path))
@model_options
@click.option("--strict", is_flag=True, help="Fail, once it is built, if something could not be stored.")
def build(model: Path, input_shapes: dict[str, tuple[int, ...]], *, strict: bool, **options: Any) -> None:
    """Build an ONNX model and show what was built and reused, why, and how long it took.

    What is built stays in the cache folder: running or building this or another model finds it there.
    """
    from opbuild.api import compile as build_network
    from opbuild.cli.progress import build_progress
    from opbuild.cli.run_model import require_shapes
    from opbuild.cli.tables import operators_table, output_console

    with build_progress(Console(stderr=True)) as observer:
        started = time.perf_counter()
        watch = StorageWatch(observer)
        network = build_network(model, input_shapes=input_shapes or None, observer=watch, **options)
        seconds = time.perf_counter() - started
    require_shapes(network)
    report = network.report
    console = output_console()
    if report.operators:
        console.print(operators_table(report))
    for name, count in sorted(report.host.items()):
        console.print(f"no kernel yet, runs on the host: {count} x {name}", highlight=False, markup=False)
    counts = f"{counted(report.built, 'operator')} built, {report.reused} reused{watch.summary}"
    console.print(f"{counts}, ready in {seconds:.2f} s", highlight=False)
    watch.require_stored(strict)
