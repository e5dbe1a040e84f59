"""``opbuild atc``: ATC's messages, codes and exit codes."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from opbuild import errors
from opbuild.cli.export import CODES, code_of
from opbuild.cli.main import main
from opbuild.errors import (
    CompileError,
    InvalidModelError,
    LinkError,
    OpbuildError,
    OptionError,
    ShapeError,
    UnsupportedOperatorError,
)
from opbuild.frontend.input_shape import InputShapeError

STARTED = "ATC start working now, please wait for a moment."
SUCCEEDED = "ATC run success, welcome to the next use."
NEVER_BUILDING = (
    OpbuildError, errors.RunError, errors.OutOfRangeError, errors.StoppedError, errors.ChangesError, errors.RankError,
)  # fmt: skip
"""Kinds of errors that a build cannot end with."""

FAILED = "ATC run failed, Please check the detail log, Try 'atc --help' for more information"


@pytest.fixture
def ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that runs ``opbuild atc`` on a model whose build ends with an exception, or well."""
    (tmp_path / "m.onnx").write_bytes(b"a model")
    monkeypatch.chdir(tmp_path)

    def run(error: BaseException | None = None) -> int:
        def carry_out(request: object) -> None:
            if error is not None:
                raise error

        monkeypatch.setattr("opbuild.cli.export.carry_out", carry_out)
        return main(["atc", "--model=m.onnx", "--framework=5", "--output=m", "--soc_version=host"])

    return run


def test_success_is_said_as_atc_says_it(ending, capsys: pytest.CaptureFixture[str]) -> None:
    """Two lines on the standard output and nothing else; exit code 0."""
    assert ending() == 0
    assert capsys.readouterr() == (f"{STARTED}\n{SUCCEEDED}\n", "")


@pytest.mark.parametrize(
    ("error", "block"),
    [
        (OptionError("workers is 0", "give one"), "E10001: --workers is 0\n        Solution: give one\n"),
        (InputShapeError("--shape 'x' is bad", "h"), "E10002: --input_shape 'x' is bad\n        Solution: h\n"),
        (UnsupportedOperatorError("no Foo", "h"), "E10501: no Foo\n        Solution: h\n"),
        (ShapeError("open", "h"), "E11005: open\n        Solution: h\n"),
        (InvalidModelError("damaged", ""), "E10059: damaged\n"),
        (CompileError("conv_1 crashed", "h"), "E10059: conv_1 crashed\n        Solution: h\n"),
        (LinkError("no linker", "h"), "E10059: no linker\n        Solution: h\n"),
    ],
)
def test_failure_is_said_as_atc_says_it(
    ending, error: OpbuildError, block: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line that ATC ends with, then the code and the message; the exit code is that of the error."""
    assert ending(error) == error.exit_code != 0
    assert capsys.readouterr() == (f"{STARTED}\n{FAILED}\n{block}", "")


def test_a_defect_of_opbuild_is_an_internal_error(ending, capsys: pytest.CaptureFixture[str]) -> None:
    """What nobody expected is E19999 in one line, no traceback; exit code 1."""
    assert ending(RuntimeError("two\nlines")) == 1
    assert capsys.readouterr().out == f"{STARTED}\n{FAILED}\nE19999: Internal Error! RuntimeError: two lines\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_is_no_failure_to_explain(
    ending, error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C ends with 130; neither of ATC's last lines is said."""
    assert ending(error) == 130
    assert "ATC run" not in capsys.readouterr().out


def test_help_says_nothing_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    """``--help`` ends with 0 and without ATC's lines."""
    assert main(["atc", "--help"]) == 0
    assert "ATC run" not in (shown := capsys.readouterr().out)
    assert STARTED not in shown
    assert "--op_compiler_cache_mode" in shown


def test_every_error_of_opbuild_has_a_code() -> None:
    """No kind of error that a user can meet is taken for a defect; each code in the table can be reached."""
    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, OpbuildError)]
    reached = {code_of(kind("m", "h")) for kind in kinds if kind not in NEVER_BUILDING}
    assert "E19999" not in reached
    for index, (kind, code) in enumerate(CODES):
        assert code_of(kind("m", "h")) == code, index
