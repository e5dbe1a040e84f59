"""``opbuild compile``, ``explain`` and ``warm``: models in, what they need in the store, and why it is built."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import click

from opbuild.cli.build_log import StorageWatch, make_warner, stored_in
from opbuild.cli.options import (
    CORES,
    OnePath,
    Whole,
    cache_options,
    json_option,
    known_target,
    levels_option,
    locate,
    model_arguments,
    model_options,
    num_threads_option,
    print_json,
    remote_option,
    sizes_option,
    target_options,
    value_option,
)
from opbuild.cli.picture import Picture, picture_options
from opbuild.cli.recorded import recorded_models, recorded_option
from opbuild.cli.streams import say_older
from opbuild.cli.tables import Terminal, say, show_report
from opbuild.config import Config
from opbuild.events import CompileFinished, Event
from opbuild.frontend.input_shape import parse_open_shape, split_shapes
from opbuild.platform.paths import Path
from opbuild.text.plural import counted


class CompileCommand(click.Command):
    """A command that is ``export`` where an option says so that only this has: once ``export`` had this name."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Read the options of the one or the other command."""
        words = list(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.NoSuchOption as error:
            from opbuild.cli.export import export

            if all(error.option_name not in option.opts for option in export.params):
                raise
            say_older(f"'opbuild compile' with {error.option_name}", "'opbuild export'")
            return export.make_context("export", words, parent, **extra)


@click.command(cls=CompileCommand)
@model_arguments()
@model_options
@value_option("--target", "LEVEL", "The level, or class of devices, to build for, which must run here.", usual="host",
              callback=lambda context, option, text: text if text is None else known_target(text))  # fmt: skip
@picture_options
@click.option("--strict", is_flag=True, help="Fail, once it is built, if something could not be stored.")
def compile(  # noqa: A001  the command's name
    model: Path,
    input_shapes: dict[str, tuple[int, ...]],
    *,
    strict: bool,
    report: Path | None,
    trace: Path | None,
    **options: Any,
) -> None:
    """Build an ONNX model and show what was built and reused, why, and how long it took.

    What is built stays in your store (--cache_path): compiling, running or exporting this or another model, from any
    folder, finds it there. 'opbuild export' writes a file.
    """
    from opbuild.api import compile as build_network
    from opbuild.cli.progress import build_progress
    from opbuild.cli.run_model import ports_of, require_shapes

    picture = Picture(model, report, trace)
    with build_progress(Terminal(stderr=True)) as observer:
        started = time.perf_counter()
        watch = StorageWatch(picture.watching(observer))
        network = build_network(model, input_shapes=input_shapes or None, observer=watch, wait=True, **options)
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


@click.command()
@model_arguments()
@value_option(
    "--shape",
    "SHAPES",
    'Shapes that the model leaves open: "data:1,3,224,224"; 1~640 is a range, as for an .om file.',
    older="--input_shape",
)
@num_threads_option
@target_options
@remote_option
@json_option
def explain(model: Path, shape: str | None, as_json: bool, **place: Any) -> None:
    """Say for each operator of MODEL.onnx whether a build would reuse it, and if not, why.

    The reason is what is wrong with the stored operator, or the first field of the key that differs from the nearest
    one, with both values. Nothing is compiled or written.
    """
    from opbuild.offline.plan import preview

    config, target = locate(**place)
    fixed, ranges = split_shapes(parse_open_shape(shape) if shape else {})
    shapes: Any = {"input_shapes": fixed, "ranges": ranges}
    report = preview(model, target=target, **shapes, config=config, portable=False, observer=make_warner())
    if as_json:
        print_json([{"name": each.name, "reused": each.status != "built", "why": report.why(each),
                     "nodes": list(each.nodes), "level": report.level} for each in report.operators])  # fmt: skip
        return
    show_report(report, planned=True)
    say(f"{counted(report.built, 'operator')} to build, {report.reused} to reuse, level {report.level}")


@click.command()
@click.argument("paths", metavar="MODEL.onnx...", nargs=-1, type=OnePath("the path of a file"))
@sizes_option("--shapes")
@recorded_option
@levels_option("--targets")
@value_option(
    "--executor", "EXECUTOR",
    "Who compiles besides this host: dask://HOST:PORT, dask+tls://HOST:PORT, or processes.",
)  # fmt: skip
@cache_options
@value_option("--workers", "N", "Operators compiled at once here.", Whole(1), CORES)
@remote_option
@click.option("--strict", is_flag=True, help="Fail, once all is built, if something could not be stored.")
def warm(
    paths: tuple[Path, ...],
    shapes: list[dict[str, Any]],
    recorded: Path | None,
    targets: list[str] | None,
    executor: str | None,
    *,
    strict: bool,
    **place: Any,
) -> None:
    """Build everything that models need, for this machine or others, and store it; run none.

    What is built is written to the store that others share, too, if there is one (--remote); what your own store had
    before goes there by 'opbuild push'.

    What is stored already is not built again. The operators of all models are compiled together by the workers of
    --executor; what these do not compile is compiled here.
    """
    from opbuild.cli.executors import executor_named
    from opbuild.cli.progress import build_progress
    from opbuild.offline.warming import warm_models

    models, sizes = recorded_models(paths, recorded, "opbuild warm MODEL.onnx...")
    config = Config.from_environment(**place)
    started = time.perf_counter()
    opened = nullcontext() if executor is None else executor_named(executor, config.workers)
    compiled = 0
    with build_progress(Terminal(stderr=True)) as observer, opened as pool:
        watch = StorageWatch(observer)

        def observe(event: Event) -> None:
            nonlocal compiled
            compiled += isinstance(event, CompileFinished)
            watch(event)

        reports = warm_models(models, config, shapes, targets, recorded=sizes, executor=pool, observer=observe)
    for report in reports:
        say(f"{report.network} for {report.level}: {counted(len(report.operators), 'operator')}")
    count = f"{counted(len(reports), 'network')} warm, {counted(compiled, 'operator')} compiled{watch.summary}"
    say(f"{count} in {time.perf_counter() - started:.2f} s")
    if where := stored_in(config, watch):
        say(where, soft_wrap=True)
    watch.require_stored(strict)
