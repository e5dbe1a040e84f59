"""Making folders and files the way every part of the cache does: private folders, files that appear whole."""

from __future__ import annotations

import errno
import os
import stat
from typing import IO

from opbuild.platform.locks import Lock
from opbuild.platform.paths import Path

_BLOCK = 4096

_PIECE = 2**18
"""Bytes that are written at once. For 2 MiB or more Linux looks for a huge page to keep them in, and moves other pages
about until it has one: where memory has been in use for a while that takes three times the time of the writing."""

_COUNTING = Lock()
_written = 0


def written() -> int:
    """Return the bytes that this process has written to caches so far, in whole blocks."""
    return _written


def count_written(nbytes: int) -> None:
    """Count a file that was put into a cache."""
    global _written  # noqa: PLW0603  one count a process, of what all its threads write
    with _COUNTING:
        _written += -(-nbytes // _BLOCK) * _BLOCK


def make_folder(folder: Path, mode: int = 0o700) -> None:
    """Create a folder and its missing parents, unless told for this user alone; one that exists keeps its modes.

    Raises:
        OSError: If the storage refuses.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    try:
        folder.mkdir(mode=mode, exist_ok=True)
    except FileExistsError as error:  # a file, or a symbolic link that leads nowhere
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from error


def unwritable(path: Path, *, in_place: bool = False) -> str:
    """Return the reason that no file can be written in a place; empty if one can be, as far as one can tell untried.

    ``in_place``: a file that is there is written to; else another one takes its name.
    """
    try:
        if path.is_dir():
            return "it is a folder"
        if not path.parent.exists():
            return f"there is no folder {str(path.parent)!r}"
        if in_place and path.exists():
            return "" if os.access(path, os.W_OK) else "it cannot be written"
        return unwritable_folder(path.parent)
    except (OSError, ValueError) as error:  # a name with a zero byte, or one that is too long
        return f"it cannot be written: {getattr(error, 'strerror', None) or error}"


def unwritable_folder(folder: Path) -> str:
    """Return the reason that no file can be written in a folder, which need not exist yet; empty if one can be."""
    try:
        place = folder
        while not place.exists() and not place.is_symlink():
            place = place.parent
        if not place.is_dir():
            return f"{str(place)!r} is no folder"
        return "" if os.access(place, os.W_OK | os.X_OK) else f"the folder {str(place)!r} cannot be written"
    except (OSError, ValueError) as error:
        return f"the folder {str(place)!r} cannot be written: {getattr(error, 'strerror', None) or error}"


def same_file(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> bool:
    """Return whether two paths lead to one file that is there."""
    try:
        return Path(first).samefile(second)
    except (OSError, ValueError):
        return False


def create(path: Path, buffering: int = -1) -> IO[bytes]:
    """Open a new file for writing; others may read it as the umask says, and never write to it.

    Raises:
        OSError: If the storage refuses, or it is there already.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    return os.fdopen(descriptor, "wb", buffering=buffering)


def append(path: Path, data: bytes, *, create: bool = False) -> int:
    """Add to the end of a file with one write, beside which others may do the same; return the size that it had.

    Raises:
        OSError: If it is no regular file, or cannot be written.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_CREAT if create else 0)
    descriptor = os.open(path, flags, 0o644)
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
    return state.st_size


def inside(folder: Path, location: str, file: Path | None = None) -> Path:
    """Return the path of a file that a file's content names, below a folder, by the rule that ONNX has.

    A file that is itself a symbolic link may have beside it links to what lies where it leads: so do caches of files by
    their digests (Hugging Face's ``snapshots`` and ``blobs``) lay out a model.

    Args:
        folder: The folder; an empty path is the working folder.
        location: The name, relative to it.
        file: The file that names it, if links may lead into the folder where it really lies too.

    Raises:
        OSError: If the name leads outside the folder, as it stands or by symbolic links, or to what is no file.
    """
    path = folder / location
    if not location or "\0" in location or Path(location).is_absolute() or ".." in Path(location).parts:
        raise OSError(errno.EPERM, "it leads outside the folder", location)
    folders = [Path(os.path.realpath(folder))] + ([] if file is None else [Path(os.path.realpath(file)).parent])
    if not any(map(Path(os.path.realpath(path)).is_relative_to, folders)):
        raise OSError(errno.EPERM, "a symbolic link leads outside the folder", location)
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", location)
    return path


def write_new(path: Path, content: bytes | memoryview) -> None:
    """Write a file that must not exist yet; others may read it as the umask says, and never write to it.

    Raises:
        OSError: If the storage refuses.
    """
    count_written(len(content))
    with create(path, buffering=0) as file:
        view = memoryview(content)
        while view:
            view = view[file.write(view[:_PIECE]) or 0 :]
