"""Tutorial-like MindSpore scripts run from start to end and print what MindSpore itself prints.

What MindSpore 2.10 printed is beside each script; where ``OPBUILD_MINDSPORE_PYTHON`` names an interpreter that has it,
it is asked again.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from processes import environment

SCRIPTS = Path(__file__).resolve().parent / "mindspore_scripts"
NAMES = ["lenet", "resnet_block", "mlp", "lstm", "transformer", "functions", "checkpoint"]
_NUMBER = re.compile(r"(-?\d+\.\d*(?:e[+-]?\d+)?)")


def run(folder: Path, *command: str | Path, **variables: str) -> str:
    """Return what a program printed."""
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=environment(**variables), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def parts(text: str) -> tuple[list[str], list[float]]:
    """Return the words of a text without its floats, and its floats."""
    pieces = _NUMBER.split(text)
    return " ".join(pieces[::2]).split(), [float(piece) for piece in pieces[1::2]]


def compare(found: str, expected: str) -> None:
    """Compare two texts: words as they are, floats to within what rounding can change."""
    (words, numbers), (wanted, values) = parts(found), parts(expected)
    assert words == wanted, found
    assert numbers == pytest.approx(values, abs=2.1e-3), found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one folder for all scripts: they share their operators."""
    return tmp_path_factory.mktemp("scripts")


@pytest.mark.parametrize("name", NAMES)
def test_a_script_prints_what_mindspore_prints(folder, name):
    """LeNet, a residual block, dropout, LSTM, transformers, functions, checkpoints."""
    script = SCRIPTS / f"{name}.py"
    found = run(folder, sys.executable, "-m", "opbuild", "run", script)
    compare(found, (SCRIPTS / f"{name}.out").read_text(encoding="utf-8"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_of_mindspore_is_what_it_prints(tmp_path, name):
    """The real package, where there is one: it also loads what opbuild saved."""
    interpreter = os.environ.get("OPBUILD_MINDSPORE_PYTHON")
    if not interpreter:
        pytest.skip("set OPBUILD_MINDSPORE_PYTHON to an interpreter that has mindspore")
    printed = run(tmp_path, interpreter, SCRIPTS / "run_with_mindspore.py", SCRIPTS / f"{name}.py")
    compare(printed, (SCRIPTS / f"{name}.out").read_text(encoding="utf-8"))
