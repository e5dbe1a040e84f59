"""``opbuild pull``: the needs of models, or everything, from a store that others share into one's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from opbuild.cli.cache_options import json_option, locate, print_json, target_options
from opbuild.cli.echoing import echo
from opbuild.cli.option_values import OnePath
from opbuild.cli.options import shapes_option
from opbuild.errors import BuildError
from opbuild.platform.paths import Path
from opbuild.text.plural import counted, size, verb

if TYPE_CHECKING:
    from opbuild.cache.sharing import Moved
    from opbuild.target.level import Level


@click.command()
@click.argument("url")
@click.argument("models", metavar="[MODEL.onnx]...", nargs=-1, type=OnePath("the path of an ONNX model"))
@shapes_option
@target_options
@json_option
def pull(url: str, models: tuple[Path, ...], input_shapes: dict[str, tuple[int, ...]], as_json: bool,
         **place: Any) -> None:  # fmt: skip
    """Take what each MODEL needs, or everything for one level, from the store that others share at URL.

    For container images, and for machines without a network: into a folder (--cache_path) that goes there.
    """
    from opbuild.cache.sharing import pull as pull_models

    config, level = locate(**place)
    done = pull_models(url, models, config, level, input_shapes)
    if as_json:
        print_json(done.table(level) | {"warnings": list(done.warnings)})
    else:
        _show(done, level)
    if models and not done.operators + done.networks + done.present:
        needed = ", ".join(str(model) for model in models)
        hint = "send it from where it was built, by 'opbuild push MODEL.onnx URL', or name the level that it is for"
        raise BuildError(f"{url} has nothing that {needed} needs for {level}", hint)
    if done.lacking:
        raise _lacking(url, done.lacking, level)


def _lacking(url: str, models: Sequence[Path], level: Level) -> BuildError:
    """Return the error that networks are not there; the models' other items were taken."""
    whose = ", ".join(map(str, models))
    return BuildError(
        f"{url} has no network of {whose} for {level}",
        "build it where it is to come from, with the same release and shapes, and send it by 'opbuild push MODEL.onnx "
        "URL'; the operators that are there were taken, of which 'opbuild build' makes it",
    )


def _show(done: Moved, level: Level) -> None:
    for warning in done.warnings:
        echo(f"warning: {warning}", err=True)
    reasons: dict[str, list[str]] = {}
    for name, why in done.left_out:
        reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        echo(f"left out {names[0]}{more}: {why}")
    operators = f"{counted(done.operators, 'operator')} and {counted(done.networks, 'network')}"
    if done.records:
        operators = f"{counted(done.records, 'record')} of tuning, {operators}"
    present = f"{counted(done.present, 'operator')} {verb(done.present, 'was', 'were')}"
    echo(f"{operators} taken, {present} here, {size(done.nbytes)} received, for {level}")
