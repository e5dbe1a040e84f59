"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

from opbuild.cli.option_group import option_group
from opbuild.cli.option_values import Whole
from opbuild.frontend.input_shape import parse_input_shape


def _shapes(context: click.Context, option: click.Parameter, text: str | None) -> dict[str, tuple[int, ...]]:
    return {} if text is None else parse_input_shape(text)


model_options = option_group(
    click.option(
        "--input_shape",
        "input_shapes",
        callback=_shapes,
        metavar="SHAPES",
        help='Shapes of the inputs, where the model leaves them open: "data:1,3,224,224;mask:1,128".',
    ),
    click.option(
        "--cache_path",
        metavar="DIR",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder that holds rank_<id>/kernel_meta.  [default: $MS_COMPILER_CACHE_PATH, else here]",
    ),
    click.option(
        "--workers",
        metavar="N",
        type=Whole(1),
        help="Operators compiled at once.  [default: the cores]",
    ),
    click.option(
        "--num_threads",
        metavar="N",
        type=Whole(1, 1024),
        help="Threads that run the network.  [default: the cores]",
    ),
    click.option("--forbid_compile", is_flag=True, default=None, help="Fail rather than compile anything."),
)
"""The options of every command that builds a model: shapes, cache folder, workers, threads, forbidding."""
