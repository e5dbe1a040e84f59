"""Values of ``opbuild compile`` and ``opbuild atc``: the kinds of each option, and errors that say so in one line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from opbuild.cli.usage import name_of
from opbuild.errors import OptionError
from opbuild.files.kinds import require_kind
from opbuild.files.writing import unwritable
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass, field

FOLDER = "a folder, which is made if it is missing"


EMPTY, MISSING, DEPENDENT, CONFLICTING = "E10004", "E10007", "E10057", "E10056"
NO_FILE, REFUSED, BAD_VALUE = "E10410", "E10055", "E10001"
"""ATC's codes: an option has no value, is missing, lacks the one that gives it a meaning, or excludes another; its file
does not exist; ATC has the option or value, and opbuild does not serve it; its value is not allowed."""

_BAD_VALUES = {"framework": "E10007", "log": "E10010"}
"""Codes of bad values of options that have one of their own."""


class CommandLineError(OptionError):
    """An option on the command line is at fault.

    Attributes:
        code: ATC's code of what is wrong.
    """

    code = BAD_VALUE


def wrong(code: str, message: str, hint: str) -> CommandLineError:
    """Return the error for options of which something is wrong that has one of the codes above."""
    error = CommandLineError(message, hint)
    error.code = code
    return error


def bad_value(option: str, value: object, allowed: str) -> CommandLineError:
    """Return the error for a value that an option does not take.

    Args:
        option: The option's name without dashes.
        value: What was given.
        allowed: What the option takes, after "it must be" or as a whole clause.
    """
    return wrong(_BAD_VALUES.get(option, BAD_VALUE), f"--{option} is {str(value)!r}", allowed)


def required(option: str, text: str, allowed: str) -> str:
    """Return the value of an option that must have one; ``allowed`` says which are right.

    Raises:
        CommandLineError: If it is blank.
    """
    if not text.strip():
        raise wrong(EMPTY, f"--{option} is empty", allowed)
    return text


def remote_url(option: str, text: str) -> str:
    """Return the URL of a remote store.

    Raises:
        CommandLineError: If it is none; a password in it is not shown.
    """
    from opbuild.store.remote.address import parse_address

    required(option, text, "it must be a URL such as redis://host")
    try:
        parse_address(f"--{option}", text)
    except OptionError as error:
        raise wrong(BAD_VALUE, error.message, error.hint) from None
    return text


class OptionValue(click.ParamType):  # type: ignore[type-arg]  # older releases of click have no such argument
    """The type of an option's value, here and for click: a wrong value is an error that says which are right.

    Attributes:
        name: What click calls it.
    """

    name = "value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value.

        Raises:
            CommandLineError: If it is not allowed.
        """
        name = name_of(param).lstrip("-") if param is not None else ""
        return self.read(name, value) if isinstance(value, str) else value

    def read(self, option: str, text: str) -> Any:
        """Return the value that a text is, or raise as ``convert`` does."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class WordValue(OptionValue):
    """One of some words.

    Attributes:
        allowed: The words.
        refused: Values that ATC has and opbuild does not serve, with what to do instead.
    """

    allowed: Sequence[str]
    refused: Mapping[str, str] = field(default_factory=dict)

    def read(self, option: str, text: str) -> str:
        """Return the word."""
        must = f"it must be {_either(self.allowed)}"
        if text in self.allowed:
            return text
        required(option, text, must)
        raise bad_value(option, text, f"{must}; {self.refused[text]}" if text in self.refused else must)


@dataclass(frozen=True, eq=False)
class Whole(OptionValue):
    """A whole number in a range.

    Attributes:
        least: The least.
        greatest: The greatest; None: there is none.
    """

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
    """A path; an empty one is an error, and not the working folder.

    Attributes:
        what: What it is the path of, after "it must be".
        folder: Whether it must be a folder, or what can be made one.
    """

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
    """Return the path of a folder, which need not be there.

    Raises:
        CommandLineError: If it is empty, or something else is there.
    """
    found = path(option, text, what)
    if os.path.exists(found) and not os.path.isdir(found):  # noqa: PTH110,PTH112  pathlib's may raise
        raise bad_value(option, text, f"it must be {what}")
    return found


def path(option: str, text: str, what: str) -> Path:
    """Return a path.

    Args:
        option: The option's name.
        text: The value.
        what: What the option takes, e.g. ``the path of an ONNX model``.

    Raises:
        CommandLineError: If it is empty, or no path can be so.
    """
    if "\0" in required(option, text, f"it must be {what}"):
        raise bad_value(option, text, f"it must be {what}")
    return Path(text)


def input_file(option: str, text: str, *kinds: str) -> Path:
    """Return the path of a file of some kind.

    Args:
        option: The option's name.
        text: The value.
        kinds: What it may be, of ``kernel.file_kinds``.

    Raises:
        CommandLineError, FileError: If there is none.
    """
    found = path(option, text, f"the path of {kinds[0]}")
    require_kind(found, *kinds)
    return found


def existing_file(option: str, text: str, what: str) -> Path:
    """Return the path of a file.

    Raises:
        CommandLineError: If there is none.
    """
    found = path(option, text, what)
    if found.is_file():
        return found
    if found.is_dir():
        raise bad_value(option, text, f"it must be {what}, and this is a folder")
    raise wrong(NO_FILE, f"--{option} is {text!r}, and there is no such file", f"it must be {what}")


def new_file(option: str, text: str, what: str, suffix: str = "") -> Path:
    """Return the path of a file that can be written.

    Args:
        option: The option's name.
        text: The value.
        what: What the option takes, e.g. ``the JSON file to write``.
        suffix: What is added to the name, unless it is there.

    Raises:
        CommandLineError: If none can be written there.
    """
    found = path(option, text, what)
    place = found if found.name.endswith(suffix) or not found.name else found.with_name(found.name + suffix)
    is_folder = text.endswith("/") or os.path.isdir(found)  # noqa: PTH112  pathlib's may raise
    problem = "it is a folder" if is_folder else unwritable(place, in_place=not suffix)
    if problem:
        raise bad_value(option, text, f"it must be {what} in a folder that you may write to, and {problem}")
    return found


def _either(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} or {values[-1]}"
