"""Making folders and files the way every part of the cache does: private folders, files that appear whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents for this user alone; one that exists keeps its modes.

    Raises:
        OSError: If the storage refuses.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError as error:  # a file, or a symbolic link that leads nowhere
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error


def write_new(path: Path, content: bytes | memoryview) -> None:
    """Write a file that must not exist yet; others may read it as the umask says, and never write to it.

    Raises:
        OSError: If the storage refuses.
    """
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), "wb", buffering=0
    ) as file:
        view = memoryview(content)
        while view:
            view = view[file.write(view) or 0 :]
