"""``opbuild warm``: models in, everything that they need in the store."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import click

from opbuild.cli.option_values import FOLDER, OnePath, Whole
from opbuild.cli.options import CORES, cache_path_option, remote_option
from opbuild.cli.strict import StorageWatch, stored_in
from opbuild.cli.terminal import Terminal
from opbuild.config import Config
from opbuild.errors import OptionError
from opbuild.events import CompileFinished, Event
from opbuild.frontend.input_shape import parse_input_shape
from opbuild.platform.paths import Path
from opbuild.text.plural import counted


def _shapes(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> list[dict[str, Any]]:
    return [parse_input_shape(text) for text in texts]


def _levels(context: click.Context, option: click.Parameter, text: str | None) -> list[str] | None:
    return None if text is None else [each.strip() for each in text.split(",")]


@click.command()
@click.argument("paths", metavar="MODEL.onnx...", nargs=-1, type=OnePath("the path of a file"))
@click.option(
    "--shapes",
    metavar="SHAPES",
    multiple=True,
    callback=_shapes,
    help='Shapes that models leave open: "data:1,3,224,224;mask:1,128". Repeat it for more sizes.',
)
@click.option(
    "--targets",
    metavar="LEVEL,LEVEL",
    callback=_levels,
    help="The levels to build for, such as x86-64-v3,x86-64-v4; they need not run here.  [default: host]",
)
@click.option(
    "--executor",
    metavar="EXECUTOR",
    help="Who compiles besides this host: dask://HOST:PORT, dask+tls://HOST:PORT, or processes.",
)
@cache_path_option
@click.option(
    "--op_compiler_cache_dir",
    metavar="DIR",
    type=OnePath(FOLDER, folder=True),
    help="Instead of it: folder with a folder of operators for each level.",
)
@click.option("--workers", metavar="N", type=Whole(1), help=f"Operators compiled at once here.  [default: {CORES}]")
@remote_option
@click.option("--strict", is_flag=True, help="Fail, once all is built, if something could not be stored.")
def warm(
    paths: tuple[Path, ...],
    shapes: list[dict[str, Any]],
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
    from opbuild.cache.warming import warm_models
    from opbuild.cli.executors import executor_named
    from opbuild.cli.progress import build_progress
    from opbuild.cli.tables import say

    if not paths:
        raise OptionError("the models are missing", "give their paths: opbuild warm MODEL.onnx...")
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

        reports = warm_models(paths, config, shapes, targets, executor=pool, observer=observe)
    for report in reports:
        say(f"{report.network} for {report.level}: {counted(len(report.operators), 'operator')}")
    count = f"{counted(len(reports), 'network')} warm, {counted(compiled, 'operator')} compiled{watch.summary}"
    say(f"{count} in {time.perf_counter() - started:.2f} s")
    if where := stored_in(config, watch):
        say(where, soft_wrap=True)
    watch.require_stored(strict)
