# ruff: noqa: PTH110, PTH116  it stands between this process and the functions of os
"""Ways to damage a file: what disks, crashes, other programs and other users do to it."""

from __future__ import annotations

import builtins
import errno
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

Damage = Callable[[Path], object]


def cut(size: Callable[[int], int]) -> Damage:
    """Return a damage that cuts a file to a size computed from its own."""
    return lambda path: path.write_bytes(path.read_bytes()[: size(path.stat().st_size)])


def flip(share: float) -> Damage:
    """Return a damage that changes one bit, so far from the start."""

    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        if data:
            data[min(int(share * len(data)), len(data) - 1)] ^= 1
        path.write_bytes(data)

    return damage


def to_folder(path: Path) -> None:
    """Put a folder with something in it where the file was."""
    path.unlink()
    path.mkdir()
    (path / "inside").write_bytes(b"x")


def to_pipe(path: Path) -> None:
    """Put a pipe that nobody writes to where the file was: who opens it to read waits for ever."""
    path.unlink()
    os.mkfifo(path)


def to_socket(path: Path) -> None:
    """Put a socket where the file was."""
    path.unlink()
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(path.parent, os.O_RDONLY)
        try:
            made.bind(f"/proc/self/fd/{here}/{path.name}")  # a socket's path has at most 107 bytes
        finally:
            os.close(here)


def to_link(target: str) -> Damage:
    """Return a damage that puts a symbolic link where the file was; ``.`` in the target is its own name."""

    def damage(path: Path) -> None:
        path.unlink()
        path.symlink_to(target.replace(".", path.name) if target == "." else target)

    return damage


def swap(path: Path) -> None:
    """Put another file of the folder where this one was, one of the same kind if there is one."""
    others = sorted(other for other in path.parent.iterdir() if other.is_file() and other.name != path.name)
    same = [other for other in others if other.suffix == path.suffix]
    other = next(iter(same or others), None)
    path.write_bytes(other.read_bytes() if other is not None else b"another file")


DAMAGES: dict[str, Damage] = {
    "empty": cut(lambda size: 0),
    "one byte": cut(lambda size: 1),
    "half": cut(lambda size: size // 2),
    "a byte short": cut(lambda size: size - 1),
    "first byte": flip(0.0),
    "an early bit": flip(0.2),
    "a middle bit": flip(0.5),
    "a late bit": flip(0.8),
    "last byte": flip(1.0),
    "deleted": Path.unlink,
    "swapped": swap,
    "garbage": lambda path: path.write_bytes(b"\xff\x00" * 100),
    "other JSON": lambda path: path.write_bytes(b"[1, 2]"),
    "deep JSON": lambda path: path.write_bytes(b"[" * 100_000),
    "folder": to_folder,
    "pipe": to_pipe,
    "socket": to_socket,
    "endless device": to_link("/dev/zero"),
    "dangling link": to_link("/nonexistent/file"),
    "looping link": to_link("."),
}


@contextmanager
def unreadable(path: Path) -> Iterator[None]:
    """Let this very file, not one that replaces it, refuse to be read; root may read whatever its modes say."""
    held = os.open(path, os.O_RDONLY)  # so that its number is not given to another file
    victim = os.fstat(held).st_ino

    def refusing(function: Callable[..., Any]) -> Callable[..., Any]:
        def opened(file: Any, *rest: Any, **options: Any) -> Any:
            if isinstance(file, (str, os.PathLike)) and os.path.exists(file) and os.stat(file).st_ino == victim:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(file))
            return function(file, *rest, **options)

        return opened

    try:
        with mock.patch.object(os, "open", refusing(os.open)), mock.patch.object(builtins, "open", refusing(open)):
            yield
    finally:
        os.close(held)
