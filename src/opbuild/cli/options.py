"""Options that several commands share, the kinds of values that they take, which cache they mean, and their errors."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from opbuild.cli.streams import echo, name_of, say_older
from opbuild.errors import OptionError
from opbuild.frontend.input_shape import parse_input_shape
from opbuild.platform.files.kinds import require_kind
from opbuild.platform.files.writing import same_file, unwritable
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass, field, replace

if TYPE_CHECKING:
    from opbuild.config import Config
    from opbuild.target.level import BuildTarget


FOLDER = "a folder, which is made if it is missing"

EMPTY, MISSING, DEPENDENT, CONFLICTING = "E10004", "E10007", "E10057", "E10056"
NO_FILE, REFUSED, BAD_VALUE = "E10410", "E10055", "E10001"
"""ATC's codes: an option has no value, is missing, lacks the one that gives it a meaning, or excludes another; its file
does not exist; ATC has the option or value, and opbuild does not serve it; its value is not allowed."""

_BAD_VALUES = {"framework": "E10007", "log": "E10010"}
"""Codes of bad values of options that have one of their own."""


class CommandLineError(OptionError):
    """An option on the command line is at fault; ``code`` is ATC's for that."""

    code = BAD_VALUE


def wrong(code: str, message: str, hint: str) -> CommandLineError:
    """Return the error for options of which something is wrong that has one of the codes above."""
    error = CommandLineError(message, hint)
    error.code = code
    return error


def bad_value(option: str, value: object, allowed: str) -> CommandLineError:
    """Return the error for a value that an option, named without dashes, does not take; it takes ``allowed``."""
    return wrong(_BAD_VALUES.get(option, BAD_VALUE), f"--{option} is {str(value)!r}", allowed)


def required(option: str, text: str, allowed: str) -> str:
    """Return the value of an option that must not be blank; ``allowed`` says which are right."""
    if not text.strip():
        raise wrong(EMPTY, f"--{option} is empty", allowed)
    return text


def remote_url(option: str, text: str) -> str:
    """Return the URL of a remote store; a password in a wrong one is not shown."""
    from opbuild.store.remote.address import parse_address

    required(option, text, "it must be a URL such as redis://host")
    try:
        parse_address(f"--{option}", text)
    except OptionError as error:
        raise wrong(BAD_VALUE, error.message, error.hint) from None
    return text


def known_target(text: str) -> str:
    """Return the name of a target, which must be one of those that there are."""
    from opbuild.target.host import resolve_target

    resolve_target(text)
    return text


class OptionValue(click.ParamType):  # type: ignore[type-arg]  # older releases of click have no such argument
    """The type of an option's value, here and for click: a wrong value is an error that says which are right."""

    name = "value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value that a text is, or raise as ``read`` does."""
        name = name_of(param).lstrip("-") if param is not None else ""
        return self.read(name, value) if isinstance(value, str) else value

    def read(self, option: str, text: str) -> Any:
        """Return the value that a text is, or raise a ``CommandLineError``."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class WordValue(OptionValue):
    """One of some words; ``refused`` are those that ATC has and opbuild does not serve, with what to do instead."""

    allowed: Sequence[str]
    refused: Mapping[str, str] = field(default_factory=dict)

    def read(self, option: str, text: str) -> str:
        """Return the word."""
        must = f"it must be {_alternatives_text(self.allowed)}"
        if text in self.allowed:
            return text
        required(option, text, must)
        raise bad_value(option, text, f"{must}; {self.refused[text]}" if text in self.refused else must)


@dataclass(frozen=True, eq=False)
class Whole(OptionValue):
    """A whole number in a range, which may have no end."""

    least: int
    greatest: int | None = None

    def read(self, option: str, text: str) -> int:
        """Return the number."""
        limits = f"from {self.least} to {self.greatest}" if self.greatest is not None else f"of at least {self.least}"
        must = f"it must be an integer {limits}"
        required(option, text, must)
        value = int(text) if re.fullmatch(r"\s*-?[0-9]{1,18}\s*", text) else self.least - 1
        if value < self.least or (self.greatest is not None and value > self.greatest):
            raise bad_value(option, text, must)
        return value


@dataclass(frozen=True, eq=False)
class OnePath(OptionValue):
    """A path of ``what``, or of a folder that can be made; an empty one is an error, and not the working folder."""

    what: str
    folder: bool = False

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path; an argument is called as ``--help`` shows it."""
        if isinstance(param, click.Argument) and isinstance(value, str) and not value.strip():
            raise wrong(EMPTY, f"{name_of(param)} is empty", f"it must be {self.what}")
        return Path(value) if isinstance(param, click.Argument) else super().convert(value, param, ctx)

    def read(self, option: str, text: str) -> Path:
        """Return the path."""
        return (folder if self.folder else path)(option, text, self.what)


