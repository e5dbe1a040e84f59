# ruff: noqa: PTH113, PTH115, PTH116, PTH120  it stands between this process and the functions of os
"""Stop points: every step by which a process changes files, counted; at any of them the process can be killed.

A step is a call that makes, writes, flushes, renames, links, cuts or removes a file or folder below the watched
folders, or that starts a process there. Steps are numbered in each thread by itself: one thread takes the same ones
each time, while threads interleave differently from run to run. Between two steps of a thread that thread changes
nothing, so a kill after one is a kill before the next. That no change escapes is checked, not assumed: an audit hook
sees each such call of the interpreter, in whatever module, and the bytes that were seen written must be the file's when
it gets its name.
"""

from __future__ import annotations

import builtins
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_BY_PATH = ("mkdir", "replace", "rename", "link", "symlink", "unlink", "remove", "rmdir", "utime", "truncate", "chmod")
_AUDITED = {"os.mkdir", "os.rename", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.utime", "os.truncate"}
_OPENS_TO_WRITE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NAMED_BY_CHANCE = re.compile(r"[0-9a-f]{32}-[0-9a-f]{16}\.[0-9]+-|(?<=-)[a-z0-9_]{8}(?=/|$)")
_write, _kill, _getpid = os.write, os.kill, os.getpid


class Step(NamedTuple):
    """One step: its thread, what it does, to which file, and how often the thread did just that before."""

    thread: str
    kind: str
    path: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind} {self.path} ({self.thread}, number {self.number})"


class Stop(NamedTuple):
    """Where to kill: a step, and ``before``, ``half`` (of a write) or ``after``."""

    step: Step
    when: str


