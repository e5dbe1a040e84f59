"""Putting the files of an entry in place, so that nobody ever sees part of one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from opbuild.kernel.files import make_folder, write_new
from opbuild.kernel.private_files import private_stem, replace


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
    stem = private_stem()
    staged: list[tuple[Path, Path]] = []
    try:
        for name, content in files:
            temporary = folder / f"{stem}{len(staged)}"
            staged.append((temporary, folder / name))
            write_new(temporary, content)
        for temporary, final in staged:
            replace(temporary, final)
    except BaseException:
        for temporary, _ in staged:
            with contextlib.suppress(OSError):
                temporary.unlink()
        raise
