"""Running a program: how it ended is known even where the system tells nobody, or somebody else takes it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from opbuild.errors import LinkError
from opbuild.runtime.devices.cpu.link import Linker, find_linker, link
from opbuild.runtime.run_program import Ended, run_program
from support.forked import in_fork
from support.handmade import ADD, kernel_object

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def ended(code: str, timeout: float = 30.0) -> Ended:
    """Return how a program in Python ended."""
    command = [sys.executable, "-I", "-S", "-c", code]
    return run_program(command, folder=Path("/"), timeout=timeout, environment=dict(os.environ))


def as_usual() -> None:
    """Change nothing."""


def ignore_children() -> None:
    """Be started by a supervisor that ignores SIGCHLD."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


def wait_for_any_child() -> None:
    """Be a first process, which waits for whatever ends."""

    def reap() -> None:
        while True:
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                time.sleep(1e-4)

    threading.Thread(target=reap, daemon=True).start()


SURROUNDINGS = [as_usual, ignore_children, wait_for_any_child]


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_how_a_program_ended_is_known(surroundings: Callable[[], None]) -> None:
    """Its exit code or signal, and what it said, whoever waits for it."""

    def work() -> list[list[object]]:
        surroundings()
        codes = ["pass", "import sys; sys.exit('no')", "import os; os.kill(os.getpid(), 9)"]
        return [list(ended(code)) for code in codes]

    assert in_fork(work) == [[0, ""], [1, "no\n"], [-9, ""]]


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_a_linker_that_fails_is_not_believed(surroundings: Callable[[], None], tmp_path: Path) -> None:
    """With SIGCHLD ignored a linker that had failed counted as one that had not: half a library was loaded."""
    failing = tmp_path / "ld"
    failing.write_text(
        f"#!{sys.executable} -IS\nimport sys\nopen(sys.argv[2], 'wb').write(b'half')\nsys.exit('error: no')"
    )
    failing.chmod(0o755)

    def work() -> str:
        surroundings()
        link([kernel_object(ADD)], find_linker())
        try:
            link([kernel_object(ADD)], Linker((str(failing),), "failing"))
        except LinkError as error:
            return error.message
        return "believed"

    assert "error: no" in in_fork(work)


def test_much_that_is_said_is_read() -> None:
    """More than a pipe holds."""
    assert len(ended("import sys; sys.stderr.write('x' * 300_000)").message) == 300_000


@pytest.mark.parametrize("code", ["import time; time.sleep(600)", "import os, time; os.close(2); time.sleep(600)"])
def test_a_program_that_hangs_is_ended(code: str) -> None:
    """Whether it still could say something or not."""
    with pytest.raises(TimeoutError):
        ended(code, timeout=0.2)
