"""Counting what a build asks of the file system below a folder: names listed, files opened, looked at and changed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

_CALLS = ("open", "stat", "lstat", "unlink", "utime", "listdir", "rename", "replace", "link")


class _Entry:
    """A name that was listed, which counts when its state is asked for."""

    def __init__(self, entry: os.DirEntry[str], counts: Counter[str]) -> None:
        self._entry = entry
        self._counts = counts
        self.name = entry.name
        self.path = entry.path

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._entry.is_file(follow_symlinks=follow_symlinks)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._entry.is_dir(follow_symlinks=follow_symlinks)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        self._counts["stat"] += 1
        return self._entry.stat(follow_symlinks=follow_symlinks)


class _Listing:
    """A listing that counts its names as they are taken."""

    def __init__(self, listing: Any, counts: Counter[str]) -> None:
        self._listing = listing
        self._counts = counts

    def __enter__(self) -> _Listing:
        return self

    def __exit__(self, *_: object) -> None:
        self._listing.close()

    def __iter__(self) -> Iterator[Any]:
        for entry in self._listing:
            self._counts["name"] += 1
            yield _Entry(entry, self._counts)


@contextmanager
def counted_calls(folder: Path) -> Iterator[Counter[str]]:
    """Count the calls on paths below ``folder`` by their names, and each ``name`` that a listing gives."""
    counts: Counter[str] = Counter()
    scan = os.scandir

    def below(path: Any) -> bool:
        return not isinstance(path, int) and os.fsdecode(path).startswith(str(folder))

    def scandir(path: Any = ".") -> Any:
        return _Listing(scan(path), counts) if below(path) else scan(path)

    def counting(name: str) -> Any:
        call = getattr(os, name)

        def counted(path: Any, *arguments: Any, **more: Any) -> Any:
            if below(path):
                counts[name] += 1
            return call(path, *arguments, **more)

        return counted

    with mock.patch.multiple(os, scandir=scandir, **{name: counting(name) for name in _CALLS}):
        yield counts
