"""The command line: finds the command, and turns every error into one clear block and an exit code.

Commands are loaded when they are used, so that ``opbuild --help`` and a warm ``opbuild run`` import little.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, cast

import click

from opbuild.cli.interrupt import INTERRUPTED, INTERRUPTS, Interrupted
from opbuild.cli.streams import (
    discard,
    echo,
    flushed,
    open_standard_streams,
    refusal,
    say_older,
    show_failure,
    typed_command,
    usage_error,
)
from opbuild.errors import OpbuildError
from opbuild.version import __version__

_HELP: tuple[type[click.UsageError], ...] = tuple(filter(None, [getattr(click.exceptions, "NoArgsIsHelpError", None)]))
"""A command that was called with nothing and shows its help; older releases of click have no such error."""

GROUPS: dict[str, tuple[tuple[str, str], ...]] = {
    "ONNX models": (
        ("example", "Write an example network to try opbuild with."),
        ("compile", "Build a model and show what was built and reused."),
        ("run", "Build a model unless it was, call it, and show its outputs and how long it takes."),
        ("profile", "Show how long each call of a model takes."),
        ("bench", "Measure a model in opbuild, ONNX Runtime and OpenVINO, side by side."),
        ("tune", "Find faster variants of a model's operators on this machine."),
        ("report", "Write a page that shows what became of each layer, and how long it takes."),
        ("export", "Build a model into one .om file, which runs without the compiler."),
        ("warm", "Build everything that models need, on many machines if need be, and store it."),
        ("pack", "Build the kernels that models need into one file, from which first starts take them."),
    ),
    "MindSpore-style scripts": (
        ("run", "Run a script; where MindSpore is not installed, 'import mindspore' finds opbuild's."),
        ("launch", "Run a script on several local ranks, which share what they build."),
    ),
    "Scripts that call ATC (the command that compiles models for Huawei's NPUs)": (
        ("atc", "Build a model for CPUs with ATC's options, defaults and messages."),
    ),
    "What is stored, and what is needed": (
        ("explain", "Say of each operator of a model whether it would be reused, and if not, why."),
        ("push", "Write what models need, as it is stored here, to a store that others share."),
        ("pull", "Take what models need, or everything, from a store that others share."),
        ("cache", "List, check, clean, export and import what is stored."),
        ("bank", "List, export and import what tuning found."),
        ("operators", "Show which operators have kernels, and for which types."),
        ("env", "Show the level, the compiler and the folders of the store."),
    ),
}
"""For whom each command is: what ``opbuild --help`` shows, a command in each group whose users need it."""

_PLACES = {
    "explain": "compile", "warm": "compile", "atc": "export", "report": "profile", "bank": "tune",
    "launch": "run", "push": "sharing", "pull": "sharing",
}  # fmt: skip
"""Modules of commands that have none of their name."""

COMMANDS = {name: _PLACES.get(name, name) for rows in GROUPS.values() for name, _ in rows}
"""The module of every command."""

OLDER = {"build": "compile"}
"""Older names of commands, which go on working."""

_WIDEST = max(map(len, COMMANDS))


class LazyGroup(click.Group):
    """A group that imports a command only to run it or to show that command's own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        return cast("click.Command", getattr(import_module(f"opbuild.cli.{COMMANDS[cmd_name]}"), cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is typed, perhaps by its older name."""
        name = OLDER.get(args[0])
        if name is not None:
            say_older(f"'opbuild {args[0]}'", f"'opbuild {name}'")
        return super().resolve_command(ctx, [name or args[0], *args[1:]])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; Ctrl-C ends it as ``Interrupted``."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands from the table above, without importing them."""
        for title, rows in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(_WIDEST), summary) for name, summary in rows])


@click.group(
    cls=LazyGroup,
    context_settings={
        "token_normalize_func": lambda token: token.replace("-", "_"),  # --cache-path means --cache_path
        "help_option_names": ["-h", "--help"],
    },
    epilog="Options may be spelled with underscores or with hyphens. 'opbuild COMMAND --help' explains one command.",
)
@click.version_option(__version__, prog_name="opbuild", message="%(prog)s %(version)s")
def opbuild() -> None:
    """Build neural networks operator by operator, once.

    What was built is stored ('opbuild env' says where), and the next build of this or of any other network uses it.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: done. 1: an unexpected failure. 2: a wrong option or argument, or no such file. 3: the model is at fault. 4: the
    input data is at fault. 5: something could not be built, for want of a package or of room on the disk too. 6: the
    network failed while it ran. 7: the ranks of a job did not come together. 130: interrupted. ``launch`` ends as the
    first rank that failed.
    """
    open_standard_streams()
    try:
        return _run(arguments)
    except (Interrupted, KeyboardInterrupt, click.Abort):
        INTERRUPTS.say_last()
        return INTERRUPTED
    except BrokenPipeError:
        discard(sys.stdout)  # the reader went away (`opbuild ... | head`): say nothing more
        return 1
    except (OSError, MemoryError, RuntimeError, ImportError) as error:
        failure = refusal(error, sys.stdout)
        if failure is None:
            raise
        show_failure(failure)
        return failure.exit_code
    finally:
        if not flushed(sys.stderr):
            discard(sys.stderr)


def _run(arguments: Sequence[str] | None) -> int:
    """Run a command and show the errors that it ends with."""
    try:
        result = opbuild.main(
            args=None if arguments is None else list(arguments), prog_name="opbuild", standalone_mode=False
        )
        if sys.stdout is not None:
            sys.stdout.flush()
    except OpbuildError as error:
        if INTERRUPTS.happened:  # it may look like anything to a library that was at work
            raise Interrupted from error
        show_failure(error)
        return error.exit_code
    except _HELP as error:
        error.show()
        return error.exit_code
    except click.UsageError as error:
        words = sys.argv[1:] if arguments is None else arguments
        show_failure(usage_error(error, error.ctx.command_path if error.ctx else typed_command(opbuild, words)))
        return error.exit_code
    except click.ClickException as error:
        echo(f"Error: {error.format_message()}", err=True)
        return error.exit_code
    return result if isinstance(result, int) else 0
