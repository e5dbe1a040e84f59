"""``opbuild cache export`` and ``import``: a cache, or the needs of one model, in one file."""

from __future__ import annotations

from typing import Any

import click

from opbuild.cli.cache_options import json_option, locate, print_json, target_options
from opbuild.cli.echoing import echo
from opbuild.cli.option_values import OnePath
from opbuild.cli.options import unused_threads_option
from opbuild.errors import OptionError
from opbuild.files.writing import same_file, unwritable
from opbuild.frontend.input_shape import parse_input_shape
from opbuild.platform.paths import Path
from opbuild.target.host import compared
from opbuild.text.plural import counted, size


@click.command()
@click.argument("bundle", type=OnePath("the file to write"))
@click.option(
    "--model", metavar="MODEL.onnx", type=OnePath("the path of an ONNX model"), help="Only what this model needs."
)
@click.option("--network", is_flag=True, help="With --model: its stored network and weights too.")
@click.option("--input_shape", metavar="SHAPES", help='With --model: shapes that it leaves open, "data:1,3,224,224".')
@unused_threads_option
@target_options
@json_option
def export(bundle: Path, model: Path | None, network: bool, input_shape: str | None,
           as_json: bool, **place: Any) -> None:  # fmt: skip
    """Write the operators of one level into the file BUNDLE; the same operators give the same bytes.

    Where it is imported, they are found without a compiler: bake it into an image.
    """
    from opbuild.cache.bundling import export_cache, export_model

    if model is None and (network or input_shape):
        raise OptionError("--network and --input_shape are for one model", "give --model")
    if problem := unwritable(bundle):
        raise OptionError(f"the bundle {str(bundle)!r} cannot be written: {problem}", "name another file")
    if model is not None and same_file(model, bundle):
        raise OptionError(f"the bundle {str(bundle)!r} cannot be written: it is the model", "name another file")
    config, level = locate(**place)
    if model is None:
        done = export_cache(bundle, config, level)
    else:
        shapes = parse_input_shape(input_shape) if input_shape else {}
        done = export_model(bundle, model, config, level, input_shapes=shapes, network=network)
    if as_json:
        print_json(done.table(bundle, level))
        return
    for name, why in done.left_out:
        echo(f"left out {name}: {why}")
    networks = f" and {counted(done.networks, 'network')}" if done.networks else ""
    echo(f"{counted(done.operators, 'operator')}{networks} in {bundle}, {size(done.nbytes)}, for {level}")
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
    from opbuild.cache.bundling import import_bundle

    config, level = locate(**place)
    done = import_bundle(bundle, config, level)
    if as_json:
        print_json(done.table())
        return
    for warning in done.warnings:
        echo(f"warning: {warning}", err=True)
    networks = f", {counted(done.networks, 'network')}" if done.networks else ""
    there = f"{done.present} {'was' if done.present == 1 else 'were'} there"
    where = f"in {done.folder}, for {compared(done.level, level)}"
    echo(f"{counted(done.added, 'operator')} added{networks}, {there}, {where}")
