"""Ctrl-C while a function of opbuild works: the work inside is nothing to whoever pressed it."""

from __future__ import annotations

from functools import wraps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import TypeVar

    F = TypeVar("F", bound=Callable[..., object])

_PACKAGE = __file__.removesuffix("platform/interrupts.py")
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
