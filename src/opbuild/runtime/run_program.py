"""Running another program to its end, and learning how it ended even where the system tells nobody.

In a process that ignores SIGCHLD, as many supervisors leave it to what they start, the system throws away how a child
ended; in one that waits for any child, as a first process or a server of workers does, somebody else may take it. Then
``subprocess`` says that all went well. A program that writes a file must not be believed so.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO, cast

from opbuild.platform.limits import hint_for_signal, suspected
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple

_CHUNK = 1 << 16
_POLL = 0.001

_TELL = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
code = os.spawnv(os.P_WAIT, sys.argv[2], sys.argv[2:])
os.write(int(sys.argv[1]), b"%d" % code)
"""
"""Runs a program and writes its exit code, or less its signal, into a pipe."""


class Ended(NamedTuple):
    """The end of a program: its exit code, or less the signal that ended it, and the text on its standard error."""

    code: int
    message: str

    @property
    def how(self) -> str:
        """The end of the program, in words."""
        if self.code >= 0:
            return f"it ended with code {self.code} and no message"
        return f"it was ended by signal {-self.code} ({signal.Signals(-self.code).name})"

    @property
    def hint(self) -> str:
        """Which limit may be the cause; empty if none may be."""
        return hint_for_signal(-self.code) or suspected() if self.code else ""


def run_program(
    command: Sequence[str],
    *,
    folder: Path,
    timeout: float,
    environment: Mapping[str, str],
    descriptors: Sequence[int] = (),
) -> Ended:
    """Run a program and wait for its end.

    Args:
        command: The program, by path, and its arguments.
        folder: Where it runs.
        timeout: Seconds after which it is ended.
        environment: Its environment.
        descriptors: Files that it gets besides the standard ones.

    Raises:
        OSError: If it cannot be started.
        TimeoutError: If it did not end in time.
    """
    deadline = time.monotonic() + timeout
    code, message = _run(command, folder, deadline, environment, descriptors)
    if code is None:  # nobody knows: once more, with somebody between who does
        return _run_isolated(command, folder, deadline, environment, descriptors)
    return Ended(code, message)


def _run(
    command: Sequence[str], folder: Path, deadline: float, environment: Mapping[str, str], descriptors: Sequence[int]
) -> tuple[int | None, str]:
    """Return the exit code of a program, None if that was lost, and its output."""
    process = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, bufsize=0,
        pass_fds=descriptors, env=environment, start_new_session=True,
    )  # fmt: skip
    try:
        with cast("IO[bytes]", process.stderr) as errors:
            message = os.fsdecode(_read(errors, deadline))
        code = _status(process.pid, deadline)
    except BaseException:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    process.returncode = 0 if code is None else code  # it was waited for
    return code, message


def _run_isolated(
    command: Sequence[str], folder: Path, deadline: float, environment: Mapping[str, str], descriptors: Sequence[int]
) -> Ended:
    """Return the end of a program, as another one that waits for it tells."""
    read, write = os.pipe()
    with os.fdopen(read, "rb", buffering=0) as told:
        try:
            teller = [sys.executable, "-I", "-S", "-c", _TELL, str(write), *command]
            _, message = _run(teller, folder, deadline, environment, (*descriptors, write))
        finally:
            os.close(write)
        code = told.read()
    return Ended(int(code or -signal.SIGKILL), message)


def _read(file: IO[bytes], deadline: float) -> bytes:
    """Return all that a file gives until its end."""
    read = b""
    with selectors.DefaultSelector() as selector:
        selector.register(file, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            data = os.read(file.fileno(), _CHUNK)
            if not data:
                return read
            read += data
    raise TimeoutError


def _status(process: int, deadline: float) -> int | None:
    """Wait for a process; return its exit code, or less the signal that ended it, None if somebody else has it."""
    while time.monotonic() < deadline:
        try:
            ended = os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return None
        if ended is not None:
            return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        time.sleep(_POLL)  # it has closed its standard error: it is about to end
    raise TimeoutError
