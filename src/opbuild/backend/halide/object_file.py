"""A place for the compiler to write an object to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def object_file() -> Iterator[Path]:
    """Give the path of an empty file in memory: a compile that is killed leaves nothing of it behind.

    Where there are no such files, it lies in a temporary folder.
    """
    try:
        descriptor = os.memfd_create("opbuild-object", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        descriptor = -1
    try:
        path = Path(f"/proc/self/fd/{descriptor}")
        if path.exists():
            yield path
            return
    finally:
        if descriptor >= 0:
            os.close(descriptor)
    import tempfile

    with tempfile.TemporaryDirectory(prefix="opbuild-") as folder:
        yield Path(folder, "kernel.o")
