"""Garbage collection while much is made that stays: it looks through all of it again and again, and finds nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from opbuild.platform.locks import Lock

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
            _inside[0] -= 1
            if _inside[0] == 0 and _usual:
                usual = _usual.pop()
                if gc.get_threshold() == (_MANY, *usual[1:]):
                    _make_old()
                    gc.set_threshold(*usual)


def _make_old() -> None:
    """Put all objects among the oldest without looking at them; not if somebody keeps some from being looked at."""
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()
