"""Output of several processes on one stream: whole lines, each with its rank."""

from __future__ import annotations

import os

LONGEST = 1 << 16
"""Bytes after which a line without an end is written in parts."""

REMEMBERED = 50
"""Lines kept to tell what a rank said last."""


class PrefixedLines:
    """One stream of one rank.

    Args:
        rank: The rank.
        output: The descriptor to write to.

    Attributes:
        last: The last lines, without the prefix.
    """

    def __init__(self, rank: int, output: int) -> None:
        self.last: list[str] = []
        self._prefix = b"[rank %d] " % rank
        self._output = output
        self._unfinished = b""

    def feed(self, data: bytes) -> None:
        """Take output and write the lines that it completes.

        Raises:
            OSError: If nobody reads any more.
        """
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        if len(self._unfinished) > LONGEST:
            lines.append(self._unfinished)
            self._unfinished = b""
        self._write(lines)

    def finish(self) -> None:
        """Write what has no end of line."""
        if self._unfinished:
            lines, self._unfinished = [self._unfinished], b""
            self._write(lines)

    def _write(self, lines: list[bytes]) -> None:
        self.last = [*self.last, *(line.decode(errors="replace") for line in lines[-REMEMBERED:])][-REMEMBERED:]
        data = memoryview(b"".join(self._prefix + line + b"\n" for line in lines))
        while data:
            data = data[os.write(self._output, data) :]
