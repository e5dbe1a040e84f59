"""``opbuild atc``: ``opbuild compile`` with ATC's defaults, messages, error codes and exit codes."""

from __future__ import annotations

from typing import Any

import click

from opbuild.cli.compile import carry_out
from opbuild.cli.compile_options import ATC_DEFAULTS, compile_options, make_request
from opbuild.cli.echoing import echo
from opbuild.cli.failure import message_of
from opbuild.cli.option_values import CommandLineError
from opbuild.cli.usage import usage_error
from opbuild.errors import (
    BuildError,
    FileError,
    InputError,
    InvalidModelError,
    ModelError,
    OpbuildError,
    OptionError,
    RankError,
    ShapeError,
    TargetError,
    UnsupportedOperatorError,
)
from opbuild.frontend.input_shape import InputShapeError

STARTED = "ATC start working now, please wait for a moment."
SUCCEEDED = "ATC run success, welcome to the next use."
FAILED = "ATC run failed, Please check the detail log, Try 'atc --help' for more information"

CODES: tuple[tuple[type[OpbuildError], str], ...] = (
    (InputShapeError, "E10002"),
    (OptionError, "E10001"),
    (FileError, "E10410"),
    (UnsupportedOperatorError, "E10501"),
    (ShapeError, "E11005"),
    (InvalidModelError, "E10059"),
    (ModelError, "E10055"),
    (InputError, "E10001"),
    (TargetError, "E10001"),
    (BuildError, "E10059"),
    (RankError, "E10059"),
)
"""ATC's code of each other error of opbuild; the first that fits counts."""

INTERNAL = "E19999"


def code_of(error: OpbuildError) -> str:
    """Return ATC's code of an error."""
    if isinstance(error, CommandLineError):
        return error.code
    return next((code for kind, code in CODES if isinstance(error, kind)), INTERNAL)


class AtcCommand(click.Command):
    """A command that says on the standard output what ATC says there."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Say that the work begins, and read the options."""
        if {"-h", "--help"}.isdisjoint(args):
            echo(STARTED)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except OpbuildError as error:
            raise self._failed(error) from error
        except click.UsageError as error:
            command = f"{parent.command_path} {info_name}" if parent is not None else str(info_name)
            raise self._failed(usage_error(error, command)) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command and say how it ended."""
        try:
            super().invoke(ctx)
        except OpbuildError as error:
            raise self._failed(error) from error
        except (click.exceptions.Exit, click.Abort, click.ClickException):
            raise
        except Exception as error:
            echo(f"{FAILED}\n{INTERNAL}: Internal Error! {type(error).__name__}: {' '.join(str(error).split())}")
            raise click.exceptions.Exit(1) from error
        echo(SUCCEEDED)

    def _failed(self, error: OpbuildError) -> click.exceptions.Exit:
        """Write ATC's last line and the error below it."""
        hint = " ".join(error.command_hint.split())
        lines = [message_of(error), *([f"        Solution: {hint}"] if hint else [])]
        echo("\n".join((FAILED, f"{code_of(error)}: {lines[0]}", *lines[1:])))
        return click.exceptions.Exit(error.exit_code)


@click.command(cls=AtcCommand)
@compile_options(ATC_DEFAULTS)
def atc(**options: Any) -> None:
    """Build MODEL.onnx into one .om file, as ATC does, the command that compiles models for Huawei's NPUs.

    For scripts that call ATC; others use 'opbuild compile', which has the same options. Here --framework, --output and
    --soc_version must be given, the cache is off unless --op_compiler_cache_mode turns it on, and messages are ATC's.
    ATC's options that decide nothing on a CPU are taken with the values that change nothing.
    """
    carry_out(make_request(options, ATC_DEFAULTS))
