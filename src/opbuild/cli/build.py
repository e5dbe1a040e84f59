"""``opbuild build``: a model in, its operators in the store, and a table of them."""

from __future__ import annotations

import time
from typing import Any

import click

from opbuild.cli.options import model_arguments, model_of, model_options
from opbuild.cli.picture import Picture, picture_options
from opbuild.cli.strict import StorageWatch, stored_in
from opbuild.cli.terminal import Terminal
from opbuild.config import Config
from opbuild.platform.paths import Path
from opbuild.text.plural import counted


@click.command()
@model_arguments()
@model_options
@picture_options
@click.option("--strict", is_flag=True, help="Fail, once it is built, if something could not be stored.")
def build(
    path: Path | None,
    model: Path | None,
    input_shapes: dict[str, tuple[int, ...]],
    *,
    strict: bool,
    report: Path | None,
    trace: Path | None,
    **options: Any,
) -> None:
    """Build an ONNX model and show what was built and reused, why, and how long it took.

    What is built stays in your store (--cache_path): building, running or compiling this or another model, from any
    folder, finds it there.
    """
    from opbuild.api import compile as build_network
    from opbuild.cli.progress import build_progress
    from opbuild.cli.run_model import ports_of, require_shapes
    from opbuild.cli.tables import say, show_report

    model = model_of(path, model)
    picture = Picture(model, report, trace)
    with build_progress(Terminal(stderr=True)) as observer:
        started = time.perf_counter()
        watch = StorageWatch(picture.watching(observer))
        network = build_network(model, input_shapes=input_shapes or None, observer=watch, **options)
        seconds = time.perf_counter() - started
    picture.built()
    require_shapes(ports_of(network))
    made = network.report
    show_report(made)
    counts = f"{counted(made.built, 'operator')} built, {made.reused} reused{watch.summary}"
    say(f"{counts}, ready in {seconds:.2f} s")
    config = Config.from_environment(cache_path=options["cache_path"], num_threads=options["num_threads"])
    if place := stored_in(config, watch):
        say(place, soft_wrap=True)
    picture.write(network, config)
    watch.require_stored(strict)
