"""Tutorial-like MindSpore scripts run from start to end and print what MindSpore itself prints.

All run in one process and share its operators: each alone would load and build much the same again.
What MindSpore 2.10 printed is beside each script; where ``OPBUILD_TEST_MINDSPORE`` names an interpreter that has it,
it is asked again.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import environment

pytestmark = pytest.mark.usefixtures("kept_objects")

SCRIPTS = Path(__file__).resolve().parent / "mindspore_scripts"
NAMES = ["lenet", "resnet_block", "mlp", "lstm", "transformer", "functions", "checkpoint"]
_NUMBER = re.compile(r"(-?\d+\.\d*(?:e[+-]?\d+)?)")


def printed(folder: Path, *command: str | Path) -> dict[str, str]:
    """Run every script in one process and return what each printed."""
    done = subprocess.run(
        [*map(str, command), str(SCRIPTS / "run_all.py"), *NAMES],
        cwd=folder, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    pieces = re.split(r"^#### (\w+)\n", done.stdout, flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


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
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the output of opbuild."""
    return printed(tmp_path_factory.mktemp("ours"), sys.executable, "-m", "opbuild", "run")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the output of the real package, where there is one."""
    interpreter = os.environ.get("OPBUILD_TEST_MINDSPORE")
    if not interpreter:
        pytest.skip("set OPBUILD_TEST_MINDSPORE to an interpreter that has mindspore")
    return printed(tmp_path_factory.mktemp("theirs"), interpreter)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_script_prints_what_mindspore_prints(ours, name):
    """LeNet, a residual block, dropout, LSTM, transformers, functions, checkpoints."""
    compare(ours[name], (SCRIPTS / f"{name}.out").read_text(encoding="utf-8"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_of_mindspore_is_what_it_prints(theirs, name):
    """The texts beside the scripts are MindSpore's."""
    compare(theirs[name], (SCRIPTS / f"{name}.out").read_text(encoding="utf-8"))
