"""How an error looks on the terminal: what was wrong, and what to do."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TextIO

import click

from opbuild.errors import OpbuildError, OptionError


def kind(error: OpbuildError) -> str:
    """Return the error's class in words, e.g. ``unsupported operator``; its nearest public one."""
    public = next(each for each in type(error).__mro__ if each.__module__ == OpbuildError.__module__)
    words = re.findall("[A-Z]+(?![a-z])|[A-Z][a-z]*", public.__name__.removesuffix("Error"))
    return " ".join(word.lower() for word in words)


def show_failure(error: OpbuildError, stream: TextIO | None = None) -> None:
    """Write an error as one block.

    Args:
        error: What went wrong.
        stream: Where to write; default: the standard error.
    """
    lines = [click.style(f"error ({kind(error)}): ", fg="red", bold=True) + _indent(error.message)]
    if error.hint:
        lines.append(click.style("  hint: ", fg="cyan", bold=True) + _indent(error.hint))
    with suppress(OSError):  # the exit code says it too
        click.echo("\n".join(lines), file=stream, err=stream is None)


def usage_error(error: click.UsageError, command: str) -> OptionError:
    """Return a wrong command line as an error of opbuild, without the lines on usage that click puts before.

    Args:
        error: What click found.
        command: The command, as it is typed.
    """
    return OptionError(" ".join(error.format_message().split()).rstrip("."), f"'{command} --help' lists what it takes")


def _indent(text: str) -> str:
    return text.strip().replace("\n", "\n  ")
