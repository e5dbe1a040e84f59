"""Values of ``opbuild compile`` and ``opbuild atc``: what each option takes, and the errors that say so in one line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from opbuild.cli.usage import name_of
from opbuild.errors import OptionError
from opbuild.files.kinds import require_kind
from opbuild.files.writing import unwritable

FOLDER = "a folder, which is made if it is missing"


class BadValueError(OptionError):
    """An option has a value that is not allowed.

    Attributes:
        option: The option's name without dashes; empty if none is at fault alone.
    """

    option = ""


class EmptyValueError(OptionError):
    """An option that stands on the command line has no value."""


class MissingOptionError(OptionError):
    """An option that is needed here is missing."""


class ConflictingOptionsError(OptionError):
    """Options that exclude each other are given together."""


class DependentOptionError(OptionError):
    """An option is given without the one that gives it a meaning."""


class MissingFileError(OptionError):
    """A file that an option names does not exist."""


class RefusedOptionError(OptionError):
    """An option, or a value of it, that ATC has and opbuild does not serve."""


def bad_value(option: str, value: object, allowed: str) -> BadValueError:
    """Return the error for a value that an option does not take.

    Args:
        option: The option's name without dashes.
        value: What was given.
        allowed: What the option takes, after "it must be" or as a whole clause.
    """
    error = BadValueError(f"--{option} is {str(value)!r}", allowed)
    error.option = option
    return error


@dataclass(frozen=True)
class Choice:
    """What an option takes.

    Attributes:
        allowed: The values.
        refused: Values that ATC has and opbuild does not serve, with what to do instead.
    """

    allowed: Sequence[str]
    refused: Mapping[str, str] = field(default_factory=dict)

    def check(self, option: str, value: str) -> str:
        """Return the value.

        Raises:
            EmptyValueError, BadValueError: If it is not allowed.
        """
        if value in self.allowed:
            return value
        must = f"it must be {_either(self.allowed)}"
        if not value.strip():
            raise EmptyValueError(f"--{option} is empty", must)
        if value in self.refused:
            raise bad_value(option, value, f"{must}; {self.refused[value]}")
        raise bad_value(option, value, must)


def integer(option: str, text: str, least: int, greatest: int | None = None) -> int:
    """Return a whole number.

    Raises:
        EmptyValueError, BadValueError: If it is none, or not in the range.
    """
    limits = f"from {least} to {greatest}" if greatest is not None else f"of at least {least}"
    if not text.strip():
        raise EmptyValueError(f"--{option} is empty", f"it must be an integer {limits}")
    value = int(text) if re.fullmatch(r"\s*-?[0-9]{1,18}\s*", text) else least - 1
    if value < least or (greatest is not None and value > greatest):
        raise bad_value(option, text, f"it must be an integer {limits}")
    return value


class _Read(click.ParamType):  # type: ignore[type-arg]  # older releases of click have no such argument
    """A value for click, read as the options of ``opbuild compile`` are: a wrong one is an error that says what may be.

    Attributes:
        name: What click calls it.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value.

        Raises:
            EmptyValueError, BadValueError: If it is not allowed.
        """
        name = name_of(param).lstrip("-") if param is not None else ""
        return self.read(name, value, isinstance(param, click.Argument)) if isinstance(value, str) else value

    def read(self, name: str, text: str, is_argument: bool) -> Any:
        """Return the value that a text is, of an option or of an argument."""
        raise NotImplementedError


class Whole(_Read):
    """A whole number in a range.

    Args:
        least: The least.
        greatest: The greatest; None: there is none.
    """

    name = "integer"

    def __init__(self, least: int, greatest: int | None = None) -> None:
        self.least = least
        self.greatest = greatest

    def read(self, name: str, text: str, is_argument: bool) -> int:
        """Return the number."""
        return integer(name, text, self.least, self.greatest)


class OnePath(_Read):
    """A path; an empty one is an error, and not the working folder.

    Args:
        what: What it is the path of, after "it must be".
        folder: Whether it must be a folder, or what can be made one.
    """

    name = "path"

    def __init__(self, what: str, *, folder: bool = False) -> None:
        self.what = what
        self.folder = folder

    def read(self, name: str, text: str, is_argument: bool) -> Path:
        """Return the path."""
        if is_argument:
            return argument(name, text, self.what)
        return (folder if self.folder else path)(name, text, self.what)


class OneOf(_Read):
    """One of some words.

    Args:
        allowed: The words.
    """

    name = "word"

    def __init__(self, allowed: Sequence[str]) -> None:
        self.choice = Choice(allowed)

    def read(self, name: str, text: str, is_argument: bool) -> str:
        """Return the word."""
        return self.choice.check(name, text)


def argument(name: str, text: str, what: str) -> Path:
    """Return the path that an argument gives.

    Args:
        name: How ``--help`` shows the argument.
        text: What was given.
        what: What it must be.

    Raises:
        EmptyValueError: If it is empty.
    """
    if not text.strip():
        raise EmptyValueError(f"{name} is empty", f"it must be {what}")
    return Path(text)


def folder(option: str, text: str, what: str = FOLDER) -> Path:
    """Return the path of a folder, which need not be there.

    Raises:
        EmptyValueError, BadValueError: If it is empty, or something else is there.
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
        EmptyValueError, BadValueError: If it is empty, or no path can be so.
    """
    if not text.strip():
        raise EmptyValueError(f"--{option} is empty", f"it must be {what}")
    if "\0" in text:
        raise bad_value(option, text, f"it must be {what}")
    return Path(text)


def input_file(option: str, text: str, *kinds: str) -> Path:
    """Return the path of a file of some kind.

    Args:
        option: The option's name.
        text: The value.
        kinds: What it may be, of ``kernel.file_kinds``.

    Raises:
        EmptyValueError, BadValueError, FileError: If there is none.
    """
    found = path(option, text, f"the path of {kinds[0]}")
    require_kind(found, *kinds)
    return found


def existing_file(option: str, text: str, what: str) -> Path:
    """Return the path of a file.

    Raises:
        EmptyValueError, BadValueError, MissingFileError: If there is none.
    """
    found = path(option, text, what)
    if found.is_file():
        return found
    if found.is_dir():
        raise bad_value(option, text, f"it must be {what}, and this is a folder")
    raise MissingFileError(f"--{option} is {text!r}, and there is no such file", f"it must be {what}")


def new_file(option: str, text: str, what: str, suffix: str = "") -> Path:
    """Return the path of a file that can be written.

    Args:
        option: The option's name.
        text: The value.
        what: What the option takes, e.g. ``the JSON file to write``.
        suffix: What is added to the name, unless it is there.

    Raises:
        EmptyValueError, BadValueError: If none can be written there.
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