def folder(option: str, text: str, what: str = FOLDER) -> Path:
    """Return the path of a folder, which need not be there, but nothing else may."""
    found = path(option, text, what)
    if os.path.exists(found) and not os.path.isdir(found):  # noqa: PTH110,PTH112  pathlib's may raise
        raise bad_value(option, text, f"it must be {what}")
    return found


def path(option: str, text: str, what: str) -> Path:
    """Return the path that a text is, neither empty nor impossible; ``what`` says what the option takes."""
    if "\0" in required(option, text, f"it must be {what}"):
        raise bad_value(option, text, f"it must be {what}")
    return Path(text)


def input_file(option: str, text: str, *kinds: str) -> Path:
    """Return the path of a file that is there and is of one of some kinds (``platform.files.kinds``)."""
    found = path(option, text, f"the path of {kinds[0]}")
    require_kind(found, *kinds)
    return found


def existing_file(option: str, text: str, what: str) -> Path:
    """Return the path of a file that is there."""
    found = path(option, text, what)
    if found.is_file():
        return found
    if found.is_dir():
        raise bad_value(option, text, f"it must be {what}, and this is a folder")
    raise wrong(NO_FILE, f"--{option} is {text!r}, and there is no such file", f"it must be {what}")


def new_file(option: str, text: str, what: str, suffix: str = "") -> Path:
    """Return the path of a file that can be written; ``suffix`` is added to its name later, unless it is there."""
    found = path(option, text, what)
    place = found if found.name.endswith(suffix) or not found.name else found.with_name(found.name + suffix)
    is_folder = text.endswith("/") or os.path.isdir(found)  # noqa: PTH112  pathlib's may raise
    problem = "it is a folder" if is_folder else unwritable(place, in_place=not suffix)
    if problem:
        raise bad_value(option, text, f"it must be {what} in a folder that you may write to, and {problem}")
    return found


def require_writable(what: str, path: Path, read: Iterable[Path] = ()) -> None:
    """Refuse a file that cannot be written, or that is a model which is read."""
    problem = unwritable(path) or ("it is the model" if any(same_file(each, path) for each in read) else "")
    if problem:
        raise OptionError(f"{what} {str(path)!r} cannot be written: {problem}", "name another file")


def _alternatives_text(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} or {values[-1]}"


F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_PLACE = "$OPBUILD_CACHE, else $MS_COMPILER_CACHE_PATH, else $XDG_CACHE_HOME/opbuild, else ~/.cache/opbuild"
CORES = "$MS_BUILD_PROCESS_NUM, else the cores, 24 at most"
THREADS = "$OPBUILD_NUM_THREADS, else the cores"


