"""Wrappers of calls of opbuild: Ctrl-C while one works, and garbage collection while much is made that stays.

The work inside is nothing to whoever pressed Ctrl-C. The collector would look through all that was made again and
again, and find nothing.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, TypeVar

from opbuild.platform.locks import Lock

if TYPE_CHECKING:
    from types import TracebackType

F = TypeVar("F", bound=Callable[..., object])

_MANY = 200_000
"""Objects made, less those that went, after which the youngest are looked through; Python's own number is 700."""

_lock = Lock()
_inside = [0]
_usual: list[tuple[int, int, int]] = []
"""The process's thresholds, while somebody is inside."""


@contextmanager
def rare_collection() -> Iterator[None]:
    """Look for garbage rarely until the block is left, by the last thread if several are inside.

    It is still looked for: a block may take minutes, and other threads go on. Who sets the thresholds meanwhile, or
    has none, is left alone. What was made counts as old afterwards: it is looked through with all else, and not by the
    next allocation.
    """
    with _lock:
        _inside[0] += 1
        if _inside[0] == 1 and gc.get_threshold()[0]:
            _usual.append(gc.get_threshold())
            gc.set_threshold(_MANY, *_usual[0][1:])
    try:
        yield
    finally:
        with _lock:
            _inside[0] = max(0, _inside[0] - 1)
            if _inside[0] == 0 and _usual:
                usual = _usual.pop()
                if gc.get_threshold() == (_MANY, *usual[1:]):
                    _make_old()
                    gc.set_threshold(*usual)


def _leave_in_fork() -> None:
    """Let a fork have the usual thresholds: who was inside in other threads stayed in the parent."""
    _inside[0] = 0
    if _usual:
        gc.set_threshold(*_usual.pop())


os.register_at_fork(after_in_child=_leave_in_fork)


def _make_old() -> None:
    """Put all objects among the oldest without looking at them; not if somebody keeps some from being looked at."""
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()


_PACKAGE = __file__.removesuffix("platform/calls.py")
_LIBRARIES = ("/site-packages/", "/dist-packages/")
_STANDARD = wraps.__code__.co_filename.removesuffix("functools.py")


def bare(interrupt: KeyboardInterrupt) -> KeyboardInterrupt:
    """Return an interrupt without the frames of opbuild and of its callees; all stay where one is the user's."""
    trace = interrupt.__traceback__
    while trace is not None:
        if not _is_inside(trace):
            return interrupt
        trace = trace.tb_next
    return interrupt.with_traceback(None)


def quiet_when_interrupted(function: F) -> F:
    """Let a function raise a bare interrupt."""

    @wraps(function)
    def wrapped(*args: object, **kwargs: object) -> object:
        try:
            return function(*args, **kwargs)
        except KeyboardInterrupt as interrupt:
            raise bare(interrupt) from None

    return wrapped  # type: ignore[return-value]


def _is_inside(trace: TracebackType) -> bool:
    """Return whether a frame is of opbuild, of a library or of the interpreter."""
    name = trace.tb_frame.f_code.co_filename
    return name.startswith((_PACKAGE, _STANDARD, "<")) or any(each in name for each in _LIBRARIES)
