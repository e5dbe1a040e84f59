"""Tests: what ends unnoticed in a process that a test starts fails the test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.unnoticed import unnoticed_errors

DIES = """
import threading
def fail():
    raise ValueError("injected")
thread = threading.Thread(target=fail, name="{name}")
thread.start()
thread.join()
"""

IGNORED = """
class {name}:
    def __del__(self):
        raise ValueError("injected")
{name}()
"""


@pytest.mark.parametrize("program", [DIES.format(name="opbuild-improve"), IGNORED.format(name="of_opbuild")])
def test_a_process_whose_pipes_are_read_may_lose_no_error(program: str) -> None:
    """A thread that died, and what could not be raised: whether the process ends well or not."""
    for code in (0, 3):
        with pytest.raises(AssertionError, match="injected"):
            subprocess.run(
                [sys.executable, "-c", f"{program}\nraise SystemExit({code})"], check=False, capture_output=True
            )


def test_errors_of_others_are_theirs() -> None:
    """A thread of a program's own may end as it likes, and a traceback that ends a process is its exit code's."""
    done = subprocess.run([sys.executable, "-c", DIES.format(name="own")], check=True, capture_output=True)
    assert b"injected" in done.stderr
    assert unnoticed_errors("Traceback (most recent call last):\nopbuild.errors.RunError: opbuild") == ""


def test_a_test_in_which_a_thread_dies_fails(tmp_path: Path) -> None:
    """In its own process, and in one that has the test's standard error, which nobody but pytest reads."""
    program = tmp_path / "dies.py"
    program.write_text(DIES.format(name="opbuild-improve"))
    (tmp_path / "test_three.py").write_text(
        "import runpy, subprocess, sys\n"
        f"def test_own(): runpy.run_path({str(program)!r})\n"
        f"def test_other(): subprocess.run([sys.executable, {str(program)!r}], check=True)\n"
        "def test_fine(): pass\n"
    )
    tests = Path(__file__).parents[2]
    options = ["-p", "conftest", "-p", "no:cacheprovider", "-c", str(tests.parent / "pyproject.toml")]
    command = [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path / "test_three.py")]
    with (tmp_path / "said").open("w+") as said:
        subprocess.run(command, check=False, stdout=said, env={**os.environ, "PYTHONPATH": str(tests)})
    assert "2 failed, 1 passed in" in (tmp_path / "said").read_text()
