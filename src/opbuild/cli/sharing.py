"""``opbuild push``, ``pull``, ``cache export`` and ``cache import``: the needs of models, to other stores and files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from opbuild.cli.options import (
    TO_WRITE,
    OnePath,
    json_option,
    locate,
    print_json,
    require_writable,
    shapes_option,
    target_options,
    unused_threads_option,
    value_option,
)
from opbuild.cli.streams import echo
from opbuild.errors import BuildError, OptionError
from opbuild.frontend.input_shape import parse_input_shape
from opbuild.platform.paths import Path
from opbuild.platform.records import replace
from opbuild.target.host import compared
from opbuild.text.plural import counted, first_of, size, verb

if TYPE_CHECKING:
    from opbuild.cli.store.transfers import Transfer
    from opbuild.target.level import BuildTarget


_SHARED = ("operators", "present", "networks", "records", "left_out", "bytes", "target")
"""Columns of ``push`` and ``pull``."""


@click.command()
@click.argument("models", metavar="MODEL.onnx...", nargs=-1, type=OnePath("the path of an ONNX model"))
@click.argument("url")
@shapes_option
@target_options
@json_option
def push(models: tuple[Path, ...], url: str, input_shapes: dict[str, tuple[int, ...]], as_json: bool,
         **place: Any) -> None:  # fmt: skip
    """Write what each MODEL needs to the store that others share at URL: operators, network and weights.

    The models were built before ('opbuild compile'). Operators that several need are written once.
    """
    from opbuild.cli.store.sharing import push as push_models

    if not models:
        raise OptionError("the model or the URL is missing", "give both: opbuild push MODEL.onnx... URL")
    config, target = locate(**place)
    done = push_models(models, url, config, target, input_shapes)
    if as_json:
        print_json(done.table(*_SHARED, "replaced"))
        return
    for name, why in done.left_out:
        echo(f"left out {name}: {why}")
    damaged = f"{counted(done.replaced, 'damaged object')} replaced, " if done.replaced else ""
    echo(f"{_counts_text(done, 'written')} there, {damaged}{size(done.nbytes)} sent, for {target}")


def _counts_text(done: Transfer, how: str) -> str:
    """Return the numbers of items that were moved, and of operators that were there."""
    records = f"{counted(done.records, 'record')} of tuning, " if done.records else ""
    moved = f"{records}{counted(done.operators, 'operator')} and {counted(done.networks, 'network')} {how}"
    return f"{moved}, {counted(done.present, 'operator')} {verb(done.present, 'was', 'were')}"


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
    from opbuild.cli.store.sharing import pull as pull_models

    config, target = locate(**place)
    done = pull_models(url, models, config, target, input_shapes)
    if as_json:
        print_json(done.table(*_SHARED, "warnings"))
    else:
        _show(done, target)
    if models and not done.operators + done.networks + done.present:
        needed = ", ".join(str(model) for model in models)
        hint = "send it from where it was built, by 'opbuild push MODEL.onnx URL', or name the level that it is for"
        raise BuildError(f"{url} has nothing that {needed} needs for {target}", hint)
    if done.lacking:
        raise _missing_error(url, done.lacking, target)


def _missing_error(url: str, models: Sequence[Path], target: BuildTarget) -> BuildError:
    """Return the error that networks are not there; the models' other items were taken."""
    whose = ", ".join(map(str, models))
    return BuildError(
        f"{url} has no network of {whose} for {target}",
        "build it where it is to come from, with the same release and shapes, and send it by 'opbuild push MODEL.onnx "
        "URL'; the operators that are there were taken, of which 'opbuild compile' makes it",
    )


def _show(done: Transfer, target: BuildTarget) -> None:
    for warning in done.warnings:
        echo(f"warning: {warning}", err=True)
    reasons: dict[str, list[str]] = {}
    for name, why in done.left_out:
        reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        echo(f"left out {first_of(names, 1)}: {why}")
    echo(f"{_counts_text(done, 'taken')} here, {size(done.nbytes)} received, for {target}")


@click.command()
@click.argument("bundle", type=TO_WRITE)
@value_option("--model", "MODEL.onnx", "Only what this model needs.", OnePath("the path of an ONNX model"))
@click.option("--network", is_flag=True, help="With --model: its stored network and weights too.")
@value_option(
    "--shape", "SHAPES", 'With --model: shapes that it leaves open, "data:1,3,224,224".', older="--input_shape"
)
@unused_threads_option
@target_options
@json_option
def export(bundle: Path, model: Path | None, network: bool, shape: str | None,
           as_json: bool, **place: Any) -> None:  # fmt: skip
    """Write the operators of one level into the file BUNDLE; the same operators give the same bytes.

    Where it is imported, they are found without a compiler: bake it into an image.
    """
    from opbuild.cli.store.bundling import export_cache, export_model

    if model is None and (network or shape):
        raise OptionError("--network and --shape are for one model", "give --model")
    require_writable("the bundle", bundle, [] if model is None else [model])
    config, target = locate(**place)
    if model is None:
        done = export_cache(bundle, config, target)
    else:
        shapes = parse_input_shape(shape) if shape else {}
        done = export_model(bundle, model, config, target, input_shapes=shapes, network=network)
    if as_json:
        print_json({"bundle": str(bundle), **done.table("target", "operators", "networks", "bytes", "left_out")})
        return
    for name, why in done.left_out:
        echo(f"left out {name}: {why}")
    networks = f" and {counted(done.networks, 'network')}" if done.networks else ""
    echo(f"{counted(done.operators, 'operator')}{networks} in {bundle}, {size(done.nbytes)}, for {target}")
    for other, number in sorted(done.others.items()):
        echo(f"not exported: {counted(number, 'operator')} for {other}")


@click.command("import")
@click.argument("bundle", type=OnePath("a file that 'opbuild cache export' wrote"))
@target_options
@json_option
def import_(bundle: Path, as_json: bool, **place: Any) -> None:
    """Put what BUNDLE holds into the cache.

    It is checked whole first: if it is for a higher level or another architecture, or anything in it is not what was
    exported, nothing is imported.
    """
    from opbuild.cli.store.bundling import import_bundle

    config, target = locate(**place)
    done = import_bundle(bundle, config, target)
    if as_json:
        print_json(done.table("added", "present", "networks", "target", "warnings"))
        return
    for warning in done.warnings:
        echo(f"warning: {warning}", err=True)
    networks = f", {counted(done.networks, 'network')}" if done.networks else ""
    folder = replace(config, soc_version=done.target.level.name).cache_folder
    there = f"{done.present} {'was' if done.present == 1 else 'were'} there"
    where = f"in {folder}, for {compared(done.target, target.level)}"
    echo(f"{counted(done.operators, 'operator')} added{networks}, {there}, {where}")
