"""Exchanging a function of opbuild, whoever has imported it by name, and counting its calls by thread."""

from __future__ import annotations

import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


class CountedFunction:
    """Counts calls, and adds up their processor time; those of a function within itself count once.

    Args:
        whole: The function.
        weigh: As how many a call counts, given its arguments.

    Attributes:
        here: Calls by the thread that made this.
        elsewhere: Calls by others.
        seconds: Their processor time.
    """

    def __init__(self, whole: Callable[..., Any], weigh: Callable[..., int] = lambda *_: 1) -> None:
        self._whole, self._weigh = whole, weigh
        self._thread, self._inside = threading.get_ident(), threading.local()
        self.here = self.elsewhere = 0
        self.seconds = 0.0

    @property
    def count(self) -> int:
        """All calls."""
        return self.here + self.elsewhere

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        if getattr(self._inside, "busy", False):
            return self._whole(*arguments, **more)
        self._inside.busy, started = True, time.thread_time()
        if threading.get_ident() == self._thread:
            self.here += self._weigh(*arguments)
        else:
            self.elsewhere += self._weigh(*arguments)
        try:
            return self._whole(*arguments, **more)
        finally:
            self._inside.busy = False
            self.seconds += time.thread_time() - started


def _replaced(*arguments: Any, **more: Any) -> Any:
    return __other__(*arguments, **more)  # type: ignore[name-defined]  # noqa: F821  a global of what calls it


@contextmanager
def exchanged(function: Any, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[Any]:
    """Let callers of a function of a module call another one meanwhile, which is made of it.

    Its code is exchanged, and not its name in one module: others have imported the function itself.
    """
    parts = "__code__", "__defaults__", "__kwdefaults__"
    before = {name: getattr(function, name) for name in parts}
    whole = types.FunctionType(before["__code__"], function.__globals__, function.__name__, before["__defaults__"])
    whole.__kwdefaults__ = before["__kwdefaults__"]
    function.__globals__["__other__"] = other = make(whole)
    function.__code__, function.__defaults__, function.__kwdefaults__ = _replaced.__code__, None, None
    try:
        yield other
    finally:
        for name, value in before.items():
            setattr(function, name, value)
        del function.__globals__["__other__"]


def counted(function: Any, weigh: Callable[..., int] = lambda *_: 1) -> AbstractContextManager[CountedFunction]:
    """Count the calls of a function of a module meanwhile, each as many times as ``weigh`` says of its arguments."""
    return exchanged(function, lambda whole: CountedFunction(whole, weigh))
