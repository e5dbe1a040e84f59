"""The standard streams of a command: its output line by line; closed or full streams; other refusals of the system."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TextIO

import click

from opbuild.errors import BuildError, OpbuildError, OptionError
from opbuild.platform.limits import hint_for
from opbuild.text.visible import visible


def echo(text: object = "", *, err: bool = False) -> None:
    """Write a text and the end of its line to the standard output, or with ``err`` to the standard error."""
    click.echo(visible(str(text)), err=err)


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
    """Return the error of opbuild for a refusal of the system: of the output, or by a limit; None if it is neither."""
    hint = hint_for(error)
    if isinstance(error, OSError) and error.filename is None and error.errno in _FULL:
        discard(output)
        return OptionError(f"the output cannot be written: {error.strerror}", hint or "send it where there is space")
    return BuildError(f"the system refuses what the command needs: {str(error) or 'memory'}", hint) if hint else None
