"""What is left of objects that were dropped, until Python's cyclic collector runs."""

from __future__ import annotations

import gc
import os
import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

OWN = ("opbuild", "mmap", "ctypes.CDLL", "numpy.ndarray", "socket")
"""Where what is counted comes from: opbuild's own objects and what they hold of the system. Others' are theirs, such as
the cycle in each of Python's threads, which may end meanwhile."""


def left_over(make: Callable[[], object]) -> list[str]:
    """Return the names of objects of a dropped result that only the collector frees, and how many there are.

    ``make`` runs once before, for what is made once a process.
    """
    make()
    gc.collect()
    with _saved_garbage():
        make()
        gc.collect()
        found = Counter(name for each in gc.garbage if (name := _name_of(each)).startswith(OWN))
    gc.collect()
    return [f"{count} {name}" for name, count in found.most_common()]


def held() -> dict[str, int]:
    """Return how many descriptors, maps of files and threads this process has."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return {
        "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "maps of files": sum("/" in line for line in maps),
        "threads": sum(1 for _ in Path("/proc/self/task").iterdir()),
    }


def resident() -> int:
    """Return how many bytes of this process are in memory and are not of files that others have too."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return (int(pages[1]) - int(pages[2])) * os.sysconf("SC_PAGE_SIZE")


def _name_of(found: object) -> str:
    kind = type(found)
    if kind is types.FunctionType:
        return f"{found.__module__}.{found.__qualname__}"
    return f"{kind.__module__}.{kind.__qualname__}"


@contextmanager
def _saved_garbage() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        if was_enabled:
            gc.enable()
