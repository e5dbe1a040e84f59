"""Commands that are interrupted: when the answer comes, what is said, and what is left running."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.processes import environment
from support.until import until

PROGRAM = "import os, sys; from opbuild.__main__ import main; os.write(2, b'up\\n'); sys.exit(main())"
"""What the installed ``opbuild`` does, with a sign that its first module is loaded: no program answers before."""

PATIENCE = 60.0


@dataclass(frozen=True)
class Interrupted:
    """What became of a command.

    Attributes:
        code: Its exit code.
        said: The lines of its standard error after the first.
        answer: Seconds from the signal to the first word after it; infinite if there was none.
        end: Seconds from the signal to the end.
        finished: Whether it had ended before the signal.
    """

    code: int
    said: list[str]
    answer: float
    end: float
    finished: bool


def interrupt(
    arguments: Sequence[str], folder: Path, after: float | Path, *, times: int = 1, **variables: str
) -> Interrupted:
    """Start a command in a process group of its own and interrupt the group, as a terminal does.

    Args:
        arguments: After ``opbuild``.
        folder: Where it runs.
        after: Seconds after its first line, or a file that it writes when it is where it is to be interrupted.
        times: How often to interrupt.
        variables: Further variables of its environment.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, bufsize=0,
        env=environment(TMPDIR=str(folder), **variables), start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    said = bytearray()
    while not said.endswith(b"\n"):
        said += process.stderr.read(1) or b"\n"
    if isinstance(after, Path):
        assert until(after.exists, PATIENCE)
    else:
        time.sleep(after)
    finished = process.poll() is not None
    sent = time.monotonic()
    for _ in range(times):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
    answer = float("inf")
    with selectors.DefaultSelector() as selector:
        selector.register(process.stderr, selectors.EVENT_READ)
        while selector.select(PATIENCE) and (data := os.read(process.stderr.fileno(), 65536)):
            said += data
            if b"stopping\n" in said or b"interrupted" in said:
                answer = min(answer, time.monotonic() - sent)
    code = process.wait(PATIENCE)
    end = time.monotonic() - sent
    process.stderr.close()
    return Interrupted(code, said.decode().splitlines()[1:], answer, end, finished)


def left_running(folder: Path) -> list[str]:
    """Return the commands of processes that have a folder in their environment, as compile servers have TMPDIR."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if str(folder) in f"{(process / 'cwd').readlink()} {(process / 'environ').read_text(errors='replace')}":
                    found.append(command)
            except OSError:
                continue
    return found
