"""Storage that refuses: every change below a folder is a step, and any step can be made to fail."""

from __future__ import annotations

import builtins
import errno
import io
import os
import pathlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
_BY_PATH = ("mkdir", "replace", "rename", "link", "symlink", "unlink", "remove", "rmdir", "utime", "truncate")
_OPENS_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class RefusingStorage:
    """Counts the steps that change something below a folder, and refuses some.

    Args:
        root: The folder.
        first: Number of the first step to refuse; None refuses none.
        last: Number of the last one; None: all that follow.
        code: The error's number.

    Attributes:
        steps: What each step was, for messages.
    """

    def __init__(self, root: Path, first: int | None = None, last: int | None = None, code: int = errno.EROFS) -> None:
        self._root = str(root)
        self._first, self._last, self._code = first, last, code
        self._files: set[int] = set()
        self.steps: list[str] = []

    def step(self, what: str) -> None:
        """Count one step, or refuse it."""
        number = len(self.steps)
        self.steps.append(what)
        if self._first is not None and self._first <= number and (self._last is None or number <= self._last):
            raise OSError(self._code, os.strerror(self._code), what)

    def holds(self, path: Any) -> bool:
        """Return whether a path, or an open file, is below the folder."""
        if isinstance(path, int):
            return path in self._files
        return isinstance(path, (str, os.PathLike)) and os.path.abspath(os.fspath(path)).startswith(self._root)

    def by_path(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of ``os`` that changes a path, watched."""

        def watched(path: Any, *rest: Any, **options: Any) -> Any:
            if self.holds(path):
                self.step(f"{name} {Path(path).name}")
            return function(path, *rest, **options)

        return watched

    def open_descriptor(self, function: Callable[..., int]) -> Callable[..., int]:
        """Return ``os.open``, watched."""

        def watched(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            if not flags & _OPENS_TO_WRITE or not self.holds(path):
                return function(path, flags, *rest, **options)
            self.step(f"open {Path(path).name}")
            descriptor = function(path, flags, *rest, **options)
            self._files.add(descriptor)
            return descriptor

        return watched

    def write_descriptor(self, function: Callable[..., int]) -> Callable[..., int]:
        """Return ``os.write``, watched."""

        def watched(descriptor: int, data: Any) -> int:
            if descriptor in self._files:
                self.step(f"write to {descriptor}")
            return function(descriptor, data)

        return watched

    def close_descriptor(self, function: Callable[[int], None]) -> Callable[[int], None]:
        """Return ``os.close``, watched."""

        def watched(descriptor: int) -> None:
            self._files.discard(descriptor)
            function(descriptor)

        return watched

    def open_file(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``open``, watched."""

        def watched(path: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
            if not set(mode) & set("wxa+") or not self.holds(path):
                return function(path, mode, *rest, **options)
            if not isinstance(path, int):
                self.step(f"open {Path(path).name}")
            else:
                self._files.discard(path)
            return _WatchedFile(function(path, mode, *rest, **options), self)

        return watched


class _WatchedFile:
    """A file open for writing; a write that is refused has written half."""

    def __init__(self, file: Any, storage: RefusingStorage) -> None:
        self._file, self._storage = file, storage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _WatchedFile:
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()

    def write(self, data: Any) -> Any:
        try:
            self._storage.step("write")
        except OSError:
            self._file.write(data[: len(data) // 2])
            raise
        return self._file.write(data)


@contextmanager
def watched(storage: RefusingStorage) -> Iterator[RefusingStorage]:
    """Let a storage watch, and refuse, what this process changes in it."""
    functions = {name: storage.by_path(name, getattr(os, name)) for name in _BY_PATH}
    functions["open"] = storage.open_descriptor(os.open)
    functions["write"] = storage.write_descriptor(os.write)
    functions["close"] = storage.close_descriptor(os.close)
    opened = storage.open_file(io.open)
    accessor = getattr(pathlib, "_normal_accessor", None)  # Python 3.10's pathlib keeps its own references
    with ExitStack() as stack:
        for name, function in functions.items():
            stack.enter_context(mock.patch.object(os, name, function))
            if accessor is not None and name != "open" and hasattr(accessor, name):
                stack.enter_context(mock.patch.object(accessor, name, function))
        if accessor is not None:
            stack.enter_context(mock.patch.object(accessor, "open", opened))
        stack.enter_context(mock.patch.object(io, "open", opened))
        stack.enter_context(mock.patch.object(builtins, "open", opened))
        yield storage
