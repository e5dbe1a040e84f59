"""``opbuild push``: the needs of models, from one's own store to one that others share."""

from __future__ import annotations

from typing import Any

import click

from opbuild.cli.cache_options import json_option, locate, print_json, target_options
from opbuild.cli.echoing import echo
from opbuild.cli.option_values import OnePath
from opbuild.cli.options import shapes_option
from opbuild.platform.paths import Path
from opbuild.text.plural import counted, size, verb


@click.command()
@click.argument("models", metavar="MODEL.onnx...", nargs=-1, required=True, type=OnePath("the path of an ONNX model"))
@click.argument("url")
@shapes_option
@target_options
@json_option
def push(models: tuple[Path, ...], url: str, input_shapes: dict[str, tuple[int, ...]], as_json: bool,
         **place: Any) -> None:  # fmt: skip
    """Write what each MODEL needs to the store that others share at URL: operators, network and weights.

    The models were built before ('opbuild build'). Operators that several need are written once.
    """
    from opbuild.cache.sharing import push as push_models

    config, level = locate(**place)
    done = push_models(models, url, config, level, input_shapes)
    if as_json:
        print_json(done.table(level) | {"replaced": done.replaced})
        return
    for name, why in done.left_out:
        echo(f"left out {name}: {why}")
    operators = f"{counted(done.operators, 'operator')} and {counted(done.networks, 'network')}"
    if done.records:
        operators = f"{counted(done.records, 'record')} of tuning, {operators}"
    present = f"{counted(done.present, 'operator')} {verb(done.present, 'was', 'were')}"
    damaged = f"{counted(done.replaced, 'damaged object')} replaced, " if done.replaced else ""
    echo(f"{operators} written, {present} there, {damaged}{size(done.nbytes)} sent, for {level}")
