"""The standard streams of a command: its output, errors as the problem and the remedy, and refusals of the system."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TextIO

import click

from opbuild.errors import BuildError, DTypeError, OpbuildError, OptionError
from opbuild.platform.limits import hint_for, unwritten
from opbuild.platform.packages import missing_package
from opbuild.text.plural import close_to
from opbuild.text.visible import visible


def usage_error(error: click.UsageError, command: str) -> OptionError:
    """Return a wrong command line as an error of opbuild, without the lines on usage that click puts before."""
    text = " ".join(error.format_message().split()).rstrip(".")
    help_ = f"'{command} --help' lists what it takes"
    if isinstance(error, click.NoSuchOption):
        meant = _suggestion(error.option_name, _options(error.ctx))
        return OptionError(f"there is no option {error.option_name!r}", meant + help_)
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return OptionError(f"{name_of(error.param)} is missing", help_)
    if isinstance(error, click.BadOptionUsage):
        takes = "takes no value" if "not take" in text else "needs a value"
        return OptionError(f"{error.option_name} {takes}", help_)
    if found := re.match(r"No such command '(.*?)'", text):
        return OptionError(f"there is no command {found[1]!r}", _suggestion(found[1], _commands(error.ctx)) + help_)
    if found := re.match(r"Got unexpected extra arguments? \((.*)\)", text):
        return OptionError(f"too many arguments: {found[1]}", help_)
    return OptionError(text, help_)


def typed_command(group: click.Group, words: Sequence[str]) -> str:
    """Return the command at the beginning of a command line, as it is typed behind the program's name."""
    typed, command = group.name or "", group
    for word in words:
        found = command.get_command(click.Context(command), word)
        if found is None:
            break
        typed = f"{typed} {word}"
        if not isinstance(found, click.Group):
            break
        command = found
    return typed


def name_of(parameter: click.Parameter) -> str:
    """Return an option as it is spelled, or an argument as ``--help`` shows it."""
    if isinstance(parameter, click.Argument):
        return (parameter.metavar or (parameter.name or "").upper()).strip("[]")
    return max(parameter.opts, key=len)


def _options(context: click.Context | None) -> Iterable[str]:
    if context is None:
        return ()
    own = (each for each in context.command.params if isinstance(each, click.Option) and not each.hidden)
    return [*(spelling for each in own for spelling in each.opts), *context.help_option_names]


def _commands(context: click.Context | None) -> Iterable[str]:
    group = context.command if context is not None else None
    return group.list_commands(context) if context is not None and isinstance(group, click.Group) else ()


def _suggestion(word: str, known: Iterable[str]) -> str:
    near = close_to(word, known)
    return f"did you mean {near}? " if near else ""


ARGUMENTS = frozenset((
    "cache_path", "debug_dir", "num_threads", "op_compiler_cache_dir", "op_compiler_cache_mode",
    "op_debug_config", "op_debug_level", "op_select_implmode", "optypelist_for_implmode", "output", "precision_mode",
    "remote", "target", "workers",
))  # fmt: skip
"""Arguments of functions that are options of commands too; messages about one begin with its name."""


_OTHERWISE_SPELLED = {"targets": "target"}
"""Arguments that are options of another name."""

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
    """Write an error as one block, to the standard error unless told."""
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
    option = _OTHERWISE_SPELLED.get(name, name)
    begins = option in ARGUMENTS and rest.startswith(_VERBS) and not error.in_python
    return f"--{option} {rest}" if begins else error.message


def _indent(text: str) -> str:
    return visible(text).strip().replace("\n", "\n  ")


def echo(text: object = "", *, err: bool = False) -> None:
    """Write a text and the end of its line to the standard output, or with ``err`` to the standard error."""
    click.echo(visible(str(text)), err=err)


def say_older(older: str, name: str) -> None:
    """Tell a user of an older name, which goes on working, the one that everything else says."""
    echo(f"note: {older} is an older name of {name}", err=True)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""How a write ends where there is no room; files that have a name are reported where they are written."""


def open_standard_streams() -> None:
    """Let closed standard streams lead nowhere: else the next files that are opened would be taken for them."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def flushed(stream: TextIO | None) -> bool:
    """Return whether all that was written to a stream could be."""
    try:
        if stream is not None:
            stream.flush()
    except OSError:
        return False
    return True


def discard(stream: TextIO | None) -> None:
    """Let a stream's rest, and all later output, go nowhere: the interpreter flushes it when it ends."""
    with suppress(OSError, ValueError):
        if stream is not None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def refusal(error: BaseException, output: TextIO | None) -> OpbuildError | None:
    """Return the error of opbuild for a refusal of the system, or a missing package; None if it is neither.

    The system refuses output that it has no room for, and what a limit forbids.
    """
    missing = missing_package(error)
    if missing is not None:
        return missing
    hint = hint_for(error)
    if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
        discard(output)
        return unwritten("the output", error, "send it elsewhere")
    return BuildError(f"the system refuses what the command needs: {str(error) or 'memory'}", hint) if hint else None
