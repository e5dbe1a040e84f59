"""The command line's frame: finding commands, errors as blocks, exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from opbuild.cli import main as frame
from opbuild.cli.interrupt import Interrupts
from opbuild.cli.main import COMMANDS, main
from opbuild.cli.streams import kind
from opbuild.errors import CompileError, InvalidModelError, OpbuildError, OptionError, UnsupportedOperatorError
from opbuild.version import __version__


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch):
    """Return a function that makes ``opbuild compile`` raise an exception."""

    def install(error: BaseException) -> None:
        @click.command()
        def command() -> None:
            raise error

        monkeypatch.setattr(frame.LazyGroup, "get_command", lambda self, ctx, name: command)

    return install


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    """``opbuild --version`` prints the package's version."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"opbuild {__version__}\n"


def test_help_names_every_command_without_importing_one() -> None:
    """``opbuild --help`` lists all commands and loads none, nor numpy, halide or onnx."""
    code = "import sys; from opbuild.cli.main import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in COMMANDS:
        assert f"  {name} " in done.stdout
    loaded = set(done.stderr.split())
    commands = {f"opbuild.cli.{module}" for module in COMMANDS.values()}
    assert loaded.isdisjoint({"numpy", "halide", "onnx", "rich", *commands})


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``opbuild COMMAND --help`` works for each command in the table, and says more than its name."""
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: opbuild {name}")
    assert len(shown.splitlines()) > 5


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OptionError("m", "h"), 2),
        (InvalidModelError("m", "h"), 3),
        (CompileError("m", "h"), 5),
        (OpbuildError("m", "h"), 1),
    ],
)
def test_an_error_is_one_block_and_its_exit_code(
    failing, error: OpbuildError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error of opbuild shows message and hint on the standard error, no traceback, and nothing on the output."""
    failing(error)
    assert main(["compile"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"error ({kind(error)}): m\n  hint: h\n"


def test_an_error_without_a_hint_shows_no_hint(failing, capsys: pytest.CaptureFixture[str]) -> None:
    """Where there is nothing to advise, no empty line advises it; lines of a long message are indented."""
    failing(CompileError("first\nsecond"))
    main(["compile"])
    assert capsys.readouterr().err == "error (compile): first\n  second\n"


def test_ctrl_c_ends_with_one_line_and_130(failing, capsys: pytest.CaptureFixture[str]) -> None:
    """An interrupt is no error to report: exit code 130 and a line; each command of a process says its own."""
    failing(KeyboardInterrupt())
    for _ in range(2):
        assert main(["compile"]) == 130
        assert capsys.readouterr() == ("", "interrupted\n")


def test_how_far_a_command_got_is_forgotten_when_it_fails() -> None:
    """Another command of the process that is interrupted says its own; an interrupted one keeps what it says."""
    interrupts = Interrupts()
    with pytest.raises(OptionError), interrupts.described(lambda: "1 of 2"):
        raise OptionError("no")
    assert interrupts._line() == "interrupted"
    with pytest.raises(KeyboardInterrupt), interrupts.described(lambda: "1 of 2"):
        raise KeyboardInterrupt
    assert interrupts._line() == "interrupted: 1 of 2"


ASKED = """
import os, signal
from opbuild.cli.interrupt import Interrupts
interrupts = Interrupts()
interrupts.watch()
press = lambda: os.kill(os.getpid(), signal.SIGINT)
with interrupts.asking_first("stopping soon") as asked:
    assert not asked()
    press()
    assert asked() and not interrupts.happened
with interrupts.asking_first("not said") as asked:
    pass
try:
    with interrupts.asking_first("stopping soon") as asked:
        press()
        press()
except KeyboardInterrupt:
    print("interrupted", asked(), interrupts.happened)
"""


def test_the_first_ctrl_c_may_ask_for_an_end_and_the_next_is_as_ever() -> None:
    """It says what it does; behind the block the first one interrupts again."""
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, check=True)
    assert done.stdout == "interrupted True True\n"
    assert done.stderr == "stopping soon\nstopping soon\nstopping\n"


def test_the_kind_of_an_error_is_in_words() -> None:
    """Class names become words that a reader knows."""
    assert kind(UnsupportedOperatorError("")) == "unsupported operator"
    assert kind(InvalidModelError("")) == "invalid model"
    assert kind(OptionError("")) == "option"


@pytest.mark.parametrize(
    "arguments", [["nothing"], ["compile"], ["compile", "x.onnx", "--worker", "2"], ["compile", "x", "--workers", "0"]]
)
def test_a_wrong_command_line_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown command or option, a missing argument, a value out of range: exit code 2, what is wrong, a hint."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    what, hint = captured.err.splitlines()
    assert what.startswith("error (option): ")
    assert re.match(
        r"  hint: (did you mean --workers\? )?('opbuild |it must be an integer|give its path: opbuild compile)", hint
    )


@pytest.mark.parametrize("spelling", ["--cache_path", "--cache-path"])
def test_options_may_be_spelled_either_way(spelling: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """ATC spells options with underscores, other tools with hyphens: both reach the same option."""
    (tmp_path / "m.onnx").write_bytes(b"")
    assert main(["compile", str(tmp_path / "m.onnx"), f"{spelling}={tmp_path / 'm.onnx'}"]) == 2
    assert "--cache_path is " in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    """``opbuild --help | head -0`` ends without noise."""
    code = "import sys; from opbuild.cli.main import main; sys.exit(main(['--help']))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    process.wait(60)
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_python_m_opbuild_is_the_same_program() -> None:
    """``python -m opbuild`` works where the program is not on the path."""
    done = subprocess.run([sys.executable, "-m", "opbuild", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"opbuild {__version__}\n"
