"""Surroundings that a program is started in: limits, signals, descriptors, folders; and what it came to there.

What a supervisor, a container or a shell leaves to the program that it starts is set by a small program before it runs
the real one in its own place.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from support.forked import in_fork, mount, own_mounts
from support.processes import environment

SECONDS = 120
"""After which a program hangs; the longest takes three."""
LINGER = 60.0
"""Seconds in which what a program started must have ended after it."""
LONGEST_SAID = 4000

LIMITS = {
    "address-space": resource.RLIMIT_AS, "data": resource.RLIMIT_DATA, "file-size": resource.RLIMIT_FSIZE,
    "open-files": resource.RLIMIT_NOFILE, "processes": resource.RLIMIT_NPROC, "stack": resource.RLIMIT_STACK,
}  # fmt: skip
ALIEN = ("Traceback", "panicked", "Exception ignored", "Fatal Python error", "report it", "reinstall")
"""What nobody is to read who has set a limit."""

_PR_SET_CHILD_SUBREAPER = 36

_ENTER = """
import ctypes, json, os, resource, signal, sys
said = json.loads(sys.argv[1])
libc = ctypes.CDLL(None)
for number in (signal.SIGPIPE, signal.SIGXFSZ):  # the interpreter ignores them
    signal.signal(number, signal.SIG_DFL)
for number in said["ignored"]:
    signal.signal(number, signal.SIG_IGN)
os.umask(said["umask"])
for name in said["unset"]:
    os.environ.pop(name, None)
os.environ.update(said["variables"])
if said["user"]:
    libc.prctl(8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
    os.setgroups([])
    os.setgid(said["user"])
    os.setuid(said["user"])
    caps = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(caps, caps, caps, 0, 0, 0))
    for cap in (1, 2):
        libc.prctl(47, 2, cap, 0, 0)  # PR_CAP_AMBIENT_RAISE
for descriptor in said["full"]:
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, descriptor)
    os.close(full)
for descriptor in said["closed"]:
    os.close(descriptor)
signal.pthread_sigmask(signal.SIG_SETMASK, said["blocked"])
for number, value in said["limits"]:
    resource.setrlimit(number, (value, value))
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Sets what was asked for, and runs the program named after it in its own place. A user other than root, to whom the
limit on processes applies, keeps root's way through folders: the interpreter may be in one of root's."""


@dataclass(frozen=True)
class Surroundings:
    """The surroundings of a program.

    Attributes:
        limits: By name in ``LIMITS``.
        ignored: Signals.
        blocked: Signals.
        closed: Of the standard descriptors.
        full: Of the standard descriptors, those that nothing can be written to.
        umask: Which modes new files lack.
        unset: Variables of the environment that are missing.
        variables: Variables of the environment that are set.
        mounted: Options of a file system in memory that is mounted over the folder ``cache``; empty for none.
        user: Number of the user; 0: the one who tests.
    """

    limits: Mapping[str, int] = field(default_factory=dict)
    ignored: Sequence[int] = ()
    blocked: Sequence[int] = ()
    closed: Sequence[int] = ()
    full: Sequence[int] = ()
    umask: int = 0o022
    unset: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    mounted: str = ""
    user: int = 0

    def enter(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs another in these surroundings."""
        said = asdict(self) | {"limits": [[LIMITS[name], value] for name, value in self.limits.items()]}
        return [sys.executable, "-I", "-S", "-c", _ENTER, json.dumps(said), *command]


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit code (None: it hung), what it said, and the processes that it left behind."""

    code: int | None
    output: str
    errors: str
    left: Sequence[str]

    @property
    def fault(self) -> str:
        """What nothing that it is in may do to it; empty if it did nothing of the kind."""
        if self.code is None:
            return f"it hung: {self.errors}"
        if self.left:
            return f"it left {', '.join(self.left)}"
        said = self.output + self.errors
        if self.code < 0:
            return f"it was ended by {signal.Signals(-self.code).name}: {said}"
        return f"it ended with {self.code} and said {said}" if any(each in said for each in ALIEN) else ""


def run_in(surroundings: Surroundings, command: Sequence[str], folder: Path) -> Ended:
    """Run a command in surroundings, in a fork to which whatever it leaves behind comes.

    Args:
        surroundings: What it finds.
        command: The program, by path, and its arguments.
        folder: Where it runs; belongs to its user, with all that is in it.

    Raises:
        CanNotBeSetUpError: If the system does not allow such surroundings.
    """
    if surroundings.user:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, surroundings.user, surroundings.user)
    return Ended(**in_fork(lambda: _run_in(surroundings, command, folder), SECONDS + 120))


def _run_in(surroundings: Surroundings, command: Sequence[str], folder: Path) -> dict[str, Any]:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if surroundings.mounted:
        (folder / "cache").mkdir(exist_ok=True)
        own_mounts()
        mount("-t", "tmpfs", "-o", surroundings.mounted, "tmpfs", str(folder / "cache"))
        os.chown(folder / "cache", surroundings.user, surroundings.user) if "ro" not in surroundings.mounted else None
    with (folder / "output").open("w+b") as output, (folder / "errors").open("w+b") as errors:
        program = subprocess.Popen(
            surroundings.enter(command), stdin=subprocess.DEVNULL, stdout=output, stderr=errors, cwd=folder,
            env=environment(PYTHONFAULTHANDLER="1"),
        )  # fmt: skip
        try:
            code: int | None = program.wait(SECONDS)
        except subprocess.TimeoutExpired:
            code = None
            program.send_signal(signal.SIGABRT)  # says where it is
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.wait(30)
            program.kill()
            program.wait()
        left = _left_behind()
        said = []
        for file in (output, errors):
            file.seek(0)
            said.append(file.read().decode(errors="replace")[-LONGEST_SAID:])
    return {"code": code, "output": said[0], "errors": said[1], "left": left}


def _left_behind() -> list[str]:
    """Return the commands of this process's children that do not end by themselves, and end them."""
    end = time.monotonic() + LINGER
    while time.monotonic() < end:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
        except ChildProcessError:
            return []
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    commands = [Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")[:120] for child in children]
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    return commands