def option_group(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds options; ``--help`` lists them in the order given."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def one_model(argument: Path | None, option: Path | None) -> Path | None:
    """Return the model, which may be given as an argument or as ``--model``, not both; None if it is not given."""
    if argument is not None and option is not None:
        raise OptionError(f"the model is given twice: {str(argument)!r} and --model {str(option)!r}", "give it once")
    return option if argument is None else argument


def _model_of(argument: Path | None, option: Path | None) -> Path:
    """Return the model, which must be given as an argument or as ``--model``."""
    model = one_model(argument, option)
    if model is None:
        context = click.get_current_context()
        what = next(each for each in context.command.params if isinstance(each, click.Argument))
        raise OptionError("the model is missing", f"give its path: {context.command_path} {name_of(what)}")
    return model


def model_arguments(metavar: str = "[MODEL.onnx]") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the model, an argument or an option; the function gets its path first."""
    file = OnePath("the path of a file")
    options = option_group(
        click.argument("path", metavar=metavar, required=False, type=file),
        value_option("--model", "FILE", "The model, instead of the argument.", file),
    )

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def given(path: Path | None, model: Path | None, **more: Any) -> Any:
            return function(_model_of(path, model), **more)

        return options(given)

    return add


class RenamedOption(click.Option):
    """An option that had other names: they go on working, ``--help`` does not show them, and who uses one is told."""

    def __init__(self, *args: Any, older: Sequence[str], **more: Any) -> None:
        super().__init__(*args, **more)
        self.older = older

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let the parser keep the value of each older name under that."""
        super().add_to_parser(parser, ctx)
        for each in self.older:
            parser.add_option(self, [each], each, action="append" if self.multiple else "store")

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Take the values of older names for those of the option."""
        given, name = dict(opts), str(self.name)
        for older in self.older:
            if (value := given.get(older)) is None:
                continue
            say_older(older, name_of(self))
            if self.multiple:
                value = [*given.get(name, ()), *value]
            elif given.get(name) is not None:
                raise OptionError(f"{name_of(self)} is given twice, once as {older}", "give it once")
            given[name] = value
        return super().handle_parse_result(ctx, given, args)


def value_option(
    names: str,
    metavar: str,
    text: str,
    type_: OptionValue | None = None,
    usual: str = "",
    *,
    older: str = "",
    **more: Any,
) -> Callable[[F], F]:
    """Return an option that takes a value; ``usual`` describes its default.

    Its names are its spellings and, if that has another, the command's argument, with blanks between; ``older`` are
    spellings that it had.
    """
    shown = f"{text}  [default: {usual}]" if usual else text
    renamed: dict[str, Any] = {"cls": RenamedOption, "older": older.split()} if older else {}
    return click.option(*names.split(), metavar=metavar, help=shown, type=type_, **renamed, **more)


TO_WRITE = OnePath("the file to write")

input_option = value_option(
    "--input inputs", "NAME=FILE.npy", "Data of one input; the others get random numbers.  [repeatable]", multiple=True
)
seed_option = value_option("--seed", "N", "Seed of the random inputs.", Whole(0), default=0, show_default=True)
workers_option = value_option("--workers", "N", "Operators compiled at once.", Whole(1), CORES)
cache_path_option = value_option(
    "--cache_path", "DIR", "Folder that holds rank_<id>/, where what was built is stored.",
    OnePath(FOLDER, folder=True), DEFAULT_PLACE,
)  # fmt: skip
remote_option = value_option(
    "--remote", "URL", "A store that others share: redis://, s3://, https://, webdav://, file://.",
    usual="$OPBUILD_REMOTE, else op_cache.ini",
    callback=lambda context, option, text: text if text is None else remote_url("remote", text),
)  # fmt: skip
unused_threads_option = value_option(
    "--num_threads", "N", "Without effect: operators and stored networks serve any number of threads.", Whole(1, 1024),
    expose_value=False,
)  # fmt: skip
"""What scripts may still give where nothing is run."""
num_threads_option = value_option("--num_threads", "N", "Threads that run the network.", Whole(1, 1024), THREADS)
shapes_option = value_option(
    "--shape input_shapes", "SHAPES",
    'Shapes of the inputs, where the model leaves them open: "data:1,3,224,224;mask:1,128".', older="--input_shape",
    callback=lambda context, option, text: {} if text is None else parse_input_shape(text),
)  # fmt: skip


def sizes_option(older: str = "") -> Callable[[F], F]:
    """Return the option for several sizes of inputs that several models leave open."""
    return value_option(
        "--shape shapes", "SHAPES",
        'Shapes that models leave open: "data:1,3,224,224;mask:1,128". Repeat it for more sizes.', multiple=True,
        older=older,
        callback=lambda context, option, texts: [parse_input_shape(text) for text in texts],
    )  # fmt: skip


def levels_option(older: str = "") -> Callable[[F], F]:
    """Return the option for several levels."""
    return value_option(
        "--target targets", "TARGET,TARGET",
        "The levels and classes of devices to build for, such as x86-64-v3,cuda; they need not be here.",
        usual="host", older=older,
        callback=lambda context, option, text: None if text is None else [each.strip() for each in text.split(",")],
    )  # fmt: skip


model_options = option_group(
    shapes_option,
    cache_path_option,
    workers_option,
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


_SIZES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


cache_options = option_group(
    cache_path_option,
    value_option(
        "--op_compiler_cache_dir", "DIR",
        "Instead of it: folder with a folder of operators for each level, as 'opbuild atc' has it.",
        OnePath(FOLDER, folder=True),
    ),
)  # fmt: skip
"""The options that say which cache is meant."""

place_options = option_group(
    cache_options,
    value_option(
        "--target", "LEVEL", "Whose folder in --op_compiler_cache_dir is meant, which has one for each level.",
        usual="host", older="--soc_version",
    ),
)  # fmt: skip
"""The same, for commands that see everything in a folder."""

target_options = option_group(
    cache_options,
    value_option("--target", "LEVEL", "The level: x86-64-v3, ...", usual="host", older="--soc_version"),
)
"""The same, for commands that are for one level."""


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def locate(
    cache_path: Path | None, op_compiler_cache_dir: Path | None, target: str | None, **more: Any
) -> tuple[Config, BuildTarget]:
    """Return the settings of a cache, and the target that the options name, or this machine's level."""
    from opbuild.config import Config
    from opbuild.target.host import resolve_target

    if cache_path is not None and op_compiler_cache_dir is not None:
        raise OptionError("--cache_path and --op_compiler_cache_dir name two caches", "give one of them")
    found = resolve_target(target or "host")
    config = Config.from_environment(cache_path=cache_path, op_compiler_cache_dir=op_compiler_cache_dir, **more)
    return replace(config, soc_version=found.level.name), found


def locate_place(target: str | None, **place: Path | None) -> Config:
    """Return the settings of a cache, for commands that see everything in a folder; tell of items in other places."""
    config, level = locate(target=target, **place)
    folders = config.op_compiler_cache_dir
    if target not in (None, level.name) and folders is not None and (folders / str(target)).is_dir():
        config = replace(config, soc_version=target)  # what a release without levels stored
    if target is not None and config.op_compiler_cache_dir is None:
        raise OptionError(
            f"--target is {target!r}, and {config.cache_folder} is for all levels together",
            "leave it out, or name a folder that has one for each level: --op_compiler_cache_dir",
        )
    if config.warnings:
        from opbuild.cli.build_log import make_warner
        from opbuild.events import tell_of_environment

        tell_of_environment(config.warnings, make_warner())
    elsewhere = ""
    if not any(place.values()):
        elsewhere = _other_places(config)
    elif target is None and config.op_compiler_cache_dir is not None:
        elsewhere = _other_levels(config)
    if elsewhere:  # said once the command is done
        click.get_current_context().call_on_close(lambda: _echo_on_success(f"more is stored in {elsewhere}"))
    return config


def _other_places(config: Config) -> str:
    """Return the other known places that hold something, and how to see them."""
    import shlex

    from opbuild.config import atc_cache

    places, atc = [], atc_cache()
    with suppress(OSError):
        ranks = sorted({path.parents[1] for path in Path().glob("rank_*/kernel_meta/*")})
        if any(not same_file(rank, config.cache_folder) for rank in ranks):
            places.append(f"./{ranks[0]} (--cache_path .)")
        if any(atc.glob("*/*.o")):
            places.append(f"{atc} (--op_compiler_cache_dir {shlex.quote(str(atc))})")
    return " and ".join(places)


def _other_levels(config: Config) -> str:
    """Return the other levels for which the folder holds something; old names too."""
    others = []
    with suppress(OSError):
        folders = sorted(config.cache_folder.parent.iterdir())
        others = [each.name for each in folders if each.name != config.cache_folder.name and any(each.glob("*.o"))]
    return f"{config.cache_folder.parent} for --target {', '.join(others)}" if others else ""


def _echo_on_success(line: str) -> None:
    if sys.exc_info()[0] is None:  # an error, or what an interrupted command said, stays the last line
        echo(line, err=True)


def read_size(text: str | None) -> int | None:
    """Return the bytes that ``--max_size`` names."""
    must = "it must be a number of bytes, or one with K, M, G or T: 500M"
    return _read("max_size", text, r"(\d{1,15})([kmgtKMGT]?)(?:[iI]?[bB])?", _SIZES, must)


def read_span(text: str | None, option: str = "older_than", example: str = "30d") -> float | None:
    """Return the seconds that an option names."""
    return _read(option, text, r"(\d{1,9})([smhdw])", _SPANS, f"it must be a number with s, m, h, d or w: {example}")


def _read(option: str, text: str | None, form: str, units: Mapping[str, int], must: str) -> int | None:
    if text is None:
        return None
    match = re.fullmatch(form, text.strip())
    if match is None:
        raise OptionError(f"--{option} is {text!r}", must)
    return int(match[1]) * units[match[2].lower()]


def span(seconds: float) -> str:
    """Return a span of time for people."""
    for unit, factor in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= factor:
            return f"{seconds / factor:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    echo(json.dumps(value, indent=2))


def given_options(names: Iterable[str]) -> list[str]:
    """Return the options that stand on the command line, of those with some arguments, as they are spelled there."""
    context = click.get_current_context()
    spelled = {each.name: each.opts[0] for each in context.command.params}
    given = (name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE)
    return [spelled[name] for name in given]
