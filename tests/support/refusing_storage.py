"""Storage that refuses: every change below a folder is a step, and any step can be made to fail."""

from __future__ import annotations

import builtins
import errno
import io
import os
import pathlib
import re
import threading
from collections import Counter
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
        first: The first step to refuse, as ``steps`` names it; None refuses none.
        onwards: Whether to refuse all steps that follow too.
        code: The error's number.

    Attributes:
        steps: What each step was: a name that is the same in every run, whichever thread came first.
    """

    def __init__(self, root: Path, first: str | None = None, *, onwards: bool = False, code: int = errno.EROFS) -> None:
        self._root = str(root)
        self._first, self._onwards, self._code = first, onwards, code
        self._files: dict[int, str] = {}
        self._kinds: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.refused = 0
        self.steps: list[str] = []

    def step(self, what: str, path: Any) -> None:
        """Count one step, or refuse it."""
        name = str(path).removeprefix(self._root)
        kind = f"{what} {re.sub('[0-9a-f]{16,}|[0-9]{3,}', '*', name)}"
        with self._lock:
            self._kinds[kind] += 1
            step = f"{kind} #{self._kinds[kind]}"
            self.steps.append(step)
            if step == self._first or (self._onwards and self.refused):
                self.refused += 1
                raise OSError(self._code, os.strerror(self._code), str(path))

    def holds(self, path: Any) -> bool:
        """Return whether a path, or an open file, is below the folder."""
        if isinstance(path, int):
            return path in self._files
        return isinstance(path, (str, os.PathLike)) and os.path.abspath(os.fspath(path)).startswith(self._root)

    def by_path(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of ``os`` that changes a path, watched."""

        def watched(path: Any, *rest: Any, **options: Any) -> Any:
            if self.holds(path):
                self.step(name, path)
            return function(path, *rest, **options)

        return watched

    def open_descriptor(self, function: Callable[..., int]) -> Callable[..., int]:
        """Return ``os.open``, watched."""

        def watched(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            if not flags & _OPENS_TO_WRITE or not self.holds(path):
                return function(path, flags, *rest, **options)
            self.step("open", path)
            descriptor = function(path, flags, *rest, **options)
            self._files[descriptor] = str(path)
            return descriptor

        return watched

    def write_descriptor(self, function: Callable[..., int]) -> Callable[..., int]:
        """Return ``os.write``, watched."""

        def watched(descriptor: int, data: Any) -> int:
            if descriptor in self._files:
                self.step("write", self._files[descriptor])
            return function(descriptor, data)

        return watched

    def close_descriptor(self, function: Callable[[int], None]) -> Callable[[int], None]:
        """Return ``os.close``, watched."""

        def watched(descriptor: int) -> None:
            self._files.pop(descriptor, None)
            function(descriptor)

        return watched

    def open_file(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``open``, watched."""

        def watched(path: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
            if not set(mode) & set("wxa+") or not self.holds(path):
                return function(path, mode, *rest, **options)
            if isinstance(path, int):
                return _WatchedFile(function(path, mode, *rest, **options), self, self._files.pop(path))
            self.step("open", path)
            return _WatchedFile(function(path, mode, *rest, **options), self, str(path))

        return watched


class _WatchedFile:
    """A file open for writing; a write that is refused has written half."""

    def __init__(self, file: Any, storage: RefusingStorage, path: str) -> None:
        self._file, self._storage, self._path = file, storage, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _WatchedFile:
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()

    def write(self, data: Any) -> Any:
        try:
            self._storage.step("write", self._path)
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
