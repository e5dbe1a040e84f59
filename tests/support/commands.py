"""Commands of opbuild in this process: what each says and its exit code, without the start of a process for each."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import click

from opbuild.cli.main import main
from opbuild.cli.main import opbuild as group
from opbuild.platform.background import BACKGROUND_WRITER
from support.preloaded import Ended
from support.unnoticed import check_said


def all_commands() -> dict[tuple[str, ...], click.Command]:
    """Return every command by its name, those of groups too."""
    return dict(_commands(group))


def _commands(command: click.Command, name: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from _commands(found, (*name, each))
    else:
        yield name, command


def opbuild(*arguments: str | Path, folder: str | Path = ".", **variables: str) -> Ended:
    """Run a command as a process of its own would: in a folder, with variables added to the environment."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        code = run(list(map(str, arguments)), output, errors, folder, {**os.environ, **variables})
        ended = Ended(code, *(_content(file) for file in (output, errors)))
        check_said(ended.output, ended.errors)
        return ended


def run(
    arguments: Sequence[str],
    output: IO[bytes],
    errors: IO[bytes],
    folder: str | Path,
    environment: Mapping[str, str],
) -> int:
    """Run a command in this process, which is restored afterwards.

    Args:
        arguments: What follows the program's name.
        output: Where its standard output goes, and that of programs which it starts.
        errors: Where its standard error goes.
        folder: Where it runs.
        environment: All variables that it has.

    Returns:
        Its exit code.
    """
    with ExitStack() as stack:
        stack.enter_context(_stream("stdout", 1, output))
        stack.enter_context(_stream("stderr", 2, errors))
        stack.callback(os.chdir, Path.cwd())
        os.chdir(folder)
        stack.callback(_set_environment, dict(os.environ))
        _set_environment(environment)
        code = main(arguments)
        BACKGROUND_WRITER.finish()  # as a process does when it ends
        return code


@contextmanager
def _stream(name: str, number: int, file: IO[bytes]) -> Iterator[None]:
    """Let a standard stream, and the descriptor below it, lead to a file."""
    replaced = getattr(sys, name)
    replaced.flush()
    kept = os.dup(number)
    os.dup2(file.fileno(), number)
    try:
        with open(number, "w", encoding="utf-8", errors="surrogateescape", closefd=False) as stream:
            setattr(sys, name, stream)
            yield
    finally:
        setattr(sys, name, replaced)
        os.dup2(kept, number)
        os.close(kept)


def _set_environment(variables: Mapping[str, str]) -> None:
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()
