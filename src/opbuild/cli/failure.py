"""Errors on the terminal: the problem, and the remedy."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TextIO

import click

from opbuild.errors import DTypeError, OpbuildError
from opbuild.text.visible import visible

ARGUMENTS = frozenset((
    "cache_path", "debug_dir", "input_shape", "num_threads", "op_compiler_cache_dir", "op_compiler_cache_mode",
    "op_debug_config", "op_debug_level", "op_select_implmode", "optypelist_for_implmode", "output", "precision_mode",
    "remote", "soc_version", "workers",
))  # fmt: skip
"""Arguments of functions that are options of commands too; messages about one begin with its name."""


_VERBS = ("is ", "gives ", "names ", "has ")
"""What follows an argument's name; a name may be a common word too."""


def kind(error: OpbuildError) -> str:
    """Return the error's class in words, e.g. ``unsupported operator``; its nearest public one."""
    public = next(each for each in type(error).__mro__ if each.__module__ == OpbuildError.__module__)
    if public is DTypeError:
        return "element type"
    words = re.findall("[A-Z]+(?![a-z])|[A-Z][a-z]*", public.__name__.removesuffix("Error"))
    return " ".join(word.lower() for word in words)


def show_failure(error: OpbuildError, stream: TextIO | None = None) -> None:
    """Write an error as one block.

    Args:
        error: What went wrong.
        stream: Where to write; default: the standard error.
    """
    from opbuild.config import plain_terminal

    lines = [click.style(f"error ({kind(error)}): ", fg="red", bold=True) + _indent(message_of(error))]
    hint = error.hint if error.in_python else error.command_hint
    if hint:
        lines.append(click.style("  hint: ", fg="cyan", bold=True) + _indent(hint))
    with suppress(OSError):  # the exit code says it too
        click.echo("\n".join(lines), file=stream, err=stream is None, color=False if plain_terminal() else None)


def message_of(error: OpbuildError) -> str:
    """Return an error's message for who typed a command: an argument that it begins with is spelled as an option."""
    name, _, rest = error.message.partition(" ")
    begins = name in ARGUMENTS and (rest.startswith(_VERBS) or name == "input_shape")
    return f"--{error.message}" if begins and not error.in_python else error.message


def _indent(text: str) -> str:
    return visible(text).strip().replace("\n", "\n  ")
