"""Output of commands, line by line: foreign words in it are shown, and are no orders to a terminal."""

from __future__ import annotations

import click

from opbuild.text.visible import visible


def echo(text: object = "", *, err: bool = False) -> None:
    """Write a text and the end of its line to the standard output, or with ``err`` to the standard error."""
    click.echo(visible(str(text)), err=err)
