"""``opbuild explain``: for each operator of a model, whether it would be reused, and if not, why."""

from __future__ import annotations

from typing import Any

import click

from opbuild.cli.cache_options import json_option, locate, print_json, target_options
from opbuild.cli.options import model_arguments, model_of, num_threads_option, remote_option
from opbuild.frontend.input_shape import parse_open_shape, split_shapes
from opbuild.platform.paths import Path
from opbuild.text.plural import counted


@click.command()
@model_arguments()
@click.option(
    "--input_shape",
    metavar="SHAPES",
    help='Shapes that the model leaves open: "data:1,3,224,224"; 1~640 is a range, as for an .om file.',
)
@num_threads_option
@target_options
@remote_option
@json_option
def explain(path: Path | None, model: Path | None, input_shape: str | None, as_json: bool,
            **place: Any) -> None:  # fmt: skip
    """Say for each operator of MODEL.onnx whether a build would reuse it, and if not, why.

    The reason is what is wrong with the stored operator, or the first field of the key that differs from the nearest
    one, with both values. Nothing is compiled or written.
    """
    from opbuild.cli.build_log import make_warner
    from opbuild.cli.tables import say, show_report
    from opbuild.offline.preview import preview

    model = model_of(path, model)
    config, level = locate(**place)
    fixed, ranges = split_shapes(parse_open_shape(input_shape) if input_shape else {})
    shapes: Any = {"input_shapes": fixed, "ranges": ranges}
    report = preview(model, soc_version=level.name, **shapes, config=config, portable=False, observer=make_warner())
    if as_json:
        print_json([{"name": each.name, "reused": each.status != "built", "why": report.why(each),
                     "nodes": list(each.nodes), "level": report.level} for each in report.operators])  # fmt: skip
        return
    show_report(report, planned=True)
    say(f"{counted(report.built, 'operator')} to build, {report.reused} to reuse, level {report.level}")