class Watch:
    """Watches what this process changes below some folders, until the process ends.

    Args:
        roots: The folders.
        pipe: File descriptor to which each step is told before it is taken, a line of JSON each.
        stop: Where to kill this process; None nowhere.
        raising: What to raise there instead, to see what an interruption leaves.
    """

    def __init__(self, roots: Sequence[Path], pipe: int, stop: Stop | None, raising: type[BaseException] | None = None):
        self._roots = tuple(f"{root.resolve()}/" for root in roots)
        self._pipe, self._stop, self._raising = pipe, stop, raising
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._written: Counter[str] = Counter()
        self._inside = threading.local()
        self.escaped: list[str] = []

    def begin(self) -> None:
        """Replace the functions that change files, and hear of those that nobody replaced."""
        accessor = getattr(pathlib, "_normal_accessor", None)  # Python 3.10's pathlib keeps references of its own
        for name in _BY_PATH:
            function = self._by_path(name, getattr(os, name))
            setattr(os, name, function)
            if accessor is not None and hasattr(accessor, name):
                setattr(accessor, name, function)
        opened = self._opener(io.open)
        if accessor is not None:
            accessor.open = opened
        io.open = builtins.open = opened  # type: ignore[assignment]
        os.open = self._descriptor_opener(os.open)
        os.write = self._descriptor_writer(os.write)
        os.fsync = self._flusher(os.fsync)
        started = subprocess.Popen.__init__

        def start(process: Any, command: Any, *rest: Any, **options: Any) -> None:
            where = options.get("cwd")
            if where is None or self._shown(where) is None:
                return started(process, command, *rest, **options)
            return self.take("start", str(where), lambda: started(process, command, *rest, **options))

        subprocess.Popen.__init__ = start  # type: ignore[method-assign]
        sys.addaudithook(self._hear)

    def take(self, kind: str, path: str, call: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        """Take one step, or end this process before, in the middle of, or after it."""
        if getattr(self._inside, "step", False):
            return call()  # a part of the step that is being taken
        thread = re.sub(r"[-0-9]+", "", threading.current_thread().name)
        shown = _NAMED_BY_CHANCE.sub("*", self._shown(path) or path)
        same = (thread, kind, shown)
        step = Step(*same, self._counts[same])
        self._counts[same] += 1
        _write(self._pipe, json.dumps(step).encode() + b"\n")
        when = self._stop.when if self._stop is not None and self._stop.step == step else ""
        self._inside.step = True
        try:
            if when == "before":
                self._end()
            if when == "half" and half is not None:
                half()
                self._end()
            try:
                return call()
            finally:
                if when == "after":
                    self._end()
        finally:
            self._inside.step = False

    def _end(self) -> None:
        if self._raising is None:
            _kill(_getpid(), signal.SIGKILL)
        self._stop, raising = None, self._raising
        raise raising("interrupted") if raising is not None else AssertionError

    def _shown(self, path: Any, folder: int | None = None) -> str | None:
        """Return a path below the watched folders, relative to its folder; None if it is elsewhere."""
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        text = os.fsdecode(path)
        if folder is not None and folder >= 0 and not text.startswith("/"):
            text = f"{os.readlink(f'/proc/self/fd/{folder}')}/{text}"
        text = os.path.abspath(text)
        root = next((root for root in self._roots if f"{text}/".startswith(root)), None)
        return None if root is None else text[len(os.path.dirname(root[:-1])) + 1 :]

    def _by_path(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(path: Any, *rest: Any, **options: Any) -> Any:
            where = path if not (rest and name in ("link", "symlink")) else rest[0]
            shown = self._shown(where, options.get("dir_fd"))
            if shown is None and not (rest and name in ("replace", "rename") and self._shown(rest[0]) is not None):
                return function(path, *rest, **options)
            if name in ("replace", "rename", "link") and os.path.isfile(path):
                self._compare(path)
                shown = self._shown(rest[0])
            return self.take(name, str(shown), lambda: function(path, *rest, **options))

        return watched

    def _compare(self, path: Any) -> None:
        """Note a file that is about to get its name and holds more or less than was written to it."""
        known, size = self._written[os.path.abspath(os.fsdecode(path))], os.stat(path).st_size
        if known != size and not getattr(self._inside, "step", False):
            self.escaped.append(f"{path} has {size} bytes, of which {known} were seen written")

    def _opener(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(path: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
            if not set(mode) & set("wxa+") or self._shown(path) is None:
                return function(path, mode, *rest, **options)
            name = path if not isinstance(path, int) else os.readlink(f"/proc/self/fd/{path}")
            if isinstance(path, int):
                return _WatchedFile(function(path, mode, buffering=0), self, name)
            file = self.take("open", str(self._shown(path)), lambda: function(path, mode, buffering=0))
            return _WatchedFile(file, self, name)

        return watched

    def _descriptor_opener(self, function: Callable[..., int]) -> Callable[..., int]:
        def watched(path: Any, flags: int, *rest: Any, **options: Any) -> int:
            shown = self._shown(path, options.get("dir_fd")) if flags & _OPENS_TO_WRITE else None
            if shown is None:
                return function(path, flags, *rest, **options)
            descriptor: int = self.take("open", shown, lambda: function(path, flags, *rest, **options))
            return descriptor

        return watched

    def _descriptor_writer(self, function: Callable[..., int]) -> Callable[..., int]:
        def watched(descriptor: int, data: Any) -> int:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
            if self._shown(target) is None:
                return function(descriptor, data)
            return self.write(target, data, lambda piece: function(descriptor, piece))

        return watched

    def _flusher(self, function: Callable[[int], None]) -> Callable[[int], None]:
        def watched(descriptor: int) -> None:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
            if self._shown(target) is None:
                return function(descriptor)
            self.take("fsync", target, lambda: function(descriptor))
            return None

        return watched

    def write(self, path: Any, data: Any, function: Callable[[Any], int]) -> int:
        """Write to a file; its first half, where the process is to end in the middle."""
        count: int = self.take(
            "write", str(path), lambda: function(data), lambda: function(memoryview(data)[: len(data) // 2])
        )
        self._written[os.path.abspath(os.fsdecode(path))] += count
        return count

    def wrote_up_to(self, path: Any, end: int) -> None:
        """Note how long a file is that was written out of order."""
        self._written[os.path.abspath(os.fsdecode(path))] = end

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note a change that was no step of its own."""
        if getattr(self._inside, "step", False) or (event not in _AUDITED and event != "open"):
            return
        path, *rest = arguments
        if event == "open":
            flags = arguments[2]
            if isinstance(path, int) or not isinstance(flags, int) or not flags & _OPENS_TO_WRITE:
                return
        folder = rest[-1] if event in ("os.mkdir", "os.remove", "os.rmdir", "os.utime") and rest else None
        if isinstance(path, (str, bytes, os.PathLike)) and self._shown(path, folder) is not None:
            self.escaped.append(f"{event} {path}")


class _WatchedFile:
    """A file open for writing, without a buffer: each write is a step."""

    def __init__(self, file: Any, watch: Watch, path: Any) -> None:
        self._file, self._watch, self._path = file, watch, path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _WatchedFile:
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()

    def write(self, data: Any) -> int:
        """Write, as one step."""
        count = self._watch.write(self._path, data, self._file.write)
        self._watch.wrote_up_to(self._path, os.fstat(self._file.fileno()).st_size)
        return count

    def truncate(self, size: int) -> int:
        """Cut or extend, as one step."""
        result: int = self._watch.take("truncate", str(self._path), lambda: self._file.truncate(size))
        self._watch.wrote_up_to(self._path, size)
        return result
