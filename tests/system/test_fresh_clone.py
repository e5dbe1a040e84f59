"""The one entry point: what ``make`` does in a new clone, without doing the slow parts."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a folder with what make needs."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run make in ``folder``, free of the make that may have started these tests."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }
    return subprocess.run(
        ["make", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_make_alone_lists_what_there_is(clone: Path) -> None:
    """The first thing a newcomer types explains the others and changes nothing."""
    done = make(clone)
    assert done.returncode == 0
    for target in ("demo", "test", "bench", "setup"):
        assert f"make {target} " in done.stdout
    assert not (clone / ".venv").exists()


@pytest.mark.parametrize("target", ["demo", "test", "bench"])
def test_the_first_run_sets_up_and_the_second_does_not(clone: Path, target: str) -> None:
    """Set-up makes .venv and installs; with the stamp there, nothing is installed, so no network is needed."""
    first = make(clone, "-n", target).stdout
    assert "-m venv" in first
    assert "pip install" in first
    stamps = [word for line in first.splitlines() if line.startswith("touch ") for word in line.split()[1:]]
    (clone / ".venv").mkdir()
    for stamp in stamps:
        (clone / stamp).touch()
    second = make(clone, "-n", target).stdout
    assert "pip install" not in second
    assert "-m venv" not in second
    assert second


def test_changed_dependencies_set_up_again(clone: Path) -> None:
    """The stamp knows the contents of pyproject.toml, not its time stamp, which a checkout changes."""
    first = make(clone, "-n", "setup").stdout
    os.utime(clone / "pyproject.toml")
    assert make(clone, "-n", "setup").stdout == first
    with (clone / "pyproject.toml").open("a") as file:
        file.write("# one more dependency\n")
    assert make(clone, "-n", "setup").stdout != first


def test_a_python_that_cannot_be_used_is_named(clone: Path) -> None:
    """An interpreter that is missing or of another version ends set-up with what to type instead."""
    old = clone / "python3.9"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = make(clone, "setup", f"PYTHON={old}")
    assert done.returncode != 0
    assert "is not Python 3.10 to 3.14" in done.stdout
    assert "make PYTHON=" in done.stdout


def test_ci_runs_what_developers_run() -> None:
    """``.ci/run`` is executable and calls ``make test-all``, after it has installed what some tests start."""
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
    begin = ["set -euo pipefail", 'cd "$(dirname "$0")/.."']
    assert lines == [*begin, "tools/test_programs.sh || true", "exec make test-all"]


def test_the_readme_tells_both_commands() -> None:
    """A newcomer's first screen is what they can type at once; ``make demo`` and ``make test`` stand in a block too."""
    lines = (ROOT / "README.md").read_text().splitlines()
    assert "opbuild example resnet50 -o resnet50.onnx" in lines[:16]
    assert "import opbuild.onnxruntime as ort" in lines[:32]
    for command in ("make demo", "make test"):
        assert any(line.startswith(command) for line in lines)
