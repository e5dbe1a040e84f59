"""``opbuild report``: a build, and a run of it if asked, as one page."""

from __future__ import annotations

from typing import Any

import click

from opbuild.cli.option_values import OnePath
from opbuild.cli.options import model_arguments, model_of, model_options
from opbuild.cli.picture import Picture, trace_option
from opbuild.cli.timed_model import built_and_timed, data_options
from opbuild.platform.paths import Path


@click.command()
@model_arguments("[MODEL.onnx|MODEL.om]")
@click.option("-o", "--output", metavar="FILE.html", type=OnePath("the file to write"),
              help="The page to write.  [default: MODEL.html, here]")  # fmt: skip
@click.option("--time", "timed", is_flag=True, help="Time each call in runs of the network, too.")
@data_options
@trace_option
@model_options
def report(path: Path | None, model: Path | None, output: Path | None, trace: Path | None, **options: Any) -> None:
    """Build a model and write what became of each layer as one page, which needs no network.

    It shows the kernel of each layer, which other networks use it, whether it was built or reused and why, when each
    worker compiled what, the memory over the calls, and what has no kernel; with --time how long each call takes.
    """
    model = model_of(path, model)
    picture = Picture(model, output or Path(f"{model.stem}.html"), trace, "output")
    picture.write(*built_and_timed(picture, **options))
