"""What the system says of the memory of this process."""

from __future__ import annotations

from pathlib import Path

from opbuild.graph.types import Array


def mapped_at(array: Array) -> str:
    """Return the file whose pages are at an array's address; empty if it is memory of this process."""
    address = array.ctypes.data
    for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines():
        begin, end = (int(each, 16) for each in line.split()[0].split("-"))
        if begin <= address < end:
            return " ".join(line.split()[5:])
    raise AssertionError("nothing is mapped there")
