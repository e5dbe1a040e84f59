"""Options that several commands share, and how their values are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from opbuild.errors import OptionError

F = TypeVar("F", bound=Callable[..., Any])

SHAPE_FORM = 'name every input with its extents, e.g. --input_shape "data:1,3,224,224;mask:1,128"'


def model_options(function: F) -> F:
    """Add the options of every command that builds a model: shapes, cache folder, workers, threads, forbidding."""
    for option in reversed(
        (
            click.option(
                "--input_shape",
                "input_shapes",
                callback=lambda _context, _option, text: parse_shapes(text),
                metavar="SHAPES",
                default="",
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
                type=click.IntRange(1),
                help="Operators compiled at once.  [default: the cores]",
            ),
            click.option(
                "--num_threads",
                metavar="N",
                type=click.IntRange(1, 1024),
                help="Threads that run the network.  [default: the cores]",
            ),
            click.option("--forbid_compile", is_flag=True, default=None, help="Fail rather than compile anything."),
        )
    ):
        function = option(function)
    return function


def parse_shapes(text: str) -> dict[str, tuple[int, ...]]:
    """Read the value of ``--input_shape``.

    Args:
        text: ``name:extent,extent;name:extent``; a scalar's extents are empty. Names may hold colons.

    Returns:
        The shape of each input named, outermost extent first; empty for an empty text.

    Raises:
        OptionError: If the text is not of that form, or names an input twice.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        name, colon, extents = part.rpartition(":")
        name = name.strip()
        if not colon or not name:
            raise OptionError(f"--input_shape has {part!r}, which names no input", SHAPE_FORM)
        if name in shapes:
            raise OptionError(f"--input_shape names {name!r} twice", SHAPE_FORM)
        shapes[name] = tuple(_extent(name, extent) for extent in extents.split(",")) if extents.strip() else ()
    return shapes


def _extent(name: str, text: str) -> int:
    if not text.strip().isdecimal():
        raise OptionError(
            f"--input_shape gives {name!r} the extent {text.strip()!r}",
            f"extents are whole numbers of at least 0; {SHAPE_FORM}",
        )
    return int(text)
