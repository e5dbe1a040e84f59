"""Putting files in place so that nobody ever sees part of one.

A file is written under a private name in the folder where it will live, then renamed. Nothing is flushed to the disk: a
file that a power cut left empty or torn is noticed by its digest and built again, which costs less than waiting for the
disk in every build.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from opbuild.kernel.files import make_folder, write_new

TEMPORARY_PREFIX = ".publish-"
_STALE_SECONDS = 3600.0


def publish_files(folder: Path, files: Sequence[tuple[str, bytes]]) -> None:
    """Write files into ``folder``, each whole or not at all, and show them in the order given.

    All are written before the first is renamed, so that a full disk leaves what was there before.

    Args:
        folder: Created if it is missing, for this user alone.
        files: Names and contents; the last one is the mark that the others are complete.

    Raises:
        OSError: If the storage refuses; no temporary file stays behind.
    """
    make_folder(folder)
    token = secrets.token_hex(16)  # not the process id: two containers on one folder can share that
    staged: list[tuple[Path, Path]] = []
    try:
        for name, content in files:
            temporary = folder / f"{TEMPORARY_PREFIX}{token}-{len(staged)}"
            staged.append((temporary, folder / name))
            write_new(temporary, content)
        for temporary, final in staged:
            _replace(temporary, final)
    finally:
        for temporary, _ in staged:
            with contextlib.suppress(OSError):
                temporary.unlink()


def is_stale(path: Path) -> bool:
    """Return whether a private file's writer is long gone; a time in the future counts as long ago."""
    try:
        return abs(time.time() - path.stat().st_mtime) > _STALE_SECONDS
    except OSError:
        return False


def _replace(temporary: Path, final: Path) -> None:
    try:
        temporary.replace(final)
    except IsADirectoryError:
        # Somebody put a folder where an entry's file belongs: it goes, whatever is in it.
        aside = temporary.with_name(temporary.name + "-folder")
        final.replace(aside)
        temporary.replace(final)
        shutil.rmtree(aside, ignore_errors=True)
