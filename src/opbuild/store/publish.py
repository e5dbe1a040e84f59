"""Putting files in place, so that nobody ever sees part of an entry, or of debugging's files for people."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Sequence

from opbuild.files.private import private_stem, replace, sweep
from opbuild.files.writing import count_written, make_folder, write_new
from opbuild.platform.paths import Path
from opbuild.store.items import remove_files

_TRIES = 4
"""How often something is written that others remove at the same time; it takes bad luck to need the second."""

_PASSING = (errno.ENOENT, errno.ESTALE, errno.EBUSY)
"""What is answered where somebody removed the folder or the private files between two steps."""

Files = Sequence[tuple[str, "bytes | memoryview"]]


def publish_files(folder: Path, files: Files, linked_from: Path | None = None) -> str | None:
    """Write files into ``folder``, each whole or not at all, and show them in the order given.

    All are written before the first is renamed, so that a full disk leaves what was there before. Where somebody
    removes some of them meanwhile they are written again: see ``store.items``.

    Args:
        folder: Created if it is missing, for this user alone.
        files: Names and contents; the last one is the mark that the others are complete.
        linked_from: A folder that may have the same files; they are linked where they can be, not written.

    Returns:
        None, or why the storage refused; no temporary file stays behind.
    """
    try:
        for _ in range(_TRIES):
            with contextlib.suppress(_RemovedError):
                _publish(folder, files, linked_from)
                return None
        remove_files([str(folder / name) for name, _ in reversed(files)])
        return f"{folder}: it is emptied again and again while something is written to it"
    except OSError as error:
        return f"{folder}: {error.strerror or error}"


class _RemovedError(Exception):
    """Somebody removed what was being written, or the folder."""


def _publish(folder: Path, files: Files, linked_from: Path | None) -> None:
    try:
        _show(folder, files, linked_from)
    except OSError as error:
        if error.errno in _PASSING:
            raise _RemovedError from error
        raise
    if not all(os.path.lexists(folder / name) for name, _ in files):
        raise _RemovedError


def _show(folder: Path, files: Files, linked_from: Path | None) -> None:
    make_folder(folder)
    stem = private_stem()
    staged: list[tuple[Path, Path]] = []
    try:
        for name, content in files:
            temporary = folder / f"{stem}{len(staged)}"
            staged.append((temporary, folder / name))
            if linked_from is None or not _link(linked_from / name, temporary, content):
                write_new(temporary, content)
        for temporary, final in staged:
            replace(temporary, final)
            if linked_from is not None:
                temporary.unlink(missing_ok=True)  # renaming a link to its own file does nothing
    except BaseException:
        for temporary, _ in staged:
            with contextlib.suppress(OSError):
                temporary.unlink()
        raise


def _link(path: Path, temporary: Path, content: bytes | memoryview) -> bool:
    """Return whether a file holds just this content and has the private name too now."""
    try:
        os.link(path, temporary, follow_symlinks=False)
    except (OSError, NotImplementedError):  # another file system, or one without links
        return False
    with contextlib.suppress(OSError):
        state = temporary.lstat()
        if stat.S_ISREG(state.st_mode) and state.st_size == len(content) and temporary.read_bytes() == content:
            count_written(len(content))
            return True
    temporary.unlink()
    return False


def write_debug_files(folder: Path, files: Files) -> str | None:
    """Write files for people, which no build reads, each whole or not at all; return None, or why storage refused."""
    sweep(folder)
    return publish_files(folder, files)
