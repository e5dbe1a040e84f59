"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from opbuild.cli.option_values import FOLDER, OnePath, Whole, remote_url
from opbuild.cli.usage import name_of
from opbuild.errors import OptionError
from opbuild.frontend.input_shape import parse_input_shape
from opbuild.platform.paths import Path

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_PLACE = "$MS_COMPILER_CACHE_PATH, else $XDG_CACHE_HOME/opbuild, else ~/.cache/opbuild"
CORES = "$MS_BUILD_PROCESS_NUM, else the cores, 24 at most"
THREADS = "$OPBUILD_NUM_THREADS, else the cores"


def option_group(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds options; ``--help`` lists them in the order given."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def _shapes(context: click.Context, option: click.Parameter, text: str | None) -> dict[str, tuple[int, ...]]:
    return {} if text is None else parse_input_shape(text)


def one_model(argument: Path | None, option: Path | None) -> Path | None:
    """Return the model, which may be given as an argument or as ``--model``; None if it is not given.

    Raises:
        OptionError: If it is given twice.
    """
    if argument is not None and option is not None:
        raise OptionError(f"the model is given twice: {str(argument)!r} and --model {str(option)!r}", "give it once")
    return option if argument is None else argument


def model_of(argument: Path | None, option: Path | None) -> Path:
    """Return the model, which may be given as an argument or as ``--model``.

    Raises:
        OptionError: If it is given twice, or not at all.
    """
    model = one_model(argument, option)
    if model is None:
        context = click.get_current_context()
        what = next(each for each in context.command.params if isinstance(each, click.Argument))
        raise OptionError("the model is missing", f"give its path: {context.command_path} {name_of(what)}")
    return model


def model_arguments(metavar: str = "[MODEL.onnx]") -> Callable[[F], F]:
    """Return a decorator that adds the model as an argument, ``path``, and as an option, ``model``.

    Args:
        metavar: How ``--help`` shows the argument.
    """
    return option_group(
        click.argument("path", metavar=metavar, required=False, type=OnePath("the path of a file")),
        click.option(
            "--model", metavar="FILE", type=OnePath("the path of a file"), help="The model, instead of the argument."
        ),
    )


cache_path_option = click.option(
    "--cache_path",
    metavar="DIR",
    type=OnePath(FOLDER, folder=True),
    help=f"Folder that holds rank_<id>/, where what was built is stored.  [default: {DEFAULT_PLACE}]",
)

remote_option = click.option(
    "--remote",
    metavar="URL",
    callback=lambda context, option, text: text if text is None else remote_url("remote", text),
    help="A store that others share: redis://, s3://, https://, webdav://, file://.  "
    "[default: $OPBUILD_REMOTE, else op_cache.ini]",
)

unused_threads_option = click.option(
    "--num_threads",
    metavar="N",
    type=Whole(1, 1024),
    expose_value=False,
    help="Without effect: operators and stored networks serve any number of threads.",
)
"""What scripts may still give where nothing is run."""

num_threads_option = click.option(
    "--num_threads",
    metavar="N",
    type=Whole(1, 1024),
    help=f"Threads that run the network.  [default: {THREADS}]",
)

shapes_option = click.option(
    "--input_shape",
    "input_shapes",
    callback=_shapes,
    metavar="SHAPES",
    help='Shapes of the inputs, where the model leaves them open: "data:1,3,224,224;mask:1,128".',
)

model_options = option_group(
    shapes_option,
    cache_path_option,
    click.option(
        "--workers",
        metavar="N",
        type=Whole(1),
        help=f"Operators compiled at once.  [default: {CORES}]",
    ),
    num_threads_option,
    click.option(
        "--forbid_compile",
        is_flag=True,
        default=None,
        help="Fail rather than compile anything.  [default: $OPBUILD_FORBID_COMPILE]",
    ),
    remote_option,
)
"""The options of every command that builds a model: shapes, cache folder, workers, threads, forbidding."""
