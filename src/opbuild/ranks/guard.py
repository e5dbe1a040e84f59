"""A small process that outlives the launcher by a moment: it ends what a killed launcher leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from opbuild.ranks.folder import remove_folder

END = b"end\n"


class Guard:
    """Watches this process, the launcher; make it before any thread is started.

    Args:
        folder: The job's folder, which it removes if the launcher can not.
    """

    def __init__(self, folder: Path) -> None:
        read, self._write = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            try:
                os.close(self._write)
                _watch(read, folder)
            finally:
                os._exit(0)
        os.close(read)

    def add(self, group: int) -> None:
        """Take note of a process group that has been started."""
        self._say(b"+%d\n" % group)

    def remove(self, group: int) -> None:
        """Take note that a process group has ended."""
        self._say(b"-%d\n" % group)

    def close(self) -> None:
        """End the guard: there is nothing left to watch."""
        self._say(END)
        os.close(self._write)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._process, 0)

    def _say(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # somebody killed the guard: then nothing guards, and the job goes on
            os.write(self._write, line)


def _watch(read: int, folder: Path) -> None:
    """Wait for the launcher's end, in the guard's process."""
    os.setsid()  # Ctrl-C is for the launcher, which ends the ranks itself
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    said = b""
    while data := os.read(read, 1 << 12):
        said += data
    if said.endswith(END):
        return
    groups: set[int] = set()
    for line in said.split(b"\n")[:-1]:
        (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    remove_folder(folder)
