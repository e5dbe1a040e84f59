"""Folders by which processes of one user meet: a job's, and that of claims. Files of others there are refused.

Such a folder may lie where others can write, so its name says nothing: it is opened without following a link, looked at
by its descriptor, and what is in it is opened below that, likewise. What is a link, a pipe, somebody else's, or has
another name elsewhere is neither read nor written, and makes nobody wait.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice

from opbuild.platform.files.private import private_stem
from opbuild.platform.files.trust import UntrustedError
from opbuild.platform.files.writing import make_folder
from opbuild.platform.paths import Path

_SAFE = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_ROOT = 0
_LOOKED_AT = 10_000
"""Files of a folder that are looked at before it is used."""


@contextmanager
def opened_folder(folder: Path) -> Iterator[int]:
    """Give a descriptor of a folder that only this user writes to.

    Raises:
        UntrustedError: If it is another's, a link, or others may write to it.
        OSError: If it is not there or cannot be opened.
    """
    with _named(folder):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
    try:
        _check(folder, os.fstat(descriptor))
        yield descriptor
    finally:
        os.close(descriptor)


def open_meeting_file(path: Path, flags: int) -> int:
    """Open a file of a meeting folder, a new one for this user alone, and return its descriptor.

    Raises:
        UntrustedError: If the file or its folder is not this user's own.
        OSError: If it cannot be opened.
    """
    with opened_folder(path.parent) as folder:
        with _named(path):
            descriptor = os.open(path.name, flags | _SAFE, 0o600, dir_fd=folder)
        try:
            _check(path, os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def read_meeting_file(path: Path, most: int) -> bytes:
    """Return the contents of a file of a meeting folder.

    Raises:
        UntrustedError: If the file or its folder is not this user's own.
        OSError: If it cannot be read or is larger.
    """
    with os.fdopen(open_meeting_file(path, os.O_RDONLY), "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return content


def publish_meeting_file(path: Path, data: bytes) -> None:
    """Write a file of a meeting folder so that nobody sees part of it; anything of its name, also a link, is replaced.

    The folder is made where it is missing.

    Raises:
        UntrustedError: If the folder is not this user's own.
        OSError: If it cannot be written.
    """
    make_folder(path.parent)
    with opened_folder(path.parent) as folder:
        name = f"{private_stem()}0"
        with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o600, dir_fd=folder), "wb") as file:
            file.write(data)
        try:
            os.rename(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(name, dir_fd=folder)
            raise


def unlink_meeting_file(path: Path) -> None:
    """Remove a file of a meeting folder.

    Raises:
        UntrustedError: If the folder is not this user's own.
        OSError: If it cannot be removed.
    """
    with opened_folder(path.parent) as folder:
        os.unlink(path.name, dir_fd=folder)


def planted_files(*folders: Path) -> str:
    """Return the files in some folders that are not this user's own, and the remedy; empty if all are.

    A folder that is not there has nothing.
    """
    for folder in folders:
        with suppress(FileNotFoundError):
            try:
                with opened_folder(folder) as descriptor, os.scandir(descriptor) as listing:
                    for item in islice(listing, _LOOKED_AT):
                        with suppress(FileNotFoundError):  # it has just gone
                            _check(folder / item.name, item.stat(follow_symlinks=False))
            except FileNotFoundError:
                raise
            except OSError as error:
                if not isinstance(error, UntrustedError) and not os.path.lexists(folder):
                    continue  # its place can hold no folder
                return f"{error.filename}: {error.strerror}; remove it, or take another folder"
    return ""


def _check(path: Path, state: os.stat_result) -> None:
    problem = _problem(state)
    if problem:
        raise UntrustedError(errno.EPERM, problem, str(path))


def _problem(state: os.stat_result) -> str:
    if stat.S_ISLNK(state.st_mode):
        return "it is a symbolic link"
    if not (stat.S_ISREG(state.st_mode) or stat.S_ISDIR(state.st_mode)):
        return "it is no regular file"
    user = os.geteuid()
    if state.st_uid not in (user, _ROOT):
        return f"user {state.st_uid} owns it"
    if state.st_mode & stat.S_IWOTH or (state.st_mode & stat.S_IWGRP and state.st_gid not in (user, _ROOT)):
        return "others may write to it"
    return "it has a second name" if stat.S_ISREG(state.st_mode) and state.st_nlink > 1 else ""


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name the thing in a file's or folder's place where it cannot be opened."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        with suppress(OSError):
            _check(path, os.lstat(path))
        raise OSError(error.errno, os.strerror(error.errno or 0), str(path)) from None
